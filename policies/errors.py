"""Errors of the core: a wrong document, never a refusal. A refusal is a value (`verdict.py`)."""

from __future__ import annotations

__all__ = ["PolicyError"]


class PolicyError(ValueError):
    """A policy document that cannot be obeyed; `path` is where in it, in TOML notation."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message
