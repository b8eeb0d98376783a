"""The read side of the admin API: health, metrics, fairness, limits, one tenant.

Rules
1. Figures come from telemetry as they are; this module only writes them. They are those of the fleet, `scope` says
   whether they can be, and `?scope=self` asks for those of this instance.
2. Stored series (`from`, `to`) come from the history (`stored.py`); without one they are 503, never other figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.admin.access import KNOWN
from gateway.admin.answers import json_answer, json_list
from gateway.admin.health import Health
from gateway.admin.limits import credential_rows, key_rows, policy_rows, quota_members, tenant_row
from gateway.admin.paging import page
from gateway.admin.stored import Stored
from gateway.clock import Clock
from gateway.telemetry import Telemetry
from gateway.telemetry.figures import Figures
from gateway.telemetry.recorder import SCOPES
from gateway.telemetry.windows import WINDOWS
from policies.policy import PolicySet

__all__ = ["Api"]


class Api:
    """Endpoints over what telemetry knows and what `policies` returns now."""

    def __init__(
        self,
        telemetry: Telemetry,
        health: Health,
        policies: Callable[[], PolicySet],
        clock: Clock,
        stored: Stored | None = None,
    ) -> None:
        self._stored = stored
        self._telemetry = telemetry
        self._health = health
        self._policies = policies
        self._clock = clock

    async def live(self, request: Request) -> Response:
        """`GET /livez`: 200, or 503 if this process should be restarted."""
        return _health(self._health.live())

    async def ready(self, request: Request) -> Response:
        """`GET /readyz`: 200, or 503 if new requests should go elsewhere; why, to those only who may know."""
        return _health(self._health.ready() if request.scope[KNOWN] else self._health.brief())

    def metrics(self, request: Request) -> Response:
        """`GET /metrics`, in the form that Accept asks for."""
        body, media_type = self._telemetry.metrics.render(request.headers.get("accept", ""))
        return Response(body, 200, {"cache-control": "no-store", "content-type": media_type})

    def fairness(self, request: Request) -> Response:
        """`GET /api/fairness?window=&sort=&limit=&cursor=&scope=`, or `?from=&to=`."""
        query = request.query_params
        if Stored.asked(request):
            stored, found = self._history().fairness(request)
            return json_list(stored, "tenants", (row.as_row() for row in found))
        window = query.get("window", "5m")
        if window not in WINDOWS:
            raise HTTPException(400, f"window is one of {', '.join(WINDOWS)}")
        tenants, scope = self._telemetry.figures(scope_of(query))
        report = tenants.report(window, self._clock.now())
        rows, cursor = page(report.tenants, query)
        contended = self._telemetry.gauges.backstop_contended
        members: dict[str, object] = {
            "window": window,
            **({"scope": scope} if scope else {}),
            "aggregate": report.aggregate.as_members(),
            "worst": report.worst_members(),
            "contended": bool(contended and contended()),
        }
        if cursor is not None:
            members["cursor"] = cursor
        return json_list(members, "tenants", (row.as_row() for row in rows))

    def fleet(self, request: Request) -> Response:
        """`GET /api/fleet`: the instances on this store that live, and how each of them stands."""
        return json_answer({"scope": self._telemetry.scope(), "instances": self._telemetry.instances()})

    def limits(self, request: Request) -> Response:
        """`GET /api/limits`."""
        policies, now = self._policies(), self._clock.now()
        members = {
            "mode": policies.mode.value,
            "backstop": quota_members(policies.backstop),
            "policies": list(policy_rows(policies, now)),
            "tenants": [tenant_row(policies, tenant, now) for tenant in policies.tenants.values()],
        }
        return json_list(members, "keys", key_rows(policies, now))

    def tenant(self, request: Request) -> Response:
        """`GET /api/tenants/{id}`; 404 for one that is neither listed nor counted."""
        name = request.path_params["id"]
        history = self._history().tenant(request, name) if Stored.asked(request) else None
        policies = self._policies()
        listed = policies.tenants.get(name)
        tenants, scope = self._telemetry.figures(scope_of(request.query_params))
        windows = tenants.tenant(name, self._clock.now())
        if listed is None and history is None and not any(row.offered or row.rejected for row in windows.values()):
            raise HTTPException(404)
        return json_answer(
            {
                "tenant": name,
                **({"scope": scope} if scope else {}),
                "listed": listed is not None,
                "limits": None if listed is None else tenant_row(policies, listed, self._clock.now()),
                "credentials": [] if listed is None else list(credential_rows(policies, listed, self._clock.now())),
                "windows": {window: _detail(row) for window, row in windows.items()},
                "history": history,
            }
        )

    def _history(self) -> Stored:
        if self._stored is None:
            raise HTTPException(503, "This gateway keeps no history, so there are no stored series.")
        return self._stored


def scope_of(query: Mapping[str, str]) -> str:
    """Return whose figures a query asks for: the fleet's, unless it says otherwise. Raises HTTPException (400)."""
    scope = query.get("scope", SCOPES[0])
    if scope not in SCOPES:
        raise HTTPException(400, f"scope is one of {', '.join(SCOPES)}")
    return scope


def _health(members: dict[str, object]) -> Response:
    return json_answer(members, 200 if members["status"] == "ok" else 503)


def _detail(row: Figures) -> dict[str, object]:
    """Return what is shown of one tenant: its row, and what the row leaves out."""
    return {name: value for name, value in row.as_row().items() if name != "tenant"} | {
        "rejected": row.rejected,
        "shadow": row.shadow,
    }
