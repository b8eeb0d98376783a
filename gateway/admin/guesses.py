"""Guesses at the admin token: counted, told, and slowed down, wherever they are made.

    a wrong token, new --> counted, one audit line --> the next look a while later, twice as long each time

Rules
1. `FREE` failures of an address are answered at once; then no token of it is looked at for `_FIRST`, doubled by each
   further failure, up to `LONGEST`. Until then it hears when to come again, whatever it presents: an answer that told
   the right token from a wrong one would be a guess.
2. `FREE_TOGETHER` failures of all addresses do the same to every address that has failed, and once those are more than
   are remembered to every other that was not let in lately: guessing from many addresses is as slow, and whoever works
   with the token goes on.
3. What failed is forgotten after `QUIET` without another failure. Sessions (cookies) are not held: none is guessed.
4. The same wrong token again is no new guess: a scraper with an old one does not shut out its neighbours. It is known
   by a keyed digest only.
5. Bounded, whatever is sent: `_ADDRESSES` addresses, an IPv6 one by its /64; `_TOKENS` digests.
6. No part of what was presented is told.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import orjson

from gateway.clock import Clock
from policies.units import SECOND, Micros

__all__ = ["FREE", "FREE_TOGETHER", "LONGEST", "QUIET", "Guesses"]

FREE = 5
FREE_TOGETHER = 50
LONGEST: Micros = 5 * SECOND
QUIET: Micros = 60 * SECOND
_FIRST: Micros = SECOND // 4
_ADDRESSES = 1024
_TOKENS = 1024

K = TypeVar("K")
V = TypeVar("V")

_LOG = logging.getLogger("evenhand.audit")

#: Writes an audit line: its name, an instant, its members.
Tell = Callable[[str, Micros, Mapping[str, object]], None]


@dataclass(slots=True)
class _Failures:
    """Failures of one origin; nothing is looked at before `until`."""

    count: int = 0
    last: Micros = 0
    until: Micros = 0

    def add(self, now: Micros, free: int) -> None:
        self.count = 1 if now - self.last > QUIET else self.count + 1
        self.last = now
        beyond = self.count - free
        if beyond >= 0:
            self.until = now + min(_FIRST << min(beyond, 16), LONGEST)


class Guesses:
    """Stands before every look at a token that was presented. To be used on one loop."""

    def __init__(self, is_token: Callable[[str], bool], clock: Clock, tell: Tell | None = None) -> None:
        self._is_token = is_token
        self._clock = clock
        self._tell = tell
        self._together = _Failures()
        self._of: OrderedDict[str, _Failures] = OrderedDict()
        self._let_in: OrderedDict[str, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._key = secrets.token_bytes(32)

    def wait(self, address: str) -> Micros:
        """Return for how long no token from `address` is looked at; 0 if one is now."""
        origin, now = _origin(address), self._clock.now()
        until = self._of[origin].until if origin in self._of else 0
        if origin not in self._let_in and (origin in self._of or len(self._of) >= _ADDRESSES):
            until = max(until, self._together.until)
        return max(0, until - now)

    def fits(self, presented: str, address: str) -> bool:
        """Return whether `presented` is the token, and count it if not. Only where there is nothing to wait for."""
        origin = _origin(address)
        if self._is_token(presented):
            _remember(self._let_in, origin, None, _ADDRESSES)
            return True
        digest = hashlib.blake2b(presented.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).digest()
        if digest not in self._wrong:
            self._failed(origin, address)
        _remember(self._wrong, digest, None, _TOKENS)
        return False

    def _failed(self, origin: str, address: str) -> None:
        now = self._clock.now()
        failures = self._of.get(origin) or _Failures()
        failures.add(now, FREE)
        self._together.add(now, FREE_TOGETHER)
        _remember(self._of, origin, failures, _ADDRESSES)
        told = {"act": "refused token", "by": address, "failures": failures.count, "of_all": self._together.count}
        _LOG.warning("%s", orjson.dumps(told).decode())
        if self._tell is not None:
            self._tell("act", now, told)


def _remember(kept: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


def _origin(address: str) -> str:
    """Return what an address is counted as: whoever has one of a /64 has them all."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ip) if ip.version == 4 else str(ipaddress.ip_network((int(ip) >> 64 << 64, 64)))
