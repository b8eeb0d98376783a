"""Names of records in a shared store, built nowhere else: `namespace:1:{tag}:kind:part:part`.

Rules
1. Nothing a caller writes becomes part of a name unescaped: all but unreserved characters (RFC 3986 section 2.3) is
   percent-encoded UTF-8, so that neither colon nor brace nor line break can be smuggled in.
2. Two different lists of words never have one name. What is very long stands as its digest, which no escaped word is.
3. The braces hold what Redis Cluster hashes: records of one tag lie in one slot. A tag is never empty, for `{}` would
   have the whole name hashed.
4. The number is the version of what the records hold; a process of another version sees none of them.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote

__all__ = ["SCHEMA", "Names"]

#: Version of what the records hold.
SCHEMA = 1

#: Octets of an escaped word that is kept as it is. A name is sent with every call that uses it.
_LONGEST = 200


class Names:
    """The names of one namespace. `prefix` is what all of them begin with, as an ACL's key pattern needs it."""

    __slots__ = ("prefix",)

    def __init__(self, namespace: str) -> None:
        self.prefix = f"{_escaped(namespace)}:{SCHEMA}:"

    def key(self, tag: str, kind: str, *parts: str) -> bytes:
        """Return the name of the record of `kind` that `parts` tell from others, beside all those of `tag`."""
        return ":".join((f"{self.prefix}{{{_escaped(tag)}}}", kind, *map(_escaped, parts))).encode("ascii")


def _escaped(word: str) -> str:
    if not word:
        return "%"  # nobody's: in an escaped word two digits follow
    text = quote(word, safe="", errors="surrogatepass")
    return text if len(text) <= _LONGEST else f"%~{hashlib.sha256(text.encode('ascii')).hexdigest()}"
