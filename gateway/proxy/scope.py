"""The request head that an ASGI scope holds.

A server that percent-decodes paths and keeps no raw one is believed: what it decoded is encoded again.
"""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

from starlette.types import Scope

from gateway.proxy.address import UNIX, UNKNOWN
from gateway.proxy.parse import Head

__all__ = ["head_of"]


def head_of(asked: Scope) -> Head:
    """Return the request head of a scope, which is a dict by ASGI."""
    scope = cast("dict[str, Any]", asked)
    path = scope.get("raw_path") or quote(scope["path"], safe="/!$&'()*+,;=:@%").encode("ascii")
    query = scope.get("query_string")
    return Head(
        scope.get("method", "GET").encode("ascii"),
        path + b"?" + query if query else path,
        list(scope["headers"]),
        _peer(scope),
        "https" if scope.get("scheme") in {"https", "wss"} else "http",
        scope.get("http_version", "1.1"),
    )


def _peer(scope: dict[str, Any]) -> str:
    """Return the address of the socket's other end. A peer that is gone already is nobody, and not a trusted `unix`."""
    client, server = scope.get("client"), scope.get("server")
    if client and client[0]:
        return str(client[0])
    return UNIX if server is None or server[1] is None else UNKNOWN
