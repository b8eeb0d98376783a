"""Case 71: the percentage is the percentage, for every key and every request, and is changed while it runs."""

from __future__ import annotations

import json
from math import sqrt

from tests.wire.lost import Lost
from tests.wire.waiting import until

__all__: list[str] = []


async def _takes_effect(lost: Lost, posture: str) -> None:
    """Ask until a request was decided by `posture`."""
    tenant, before = lost.fresh(), lost.decided().get(posture, 0.0)
    while lost.decided().get(posture, 0.0) == before:
        await lost.ask("deny:30", 1, tenant)


async def test_the_share_that_is_refused(lost: Lost) -> None:
    """Set by an act on the route for 0, 30 and 100 per cent; without one the route's own holds again."""
    lost.proxy.down()
    await lost.lost()
    made: list[str] = []
    for per_cent, low, high in ((0, 0, 0), (100, 1, 1), (60, 0.6, 0.6), (None, 0.3, 0.3)):
        if per_cent is None:
            for id in made:
                assert lost.gateway.ask(f"/api/posture/{id}", "DELETE").status == 204
        else:
            asked = {"posture": f"deny:{per_cent}", "route": "deny:30", "for": "5m", "owner": "sre"}
            answer = lost.gateway.ask("/api/posture", "POST", json.dumps(asked).encode())
            assert answer.status == 201, answer.body
            made.append(answer.json()["id"])
        expected = "deny:30" if per_cent is None else f"deny:{per_cent}"
        await _takes_effect(lost, expected)
        per_key = [[answer.status for answer in await lost.ask("deny:30", 60)].count(503) for _ in range(2)]
        for refused, asks in (*((one, 60) for one in per_key), (sum(per_key), 120)):
            width = 4 * sqrt(asks * low * (1 - low))
            assert low * asks - width <= refused <= high * asks + width, (expected, per_key)
    await until(lambda: not lost.gateway.ask("/api/posture").json()["acts"], "the acts are over")
