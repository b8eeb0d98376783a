r"""One reading of a request target: the path that routes match on. What is forwarded stays as it came.

The rule. An upstream may decode, merge and resolve a path in ways of its own. So a path is *ambiguous*, and answered
400, where common ways of reading it end in different places; otherwise it has one canonical form:

1. Octets that may stand for themselves in a segment (RFC 3986 `pchar`, without `;`) do; any other is `%XX`, upper case.
2. Parameters (`;...`) are no part of what is matched, since an upstream may strip them: `/admin;x` counts as `/admin`.
3. Plain dot segments are resolved (RFC 3986 section 5.2.4), but may not climb above the root. They are ambiguous beside
   an escape or a parameter, and wherever the gateway rewrites paths (`strip_prefix`, a base path).
4. Ambiguous always: control octets, space, `\`, `#`, an escape of NUL or `\`, a broken escape, an empty segment that
   is not the last, and dot segments or empty segments that appear only once escapes are decoded, be it repeatedly.
5. An encoded slash is kept as `%2F`. It is ambiguous if reading it as a slash would choose another route; that is for
   the caller of `canonical` to ask, with `decoded`.

Case is kept. A query is never looked at, except for octets that no target may hold.

Of a target that has no canonical form a log is told all the same what was asked for (`told`), in the same letters.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

__all__ = ["canonical", "decoded", "known", "origin_form", "split", "stripped", "told"]

# Nothing to do: no escape, parameter or empty segment, no segment that begins with a dot, and a query of what may be.
_PLAIN = re.compile(rb"((?:/[A-Za-z0-9_~!$&'()*+,=:@-][A-Za-z0-9._~!$&'()*+,=:@-]*+)*+/?)(?:\?[^\x00-\x20\x7f#]*+)?")
_FORBIDDEN: Final = re.compile(rb"[\x00-\x20\x7f\\#]|//|%(?:00|5[cC]|(?![0-9A-Fa-f]{2}))")
_FORBIDDEN_OCTETS: Final = re.compile(rb"[\x00-\x20\x7f#]")
_DOT_SEGMENT: Final = re.compile(rb"(?:^|[/\\])\.\.?(?=[;/\\]|$)")
_PARAMETERS: Final = re.compile(rb";[^/]*")
_ESCAPE_OR_OTHER: Final = re.compile(rb"%([0-9A-Fa-f]{2})|[^A-Za-z0-9._~!$&'()*+,=:@/%-]")
#: What ends the part of a target that may be told: a query or a fragment can hold what nobody should keep.
_UNTOLD: Final = re.compile(rb"[?#]")
#: Octets of a target that are told, of however many.
_TOLD: Final = 1024
_LITERAL: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,=:@")

#: Rounds of decoding that are looked through; nothing legitimate is encoded three times.
_ROUNDS: Final = 3


#: Canonical paths of plain targets that came lately, as many as `_MOST` and none longer than `_LONGEST`. None has a
#: query, which may hold what nobody should keep.
_LATELY: Final[dict[bytes, str]] = {}
_MOST: Final = 1024
_LONGEST: Final = 128


def known(target: bytes) -> str | None:
    """Return the canonical path of a target in origin-form that came lately, for a tenth of what reading it costs."""
    return _LATELY.get(target)


def origin_form(target: bytes) -> tuple[bytes, bytes | None] | None:
    """Return the origin-form of a target and the authority of an absolute one (RFC 9112 section 3.2), or None.

    `*` stands for itself. An authority with a user is refused, as is any scheme but http and https.
    """
    if target[:1] == b"/" or target == b"*":
        return target, None
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        return None
    end = next((at for at, octet in enumerate(rest) if octet in b"/?#"), len(rest))
    authority, target = rest[:end], rest[end:]
    if not authority or b"@" in authority:
        return None
    return (target if target[:1] == b"/" else b"/" + target), authority


def split(target: bytes) -> tuple[bytes, bytes]:
    """Split an origin-form target into its path and the rest, `?` included."""
    path, mark, query = target.partition(b"?")
    return path, mark + query


def canonical(target: bytes, *, rewritten: bool) -> str | None:
    """Return the canonical path of an origin-form target, or None if it is ambiguous.

    `rewritten` says that the gateway changes the beginning of some paths, so dot segments are ambiguous.
    """
    plain = _PLAIN.fullmatch(target)
    if plain:
        canon = plain[1].decode("ascii")
        if len(target) <= _LONGEST and len(canon) == len(target):
            if len(_LATELY) >= _MOST:
                _LATELY.clear()
            _LATELY[target] = canon
        return canon
    path, query = split(target)
    if _FORBIDDEN_OCTETS.search(query):
        return None
    if _FORBIDDEN.search(path):
        return None
    return _canonical(path, rewritten=rewritten)


def decoded(path: str) -> str:
    """Return a canonical path with its encoded slashes read as slashes."""
    return path.replace("%2F", "/")


def told(target: bytes) -> str:
    """Return what a log may say of a target that could not be read: nothing in it ends a line or is a secret.

    It is no canonical path, since there is none, but written like one. Empty where not even the path is certain.
    """
    origin = origin_form(target)
    if origin is None:
        return ""
    path = _PARAMETERS.sub(b"", _UNTOLD.split(origin[0][:_TOLD], maxsplit=1)[0])
    return _ESCAPE_OR_OTHER.sub(_written, path).decode("ascii")


def stripped(target: bytes, segments: int) -> bytes:
    """Return an origin-form target without its first `segments` segments; what is left of the path is at least `/`.

    Counting works where comparing would not: the prefix may be escaped in other ways, but a path that is not ambiguous
    has the same number of segments however it is read.
    """
    path, query = split(target)
    at = 0
    for _ in range(segments):
        at = path.find(b"/", at + 1)
        if at < 0:
            return b"/" + query
    return path[at:] + query


def _canonical(path: bytes, *, rewritten: bool) -> str | None:
    read = _decoded_through(path)
    if read is None or b"\0" in read or b"//" in read:
        return None
    if _DOT_SEGMENT.search(read):
        if rewritten or b"%" in path or b";" in path:
            return None
        resolved = _resolved(path)
        if resolved is None:
            return None
        path = resolved
    path = _PARAMETERS.sub(b"", path)
    if b"//" in path:
        return None
    return _ESCAPE_OR_OTHER.sub(_written, path).decode("ascii")


def _decoded_through(path: bytes) -> bytes | None:
    """Decode until nothing changes, as a chain of servers might; None if that takes too long."""
    for _ in range(_ROUNDS):
        if b"%" not in path:
            return path
        before, path = path, unquote_to_bytes(path)
        if path == before:
            return path
    return path if path == unquote_to_bytes(path) else None


def _resolved(path: bytes) -> bytes | None:
    """Remove dot segments; None if they climb above the root."""
    segments: list[bytes] = []
    parts = path.split(b"/")[1:]
    for part in parts:
        if part == b"..":
            if not segments:
                return None
            segments.pop()
        elif part != b".":
            segments.append(part)
    if parts[-1] in (b".", b"..") and segments[-1:] != [b""]:
        segments.append(b"")
    return b"/" + b"/".join(segments)


def _written(found: re.Match[bytes]) -> bytes:
    octet = int(found[1], 16) if found[1] else found[0][0]
    return bytes([octet]) if octet in _LITERAL else b"%%%02X" % octet
