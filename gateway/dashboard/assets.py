"""The page and what it loads, read once at the start.

Rules
1. The policy lets the page load scripts, styles and data from here and from nowhere else, run nothing inline,
   be framed by nobody, and turn no text into markup (Trusted Types).
2. What is served are the files of this folder that are listed here, by their own names; the browser asks again whether
   one changed, by its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["FILES", "POLICY", "asset_routes"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
FILES = (
    "app.js", "acts.js", "chart.js", "format.js", "list.js", "overview.js", "tenant.js", "style.css", "parts.css",
    "icon.svg", "vendor/uplot.min.js", "vendor/uplot.min.css",
)  # fmt: skip
_HERE = Path(__file__).parent
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cache-control": "no-cache",
}


class _Asset:
    """One file."""

    def __init__(self, name: str, content: bytes) -> None:
        self._content = content
        digest = hashlib.sha256(content).hexdigest()[:32]
        self._headers = _HEADERS | {"etag": f'"{digest}"', "content-type": _TYPES[Path(name).suffix]}

    async def serve(self, request: Request) -> Response:
        if self._headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=self._headers)
        return Response(self._content, 200, self._headers)


def asset_routes(offers: Collection[str] = ()) -> list[Route]:
    """Return the page at `/` and its files under `/assets/`.

    `offers` may hold `token`, which says that there is a log-out, and `postures`, for a store which can be lost.
    """
    page = (_HERE / "index.html").read_bytes()
    for name in {"token", "postures"}.difference(offers):
        page = page.replace(b'data-%b="yes"' % name.encode(), b'data-%b="no"' % name.encode())
    return [
        Route("/", _Asset("index.html", page).serve),
        *(Route(f"/assets/{name}", _Asset(name, (_HERE / name).read_bytes()).serve) for name in FILES),
    ]
