"""Answers of the admin listener: JSON, HTML, and problems (RFC 9457) in the forms of the data plane.

Rules
1. Nothing here is stored by a cache, framed by a page, or read as another type than it says.
2. HTML loads nothing but the style sheet whose digest its policy names; there is no script.
3. A long list is written in pieces, so that a thousand tenants' figures never hold the interpreter for long.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from gateway.proxy.accept import preferred
from gateway.proxy.answer import content
from gateway.proxy.problems import Problem, problem
from gateway.telemetry.breath import breathing

__all__ = ["STYLE", "html_answer", "json_answer", "json_list", "on_exception", "on_http_exception", "problem_answer"]

_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: with that a browser sends the log-in with `Origin: null`, which rule 3 of access.py refuses.
    "referrer-policy": "same-origin",
}

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse}th,td{padding:.25rem .75rem;text-align:left;border-bottom:1px solid #8888}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}.bad{color:#c00;font-weight:600}"
)
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode("ascii")
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: What no caller is answered, only who operates.
_NOT_POSSIBLE = Problem("not-possible", 409, "Not possible here", "This gateway has nothing that could be changed so.")
#: What the router says only by status.
_DETAILS = {404: "", 405: "This path does not take that method.", 413: "The form is longer than is read."}
_NOTHING_LOADS = "default-src 'none'; frame-ancestors 'none'"


def json_answer(members: Mapping[str, object], status: int = 200) -> Response:
    """Answer with one JSON object."""
    body = orjson.dumps(members, option=orjson.OPT_APPEND_NEWLINE)
    return Response(body, status, _HEADERS, "application/json")


def json_list(members: Mapping[str, object], name: str, rows: Iterable[Mapping[str, object]]) -> Response:
    """Answer with one JSON object whose last member, `name`, is a list of any length."""
    head = orjson.dumps({**members, name: []})[:-2]
    body = b",".join(orjson.dumps(row) for row in breathing(iter(rows)))
    return Response(b"%b%b]}\n" % (head, body), 200, _HEADERS, "application/json")


def html_answer(title: str, body: str, status: int = 200) -> Response:
    """Answer with a page; `title` and `body` are HTML, escaped by whoever made them."""
    page = (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{title}</title>\n<style>{STYLE}</style>\n'
        f"{body}</html>\n"
    )
    return Response(page, status, _HEADERS | {"content-security-policy": _POLICY}, "text/html; charset=utf-8")


def problem_answer(
    connection: HTTPConnection, status: int, code: str = "", detail: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with the problem of short name `code`, or that of `status`, in the form its reader prefers."""
    kind = _NOT_POSSIBLE if status == _NOT_POSSIBLE.status else problem(code, status)
    members = {"type": kind.type_uri, "title": kind.title, "status": status, "detail": detail or kind.detail}
    accept = connection.headers.get("accept")
    media_type, body = content(members, preferred(accept.encode("latin-1") if accept else None))
    own = _HEADERS | {"content-security-policy": _NOTHING_LOADS} | dict(headers or {})
    return Response(body, status, own, media_type.decode("ascii"))


def on_http_exception(request: Request, exc: Exception) -> Response:
    """Put what the router raises (404, 405) into the same form."""
    if not isinstance(exc, HTTPException):  # Starlette types all its handlers alike
        raise exc
    detail = _DETAILS.get(exc.status_code, exc.detail)
    return problem_answer(request, exc.status_code, detail=detail, headers=exc.headers)


def on_exception(request: Request, _exc: Exception) -> Response:
    """Answer 500 without a word of what went wrong; the traceback is in the log."""
    return problem_answer(request, 500, detail="The admin listener failed to answer; its log says why.")
