"""Names of fields that callers send often, as they write them, and the lower-case name that each stands for.

A name that is taken from here is written anew and hashed once for all requests, not for each.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BEARING", "USUAL"]

#: Fields that bear upon what follows a head: how long its body is, and what becomes of the connection.
BEARING: Final = frozenset({b"connection", b"content-length", b"proxy-connection", b"transfer-encoding", b"upgrade"})

_OFTEN: Final = (
    b"accept", b"accept-encoding", b"accept-language", b"authorization", b"cache-control", b"content-type", b"cookie",
    b"evenhand-class", b"forwarded", b"host", b"idempotency-key", b"if-match", b"if-modified-since", b"if-none-match",
    b"origin", b"pragma", b"priority", b"range", b"referer", b"sec-ch-ua", b"sec-ch-ua-mobile", b"sec-ch-ua-platform",
    b"sec-fetch-dest", b"sec-fetch-mode", b"sec-fetch-site", b"traceparent", b"tracestate", b"user-agent", b"via",
    b"x-api-key", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-request-id",
)  # fmt: skip

#: As they are written in lower case and in title case; none of them is BEARING.
USUAL: Final[dict[bytes, bytes]] = {spelling: name for name in _OFTEN for spelling in (name, name.title())}
