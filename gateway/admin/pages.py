"""Two small pages: the login, and the index with the aggregate beside the worst.

Rules
1. No script and nothing from elsewhere (`answers.py` sends the policy that holds the browser to it).
2. Everything that is not ours is escaped: a tenant's id is whatever its token said.
3. The token arrives in a form body of bounded size and leaves nowhere: not in a URL, a log or the page.
"""

from __future__ import annotations

import html
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gateway.admin.access import COOKIE, LOGIN, SESSION, Keys, address_of, held
from gateway.admin.answers import html_answer
from gateway.admin.guesses import Guesses
from gateway.admin.health import Health
from gateway.clock import Clock
from gateway.telemetry import Telemetry
from gateway.telemetry.figures import Report
from gateway.telemetry.windows import WINDOWS
from policies.units import SECOND

__all__ = ["Pages"]

_MAX_FORM = 8192
_LINKS = ("api/fairness", "api/limits", "metrics", "readyz", "livez")


class Pages:
    """The pages for people."""

    def __init__(self, telemetry: Telemetry, health: Health, keys: Keys, guesses: Guesses, clock: Clock) -> None:
        self._telemetry = telemetry
        self._health = health
        self._keys = keys
        self._guesses = guesses
        self._clock = clock

    def index(self, request: Request) -> Response:
        """`GET /`: all windows, aggregate beside worst, and what an operator should know."""
        now = self._clock.now()
        rows = "".join(_row(self._telemetry.shown.report(window, now)) for window in WINDOWS)
        warnings = "".join(f"<li>{html.escape(warning)}</li>" for warning in self._health.warnings())
        links = " · ".join(f'<a href="/{link}">/{link}</a>' for link in _LINKS)
        leave = f'<form method="post" action="{LOGIN}"><button name="leave" value="1">Log out</button></form>'
        return html_answer(
            "Evenhand",
            f"<h1>Evenhand</h1>\n<table><tr><th>Window<th>Offered<th>Success<th>By tenant<th>Worst tenant"
            f"<th>Its in-profile success<th>Refused within share</tr>\n{rows}</table>\n"
            f"<ul>{warnings}</ul>\n<p>{links}</p>\n{leave if self._keys.needed else ''}",
        )

    def login(self, request: Request) -> Response:
        """`GET /login`."""
        if not self._keys.needed:
            raise HTTPException(404)
        return _form()

    async def enter(self, request: Request) -> Response:
        """`POST /login`: the token for a cookie; `leave` takes the cookie away."""
        if not self._keys.needed:
            raise HTTPException(404)
        fields = parse_qs(await _body(request))
        leaving = "leave" in fields
        if not leaving:
            address = address_of(request)
            if wait := self._guesses.wait(address):
                return held(request, wait)
            if not self._guesses.fits(fields.get("token", [""])[0], address):
                return _form("That is not the token.", 401)
        answer = RedirectResponse("/", 303, {"cache-control": "no-store"})
        answer.set_cookie(
            COOKIE,
            "" if leaving else self._keys.session(),
            max_age=0 if leaving else SESSION // SECOND,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer


async def _body(request: Request) -> str:
    """Return a form body, which is short."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_FORM:
            raise HTTPException(413)
    return body.decode("utf-8", "replace")


def _form(fault: str = "", status: int = 200) -> Response:
    return html_answer(
        "Evenhand: log in",
        f'<h1>Evenhand</h1>\n<form method="post" action="{LOGIN}">\n'
        '<label>Admin token <input type="password" name="token" autocomplete="current-password" autofocus></label>\n'
        f'<button>Log in</button>\n<p class="bad">{fault}</p>\n</form>\n',
        status,
    )


def _row(report: Report) -> str:
    total, worst = report.aggregate, report.worst
    within = f' class="n bad">{total.within_share_refused}' if total.within_share_refused else ' class="n">0'
    cells = (
        f"<td>{report.window}",
        f'<td class="n">{total.offered}',
        f'<td class="n">{_percent(total.success)}',
        f'<td class="n">{_percent(total.success_by_tenant)}',
        f"<td>{'-' if worst is None else html.escape(worst.tenant)}",
        f'<td class="n">{_percent(None if worst is None else worst.in_profile_success)}',
        f"<td{within}",
    )
    return f"<tr>{''.join(cells)}</tr>\n"


def _percent(share: float | None) -> str:
    """Write a share so that nothing short of all reads as 100 %."""
    if share is None:
        return "-"
    return f"{int(share * 1000) / 10:.1f} %"
