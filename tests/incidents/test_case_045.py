"""Case 45: a caller may lower its class, never raise it above what its credential permits."""

from __future__ import annotations

from pathlib import Path

from tests.wire.caller import call, request
from tests.wire.gateway import running, tenant, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin

__all__: list[str] = []

RAISES = [
    [("Evenhand-Class", "interactive")],
    [("EVENHAND-CLASS", "Interactive")],
    [("Evenhand-Class", "batch"), ("evenhand-class", "interactive")],
    [("Evenhand-Class", "batch, interactive")],
]
NOISE = [[("Evenhand_Class", "interactive")], [("X-Priority", "interactive")], [("Evenhand-Class", "batch")]]


async def test_a_batch_credential_stays_batch(tmp_path: Path, up: Origin) -> None:
    """By field in any case, repeated or as a list, by query and by body: batch upstream, each attempt counted."""
    listed = [tenant("a", classes=["batch"], quota="100/s burst 100")]
    with running(tmp_path, up, {"tenants": listed}) as gateway:
        async with balanced(gateway, up) as books:
            for fields in (*RAISES, *NOISE):
                asked = request(
                    "POST", "/?class=interactive", token=token("a"), fields=fields, body=b"class=interactive"
                )
                assert (await call(gateway.address, asked)).status == 200
                books.sent("a")
        metrics = gateway.metrics()
        assert metrics.sum("evenhand_class_raise_attempts_total", tenant="a") == len(RAISES)
        assert metrics.sum("evenhand_requests_total", tenant="a", **{"class": "batch"}) == len(RAISES + NOISE)
        assert metrics.sum("evenhand_requests_total", **{"class": "interactive"}) == 0
    assert [seen.all("evenhand-class") for seen in up.seen] == [["batch"]] * len(RAISES + NOISE)


async def test_a_caller_lowers_its_own_class(tmp_path: Path, up: Origin) -> None:
    """Which is no attempt, and what the upstream is told."""
    with running(tmp_path, up, {"tenants": [tenant("a", classes=["interactive", "batch"])]}) as gateway:
        async with balanced(gateway, up) as books:
            await call(gateway.address, request(token=token("a"), fields=[("Evenhand-Class", "batch")]))
            await call(gateway.address, request(token=token("a")))
            books.sent("a", 2)
        assert gateway.metrics().sum("evenhand_class_raise_attempts_total") == 0
    assert [seen.header("evenhand-class") for seen in up.seen] == ["batch", "interactive"]
