"""Case 125: worst-tenant success stands beside the total, names the tenant, and equals the upstream's own record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wire.caller import request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import offer
from tests.wire.origin import Origin
from tests.wire.script import Answer
from tests.wire.waiting import SLACK, until

__all__: list[str] = []

NAMES = [f"t{number:02}" for number in range(50)]


def worst(gateway: Gateway) -> tuple[str, float] | None:
    """Return the worst tenant of the last minute and its in-profile success."""
    row = gateway.fairness("1m")["worst"]
    return None if row is None else (row["tenant"], round(row["in_profile_success"], 9))


@pytest.mark.soak
async def test_the_average_does_not_hide_the_victim(tmp_path: Path, up: Origin, soak: bool) -> None:
    """49 tenants at 100 % and one at 30 % of 20 requests: the worst is 0.30 and named, the total the weighted mean."""
    up.on("/ok", Answer())
    up.on("/bad", Answer(500))
    config = {"backstop": {"quota": "10000/s"}, "tenants": tenants(*NAMES, quota="100/s burst 100")}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            for name in NAMES:
                await send(gateway, name, good=6 if name == "t17" else 20)
                books.sent(name, 20)
            books.relayed_500 = 14
            await until(lambda: worst(gateway) == ("t17", 0.3), "the victim is named")
            total = gateway.fairness("1m")["aggregate"]
            assert total["success"] == pytest.approx((49 * 20 + 6) / (50 * 20))
            assert total["success_by_tenant"] == pytest.approx((49 + 0.3) / 50)
            await send(gateway, "t42", good=2)
            books.sent("t42", 20)
            books.relayed_500 += 18
            served = sum(seen.target.startswith(b"/ok") for seen in up.seen)
            await until(
                lambda: gateway.fairness("1m")["aggregate"]["success"] == pytest.approx(served / len(up.seen)),
                "the total equals the upstream's record",
            )
            assert worst(gateway) == ("t17", 0.3)
            assert gateway.metrics().value("evenhand_worst_tenant_success_ratio", window="1m") == pytest.approx(0.3)
            if soak:
                await until(lambda: worst(gateway) is None, "one window later nothing is left of it", 75 + SLACK)


async def send(gateway: Gateway, name: str, good: int) -> None:
    """Send 20 requests of `name`, the first `good` of which the upstream serves."""

    def octets(number: int) -> bytes:
        return request(target="/ok" if number < good else "/bad", token=token(name))

    tally = await offer(gateway.address, octets, rate=1000, seconds=0.02, connections=1)
    assert tally.admitted == good
