"""Whose address a request comes from, when some of the peers are proxies of our own.

Rules
1. Only a peer in `trusted_proxies` is believed about anybody but itself. Its list is walked from the right, past
   further trusted proxies, to the first address that is not one: whoever wrote more to the left may have lied.
2. Anything that is not an address where one is needed ends the belief: the peer itself is the caller then. So do
   Forwarded (RFC 7239) and X-Forwarded-For that name different callers, since a proxy that writes one field passes the
   other on as it came.
3. An IPv6 caller is its prefix: one subscriber has 2^64 addresses. An IPv4 address written as IPv6 is the IPv4 address.
4. Work is bounded: `LONGEST_WALK` entries, and a bounded memory of peers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

__all__ = ["LONGEST_WALK", "UNIX", "UNKNOWN", "Addresses", "Network"]

Network: TypeAlias = IPv4Network | IPv6Network
_Ip: TypeAlias = IPv4Address | IPv6Address

#: What a peer on a unix socket is called, as peer and as address.
UNIX = "unix"
#: What one is called of which nobody can tell.
UNKNOWN = "unknown"
#: Entries of a list that are looked at; no real chain of proxies is longer.
LONGEST_WALK = 32

_PORTED = re.compile(r"(?:\[([0-9a-fA-F:.]{2,45})\]|([0-9.]{7,15}))(?::[0-9]{1,5})?", re.ASCII)
# One parameter of Forwarded: a token, or a quoted string without escapes, which no address needs.
_FOR = re.compile(r'for=(?:"([^"\\]*)"|([^";,\s]*))', re.ASCII | re.IGNORECASE)


class Addresses:
    """Finds the caller behind a peer, as one configuration trusts them."""

    __slots__ = ("_doubt", "_known", "_networks", "_prefix", "_trusts_nobody", "_trusts_unix")

    def __init__(
        self,
        trusted: Iterable[Network | str],
        ipv6_prefix: int = 64,
        doubt: Callable[[str], None] | None = None,
    ) -> None:
        """`doubt` is told of a trusted peer whose fields tell of no caller, or of two."""
        trusted = tuple(trusted)
        self._networks = tuple(entry for entry in trusted if not isinstance(entry, str))
        self._trusts_unix = UNIX in trusted
        self._trusts_nobody = not trusted
        self._prefix = ipv6_prefix
        self._doubt = doubt
        self._known = lru_cache(maxsize=4096)(self._look_up)

    def trusts(self, peer: str) -> bool:
        """Return whether `peer`, the socket's address or `unix`, is a proxy of our own."""
        return not self._trusts_nobody and self._known(peer)[1]

    def name(self, peer: str) -> str:
        """Return the address that `peer` itself is charged under: an IPv6 one is its prefix."""
        return self._known(peer)[0]

    def caller(self, peer: str, fields: Mapping[bytes, bytes]) -> str:
        """Return the address charged for a request from `peer`; `fields` are its fields, repeated ones joined."""
        if self._trusts_nobody and ":" not in peer:
            return peer
        own, trusted = self._known(peer)
        if not trusted:
            return own
        walks = [
            walk(fields[name].decode("latin-1"))
            for name, walk in ((b"x-forwarded-for", self._x_forwarded_for), (b"forwarded", self._forwarded))
            if name in fields
        ]
        if walks and walks[0] and all(walk == walks[0] for walk in walks):
            return walks[0]
        if walks and self._doubt is not None:
            self._doubt(own)
        return own

    def _x_forwarded_for(self, value: str) -> str:
        return self._walk(entry.strip() for entry in reversed(value.rsplit(",", LONGEST_WALK)[-LONGEST_WALK:]))

    def _forwarded(self, value: str) -> str:
        elements = reversed(value.rsplit(",", LONGEST_WALK)[-LONGEST_WALK:])
        return self._walk(_for(element) for element in elements)

    def _walk(self, entries: Iterable[str]) -> str:
        """Return the first caller among `entries`, nearest first; "" where that cannot be told."""
        farthest = ""
        for entry in entries:
            ip = _parse(entry)
            if ip is None:
                return ""
            farthest = self._name(ip)
            if not self._is_trusted(ip):
                return farthest
        return farthest

    def _look_up(self, peer: str) -> tuple[str, bool]:
        ip = _parse(peer)
        if ip is None:
            return peer, peer == UNIX and self._trusts_unix
        return self._name(ip), self._is_trusted(ip)

    def _is_trusted(self, ip: _Ip) -> bool:
        return any(ip in network for network in self._networks)

    def _name(self, ip: _Ip) -> str:
        if isinstance(ip, IPv4Address) or self._prefix == 128:
            return str(ip)
        return str(IPv6Network((int(ip) >> (128 - self._prefix) << (128 - self._prefix), self._prefix)))


def _for(element: str) -> str:
    """Return the node of one Forwarded element; a comma inside quotes leaves pieces in which none is found."""
    found = _FOR.findall(element)
    return found[0][0] or found[0][1] if len(found) == 1 else ""


def _parse(text: str) -> _Ip | None:
    """Parse an address, with a port or not; None for names, `unknown`, obfuscated and scoped ones."""
    ported = _PORTED.fullmatch(text)
    try:
        ip = ip_address((ported[1] or ported[2]) if ported else text)
    except ValueError:
        return None
    if isinstance(ip, IPv6Address):
        return None if ip.scope_id else ip.ipv4_mapped or ip
    return ip
