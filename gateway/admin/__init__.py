"""The admin listener: health, metrics, fairness, limits.

A Starlette app, served on a loop and a thread of its own: a scrape reads snapshots and never stands between a caller
and a decision. Reading order: this file, `access.py` and `guesses.py` (who may come in), `api.py` and `paging.py`,
`limits.py`, `health.py`, `jobs.py` and `acts.py` (what changes something), `pages.py`, `answers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from gateway.admin.access import LOGIN, Access, Keys
from gateway.admin.answers import on_exception, on_http_exception
from gateway.admin.api import Api
from gateway.admin.guesses import Guesses
from gateway.admin.health import Health
from gateway.admin.jobs import job_routes
from gateway.admin.limits import key_quotas
from gateway.admin.pages import Pages
from gateway.admin.stored import Stored
from gateway.clock import Clock
from gateway.config import Settings
from gateway.history.keeper import History
from gateway.identity.jobs import JobRegistry
from gateway.telemetry import Telemetry
from policies.policy import PolicySet

__all__ = ["Health", "build_admin"]


def build_admin(
    settings: Settings,
    policies: Callable[[], PolicySet],
    telemetry: Telemetry,
    health: Health,
    clock: Clock,
    jobs: JobRegistry | None = None,
    more: Sequence[Route] = (),
    history: History | None = None,
) -> Starlette:
    """Return the app of the admin listener. `policies` returns those in force now.

    `jobs` is the registry that `/api/jobs` writes to; without one there is no such path. `more`
    are routes that come before all others: the dashboard at `/`, acts.

    `history` answers for stored series.

    Sets the gauge of key quotas, which nobody else knows.
    """
    keys = Keys(settings.server.admin_token.get_secret_value(), clock)
    api = Api(telemetry, health, policies, clock, None if history is None else Stored(history, clock))
    guesses = Guesses(keys.is_token, clock, None if telemetry.log is None else telemetry.log.event)
    pages = Pages(telemetry, health, keys, guesses, clock)
    telemetry.gauges.key_quota = lambda shown: key_quotas(policies(), clock.now(), shown)

    # Endpoints that are no coroutines run in a thread of their own, so that a long scrape never delays a probe.
    app = Starlette(
        routes=[
            *more,
            Route("/livez", api.live),
            Route("/readyz", api.ready),
            Route("/metrics", api.metrics),
            Route("/", pages.index),
            Route("/plain", pages.index),
            Route(LOGIN, pages.login),
            Route(LOGIN, pages.enter, methods=["POST"]),
            Route("/api/fairness", api.fairness),
            Route("/api/fleet", api.fleet),
            Route("/api/limits", api.limits),
            Route("/api/tenants/{id:path}", api.tenant),
            *([] if jobs is None else job_routes(jobs)),
        ],
        middleware=[Middleware(Access, keys=keys, guesses=guesses, address=settings.server.admin)],
        exception_handlers={HTTPException: on_http_exception, Exception: on_exception},
    )
    app.router.redirect_slashes = False
    return app
