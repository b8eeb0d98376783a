"""`load`: one gateway.toml in, settings and policies out, or every fault at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.clock import Clock
from gateway.config.addresses import parse_listen
from gateway.config.advice import advice
from gateway.config.build import build_policies
from gateway.config.document import Document, read_document
from gateway.config.drafts import draft
from gateway.config.pending import pending
from gateway.config.places import Finding
from gateway.config.rules import broken_rules
from gateway.config.settings import Settings
from gateway.errors import ConfigError, Fault
from policies.policy import PolicySet
from policies.units import Micros

__all__ = ["LISTEN_VARIABLE", "Loaded", "load", "load_document"]

#: Wins over `[server] listen` where it is set and not empty; the image sets it.
LISTEN_VARIABLE = "EVENHAND_LISTEN"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a gateway runs on. `warnings` are to be told at every check and start."""

    settings: Settings
    policies: PolicySet
    warnings: tuple[Fault, ...] = ()


def load(path: Path, environ: Mapping[str, str], now: Micros | None = None) -> Loaded:
    """Read and check `path`. Raises ConfigError with every fault there is.

    `now` is the wall-clock instant by which credentials and exemptions have ended.
    """
    return load_document(read_document(path, environ), environ, now)


def load_document(document: Document, environ: Mapping[str, str], now: Micros | None = None) -> Loaded:
    """Check a document that was read. Raises ConfigError with every fault there is."""
    faults = [*document.faults, *_listen_from(document, environ)]
    made = draft(document.tree)
    faults += _traced(document, made.found)
    faults += _traced(document, broken_rules(document, made))
    if faults:
        raise ConfigError(tuple(dict.fromkeys(faults)))
    settings = made.settings()
    told = [*pending(document.tree), *advice(settings, Clock().wall() if now is None else now)]
    return Loaded(settings, build_policies(settings), tuple(_traced(document, told)))


def _listen_from(document: Document, environ: Mapping[str, str]) -> Iterable[Fault]:
    """Let the environment choose where to listen."""
    listen = environ.get(LISTEN_VARIABLE, "")
    server = document.tree.setdefault("server", {}) if listen else None
    if not isinstance(server, dict):
        return
    try:
        server["listen"] = parse_listen(listen)
    except ValueError as error:
        yield Fault(f"${LISTEN_VARIABLE}", str(error))


def _traced(document: Document, found: Iterable[Finding]) -> Iterable[Fault]:
    return (fault for place, message in found if (fault := document.fault(place, message)) is not None)
