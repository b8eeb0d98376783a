"""Principals of those who proved nothing: anonymous callers, preflights, and the rejected.

Rules
1. They are their address and nothing else; in particular a rejected caller is never the tenant it names.
2. One resolution per address, remembered within bounds: refusal is the hottest path in an incident, and addresses are
   chosen by whoever sends.
"""

from __future__ import annotations

from gateway.identity.cache import Generations
from gateway.ports import Rejection, Resolution
from policies.request import ANONYMOUS, REJECTED, Kind, Principal

__all__ = ["Strangers"]

_MEMORY = 4096

_TENANTS = {Kind.ANONYMOUS: ANONYMOUS, Kind.PREFLIGHT: ANONYMOUS, Kind.REJECTED: REJECTED}


class Strangers:
    """Everybody without a proven identity who gets the same answer: one kind, and why if they are rejected."""

    __slots__ = ("_kind", "_known", "_posture", "_rejection")

    def __init__(self, kind: Kind, rejection: Rejection | None = None, posture: str = "") -> None:
        self._kind = kind
        self._rejection = rejection
        self._posture = posture
        self._known: Generations[str, Resolution] = Generations(_MEMORY)

    def at(self, address: str) -> Resolution:
        """Return the resolution of the stranger at `address`. Its credential, if any, is not ours and not consumed."""
        resolution = self._known.get(address)
        if resolution is None:
            principal = Principal(self._kind, _TENANTS[self._kind], address)
            resolution = Resolution(principal, self._rejection, consumed=False, posture=self._posture)
            self._known.put(address, resolution)
        return resolution
