"""The connections of an upstream are shared: no tenant takes them all, however slow its requests are."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.wire.caller import Caller, call, request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import serving
from tests.wire.script import HANG
from tests.wire.waiting import until

__all__: list[str] = []

HOGS = 600
SEATS = 512


async def test_trickled_bodies_of_one_tenant_leave_seats_to_another(tmp_path: Path) -> None:
    """600 POSTs within the hog's rate hold what they may, and 20 GETs of another tenant are all served meanwhile.

    What the hog waits for in vain is told as its own doing.
    """
    config = {
        "upstream": {"connect_timeout": "3s"},
        "backstop": {"quota": "100000/s"},
        "tenants": tenants("hog", "light", quota="10000/s"),
    }
    slow = request("POST", "/slow", token=token("hog"), fields=[("Content-Length", "100000")]) + b"x"
    with serving() as up, running(tmp_path, up, config) as gateway:
        up.on("/slow", HANG)
        async with balanced(gateway, up) as books:
            hogs = [await Caller.connect(gateway.address) for _ in range(HOGS)]
            await asyncio.gather(*(each.send(slow) for each in hogs))
            held = SEATS - SEATS // 16
            await until(lambda: len(up.seen) >= held, "the hog holds what it may")
            for _ in range(20):
                assert (await call(gateway.address, request(token=token("light")))).status == 200
            await until(
                lambda: gateway.metrics().sum("evenhand_refusals_total", tenant="hog") == HOGS - held,
                "the rest is told",
            )
            assert sum(seen.target == b"/slow" for seen in up.seen) == held
            rows = {row["tenant"]: row for row in gateway.fairness("1m")["tenants"]}
            assert (rows["light"]["in_profile_success"], rows["light"]["within_share_refused"]) == (1.0, 0)
            assert (rows["hog"]["share_over"], rows["hog"]["within_share_refused"]) == (True, 0)
            for each in hogs:
                each.reset()
            books.sent("hog", HOGS)
            books.sent("light", 20)
