"""`/api/pause`, `/api/exemptions` and `/api/posture`: an operator's acts, with an end and an audit line.

Rules
1. `POST` answers 201 once the act is kept; it decides within one tick of this process. `DELETE` ends it early.
2. Everything wrong with a request is told at once: 400, one sentence a fault. A store that cannot keep the act is 503,
   and then there is none.
3. Each act that is made or ended is one audit line, in the decision log (event `act`) and on stderr. It holds what was
   asked and from which address; no secret has a place in an act.
4. Where limits are kept in this process no posture ever decides, and setting one is 409: nobody shall believe it.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.answers import json_answer, problem_answer
from gateway.clock import Clock
from gateway.config.acts import ActKind
from gateway.errors import ConfigError
from gateway.stores.acts import Act, ActError, Acts
from gateway.telemetry import Telemetry
from policies.cost import UNMATCHED
from policies.policy import PolicySet
from policies.posture import chosen
from policies.units import SECOND, Micros

__all__ = ["MAX_BODY", "act_members", "act_routes"]

MAX_BODY = 8192
_NEVER_LOST = "[store] url is memory:, which is never lost, so no posture ever decides."
_LOG = logging.getLogger("evenhand.audit")


class _Endpoint:
    """One kind of act at one path."""

    def __init__(
        self,
        kind: ActKind,
        name: str,
        acts: Acts,
        policies: Callable[[], PolicySet],
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._kind = kind
        self._name = name
        self._acts = acts
        self._policies = policies
        self._telemetry = telemetry
        self._clock = clock

    def routes(self, path: str) -> list[Route]:
        return [
            Route(path, self.list),
            Route(path, self.make, methods=["POST"]),
            Route(f"{path}/{{id}}", self.end, methods=["DELETE"]),
        ]

    def list(self, request: Request) -> Response:
        """Answer with the acts in force, and for exemptions with those of gateway.toml, which have no id."""
        rows: builtins.list[Mapping[str, object]] = [act_members(act) for act in self._acts.of(self._kind)]
        if self._kind == "exemption":
            rows += configured_exemptions(self._policies(), self._clock.wall())
        return json_answer({self._name: rows})

    async def make(self, request: Request) -> Response:
        """Keep an act: 201 with its members."""
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise HTTPException(413, f"The body is longer than {MAX_BODY} octets.")
        try:
            asked = orjson.loads(body)
            act = await run_in_threadpool(self._acts.add, self._kind, asked, self._policies())
        except orjson.JSONDecodeError:
            return problem_answer(request, 400, "bad-request", "The body is not JSON.")
        except ConfigError as error:
            return problem_answer(request, 400, "bad-request", "; ".join(map(str, error.faults)))
        except ActError as error:
            return problem_answer(request, 503, detail=str(error))
        self._audit("made", act, request)
        return json_answer(act_members(act), 201)

    def end(self, request: Request) -> Response:
        """End an act now: 204; 404 where there is none."""
        try:
            act = self._acts.end(self._kind, request.path_params["id"])
        except ActError as error:
            return problem_answer(request, 503, detail=str(error))
        if act is None:
            raise HTTPException(404)
        self._audit("ended", act, request)
        return Response(status_code=204, headers={"cache-control": "no-store"})

    def _audit(self, what: str, act: Act, request: Request) -> None:
        told = {"act": what, "by": request.client.host if request.client else "unix", **act_members(act)}
        _LOG.warning("%s", orjson.dumps(told).decode())
        if self._telemetry.log is not None:
            self._telemetry.log.event("act", self._clock.now(), told)


class _Postures(_Endpoint):
    """Acts on the posture, beside what holds now; `state` tells of the store, None if it is never lost."""

    state: Callable[[], Mapping[str, object] | None]

    def list(self, request: Request) -> Response:
        """Answer with the posture of each route as it is now, the acts in force, and whether the store answers."""
        policies, now = self._policies(), self._clock.wall()
        return json_answer({
            "posture": chosen(policies, UNMATCHED, now),
            "routes": {route.name: chosen(policies, index, now) for index, route in enumerate(policies.routes)},
            "store": self.state(),
            "acts": [act_members(act) for act in self._acts.of(self._kind)],
        })  # fmt: skip

    async def make(self, request: Request) -> Response:
        """Keep an act: 201 with its members."""
        if self.state() is None:
            return problem_answer(request, 409, detail=_NEVER_LOST)
        return await super().make(request)


def act_routes(
    acts: Acts,
    policies: Callable[[], PolicySet],
    telemetry: Telemetry,
    clock: Clock,
    state: Callable[[], Mapping[str, object] | None] = lambda: None,
) -> list[Route]:
    """Return the paths of all kinds. `state` tells of a shared store: `up`, `cause`, `lost_seconds`, `decided`."""
    postures = _Postures("posture", "acts", acts, policies, telemetry, clock)
    postures.state = state
    return [
        *postures.routes("/api/posture"),
        *_Endpoint("pause", "pauses", acts, policies, telemetry, clock).routes("/api/pause"),
        *_Endpoint("exemption", "exemptions", acts, policies, telemetry, clock).routes("/api/exemptions"),
    ]


def act_members(act: Act) -> dict[str, object]:
    """Return an act as the API shows it."""
    return {
        "id": act.id,
        "kind": act.kind,
        **act.members,
        "made": rfc3339(act.made_us),
        "expires": rfc3339(act.expires_us),
    }


def configured_exemptions(policies: PolicySet, wall: Micros) -> list[Mapping[str, object]]:
    """Return the exemptions of gateway.toml that are in force."""
    return [
        {
            "id": None,
            "kind": "exemption",
            "name": one.name,
            "match": {"tenant": one.match.tenant, "credential": one.match.credential},
            "multiplier": one.multiplier,
            "quota": None if one.quota is None else f"{one.quota.rate} burst {one.quota.burst:g}",
            "reason": one.reason,
            "owner": one.owner,
            "expires": rfc3339(one.expires_us),
        }
        for one in policies.exemptions
        if not one.act and one.expires_us > wall
    ]


def rfc3339(instant: Micros) -> str:
    """Write an instant to the second."""
    return datetime.fromtimestamp(instant // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
