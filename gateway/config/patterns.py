"""What requests are matched by: paths and methods of routes, prefixes to strip, tenants an issuer may speak for."""

from __future__ import annotations

import re
from collections.abc import Callable

from gateway.config.values import one_of, parse_method, parse_own_id, shown

__all__ = [
    "CHARACTERISTICS",
    "parse_characteristics",
    "parse_classes",
    "parse_methods",
    "parse_pattern",
    "parse_prefix",
    "parse_tenant_pattern",
]

# Octets that stand for themselves in a canonical path: RFC 3986 `pchar` without `;` (parameters are not matched).
_LITERAL = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,=:@")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
# No path with one of these has a canonical form.
_NEVER = re.compile(r"[\x00-\x1f\x7f\\?#;]|%(?:00|5[cC]|(?![0-9A-Fa-f]{2}))")

_parse_class = one_of("interactive", "batch")
CHARACTERISTICS = ("address", "tenant", "credential", "project", "route", "class")
_parse_characteristic = one_of(*CHARACTERISTICS)


def parse_pattern(value: object) -> str:
    """Parse a path pattern: literal segments, `*` for one segment, and at its end `**` for the rest.

    Returns it in the form that canonical paths have, so that what is written `/caf\u00e9` matches `/caf%C3%A9`.
    """
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError(f'expected a path such as "/v1/exports/**", found {shown(value)}')
    *inner, last = value[1:].split("/")
    written = [part if part == "*" else _canonical(part) for part in inner]
    written.append(last if last in {"", "*", "**"} else _canonical(last))
    if not all(written[:-1]) or None in written:
        raise ValueError(
            f'expected a path of whole segments, "*" for any one and "**" only at the end, found {shown(value)}'
        )
    return "/" + "/".join(map(str, written))


def parse_prefix(value: object) -> str:
    """Parse a prefix of literal segments such as `/v1`, "" being none; returned in canonical form."""
    first, *parts = value.split("/") if isinstance(value, str) else ["?"]
    written = [_canonical(part) for part in parts]
    if value != "" and (first or not written or not all(written)):
        raise ValueError(f'expected whole segments such as "/v1", found {shown(value)}')
    return "".join(f"/{part}" for part in written)


def _canonical(segment: str) -> str | None:
    """Return a literal segment as it stands in a canonical path, or None if no canonical path can hold it."""
    if segment in {"", ".", ".."} or "*" in segment or _NEVER.search(segment):
        return None
    octets = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), segment.encode())
    written = "".join(chr(octet) if octet in _LITERAL else f"%{octet:02X}" for octet in octets)
    return None if "*" in written or written in {".", ".."} else written


def parse_tenant_pattern(value: object) -> str:
    """Parse the id of a tenant, in which `*` stands for any characters."""
    return parse_own_id(value)


def _distinct(parse: Callable[[object], str], value: object, example: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(
            f"expected an array such as {example}, found {shown(value) if value != [] else 'an empty one'}"
        )
    found = tuple(map(parse, value))
    if len(set(found)) < len(found):
        raise ValueError(f"expected an array such as {example} without repetitions, found some")
    return found


def parse_methods(value: object) -> tuple[str, ...]:
    """Parse a list of methods."""
    return _distinct(parse_method, value, '["GET", "POST"]')


def parse_classes(value: object) -> tuple[str, ...]:
    """Parse a list of classes."""
    return _distinct(_parse_class, value, '["interactive", "batch"]')


def parse_characteristics(value: object) -> tuple[str, ...]:
    """Parse what buckets are kept by; an empty list would be one bucket for all, drained by whoever asks most."""
    return _distinct(_parse_characteristic, value, '["tenant", "route"]')
