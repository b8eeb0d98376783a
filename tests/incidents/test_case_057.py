"""Case 57: a relayed refusal keeps status, Retry-After and body, is told from ours, and charges no refusal of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin
from tests.wire.script import Answer

__all__: list[str] = []

LIMITED = (("Retry-After", "30"), ("RateLimit", '"day";r=0;t=30'), ("RateLimit-Policy", '"day";q=100;w=86400'))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(429, fields=LIMITED, body=b'{"error":"theirs"}'), "served"),
        (Answer(429, body=b""), "served"),
        (Answer(503, fields=(("Retry-After", "30"), ("Evenhand-Refused", "share")), body=b"down"), "upstream_error"),
    ],
)
async def test_refusal_of_the_upstream_is_its_own(tmp_path: Path, up: Origin, answer: Answer, outcome: str) -> None:
    """Status, fields and body pass unchanged; no field, figure or refusal of ours is added."""
    up.on("/", answer)
    with running(tmp_path, up, {"tenants": tenants("a")}) as gateway:
        async with balanced(gateway, up) as books:
            relayed = await call(gateway.address, request(token=token("a")))
            books.sent("a")
        row = gateway.row("a")
        refusals = gateway.metrics().sum("evenhand_refusals_total")
    assert (relayed.status, relayed.body, relayed.complete) == (answer.status, answer.body, True)
    for name in ("Retry-After", "RateLimit", "RateLimit-Policy"):
        assert relayed.all(name) == [value for given, value in answer.fields if given == name]
    assert relayed.all("evenhand-refused") == []
    assert relayed.header("content-type") is None
    assert row is not None
    assert (row[outcome], row["refused"], row["throttled_fraction"]) == (1, {}, 0)
    assert refusals == 0


async def test_our_refusal_is_marked(tmp_path: Path, up: Origin) -> None:
    """Ours names the limit in a field that no upstream can set."""
    with running(tmp_path, up, {"tenants": tenants("a", quota="0/s")}) as gateway:
        async with balanced(gateway, up) as books:
            ours = await call(gateway.address, request(token=token("a")))
            books.sent("a")
    assert (ours.status, ours.header("evenhand-refused")) == (429, "key")
