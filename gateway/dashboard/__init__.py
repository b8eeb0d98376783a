"""The dashboard: the screen on which a tenant's bad day cannot hide behind a good average.

No build step and nothing from elsewhere: `index.html`, its modules and its style are served as they lie here, under a
policy that lets the browser load and run nothing else. Reading order: this file, `view.py` (what the page shows),
`recent.py`, `band.py`, `stream.py`, `assets.py`; then `index.html`, `app.js` and the modules that it names.

Rules
1. Everything runs on the admin listener's loop and threads, and reads what telemetry, shares and policies hold already.
2. Acts go through the admin API and its access rules; this package changes nothing.
3. Ids reach the browser as JSON and the page as text, never as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.clock import Clock
from gateway.dashboard.assets import asset_routes
from gateway.dashboard.band import Band
from gateway.dashboard.past import SPANS, Past
from gateway.dashboard.peaks import Peaks
from gateway.dashboard.recent import EVERY, Recent
from gateway.dashboard.sparks import MOST, Sparks
from gateway.dashboard.stream import Stream
from gateway.dashboard.view import Shown, View
from gateway.errors import GatewayError
from gateway.history.keeper import History
from gateway.telemetry import Telemetry
from policies.charge import NEVER
from policies.policy import PolicySet
from policies.units import SECOND, Micros

__all__ = ["Dashboard"]

_NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_HOUR: Micros = 3600 * SECOND


class Dashboard:
    """The routes, and what they are fed from. `ready` is what `/readyz` says, `act_ids` acts by what they made.

    `offers` says what else can be done on the page: log out (`token`), set the posture (`postures`).
    """

    def __init__(
        self,
        telemetry: Telemetry,
        policies: Callable[[], PolicySet],
        ready: Callable[[], dict[str, Any]],
        act_ids: Callable[[], dict[str, str]],
        shares: Shown | None,
        clock: Clock,
        *,
        history: History | None = None,
        offers: Collection[str] = (),
    ) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._policies = policies
        self._recent = Recent(telemetry.shown.codebook)
        self._view = View(telemetry, self._recent, Band(ready, policies, act_ids, clock), policies, shares, clock)
        self._stream = Stream(self._view)
        self._sampled: Micros = 0
        self._offers = offers
        self._past = Past(history, clock)
        self._peaks = Peaks(history, clock)
        self._sparks = Sparks(history, clock)
        telemetry.shown.followers.append(self._recent.add)
        telemetry.each_second.append(self._sample)

    def routes(self) -> list[Route]:
        """Return the page, its assets, the stream, and what the page asks for beside it."""
        return [
            *asset_routes(self._offers),
            Route("/api/stream", self._stream.open),
            Route("/dashboard/head", self.head),
            Route("/dashboard/sparks", self.sparks),
            Route("/dashboard/tenants/{id:path}", self.tenant),
            Route("/dashboard/peaks/{id:path}", self.peaks),
        ]

    def show_shares(self, shares: Shown) -> None:
        """Show shares that somebody else knows."""
        self._view.shares = shares

    def stop(self) -> None:
        """End what pages listen to; from any thread."""
        self._stream.end()

    def head(self, request: Request) -> Response:
        """Answer with aggregate and worst over time: the last hour, or a longer window from what is stored."""
        window = request.query_params.get("window")
        if window is None:
            return _json(self._view.headlines(self._clock.now() - _HOUR))
        if window not in SPANS:
            raise HTTPException(400, f"window is one of {', '.join(SPANS)}")
        try:
            return _json(self._past.headlines(window))
        except GatewayError as error:
            raise HTTPException(503, str(error)) from error

    def tenant(self, request: Request) -> Response:
        """Answer with what only memory holds of one tenant: its last ten minutes and last refusals."""
        name, now = request.path_params["id"], self._clock.now()
        points = [
            {"at": point.slot * 10_000, "offered": point.offered, "served": point.served, "refused": point.refused}
            for point in self._recent.points(name, now)
        ]
        last = [
            {
                "at": one.at_us // 1000,
                "id": one.request_id,
                "credential": one.credential,
                "class": one.cls,
                "limit": one.limit,
                "wait_ms": None if one.wait_us is None or one.wait_us == NEVER else -(-one.wait_us // 1000),
                "never": one.wait_us == NEVER,
                "status": one.status,
            }
            for one in self._telemetry.last_refusals.of(name)
        ]
        return _json({"points": points, "last": last, "explain": self._past.explain(self._policies(), name)})

    def sparks(self, request: Request) -> Response:
        """Answer with the sparklines of `window` for each `tenant`, at most `MOST` of them."""
        window, tenants = request.query_params.get("window", ""), request.query_params.getlist("tenant")
        if window not in SPANS or len(tenants) > MOST:
            raise HTTPException(400, f"window is one of {', '.join(SPANS)}, with at most {MOST} tenants")
        try:
            return _json(self._sparks.of(window, tenants))
        except GatewayError as error:
            raise HTTPException(503, str(error)) from error

    def peaks(self, request: Request) -> Response:
        """Answer with what one of a tenant's keys, or with `credential` empty all together, reached day by day."""
        id, credential = request.path_params["id"], request.query_params.get("credential", "")
        try:
            return _json(self._peaks.of(self._policies(), id, credential))
        except GatewayError as error:
            raise HTTPException(503, str(error)) from error

    def _sample(self, now: Micros) -> None:
        if now - self._sampled >= EVERY:
            self._sampled = now
            self._recent.sample(self._telemetry.shown.glance("1m", now), now)


def _json(members: Mapping[str, object]) -> Response:
    return Response(orjson.dumps(members), 200, _NO_STORE, "application/json")
