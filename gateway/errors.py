"""The error tree of the shell, named by whose fault it is. Library exceptions stop at the module that calls them."""

from __future__ import annotations

__all__ = ["ConfigError", "Fault", "GatewayError", "ReloadError"]

from dataclasses import dataclass


class GatewayError(Exception):
    """Anything the gateway reports about itself; its text is one sentence fit for stderr."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in a configuration: where (a TOML path, with its file if not the main one) and what."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ConfigError(GatewayError):
    """The operator's document cannot be obeyed; carries every fault at once."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


class ReloadError(GatewayError):
    """No file was found wrong: there is none to read again, or nobody left to read it for. Says what to do instead."""
