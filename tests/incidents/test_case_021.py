"""Case 21: credential checks are constant work; failures are limited per source, and tell nothing apart."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

from tests.wire.caller import call, request
from tests.wire.gateway import running, tenant, token
from tests.wire.ledger import balanced
from tests.wire.load import offer
from tests.wire.origin import Origin
from tests.wire.tokens import mistyped, pat

__all__: list[str] = []


async def test_every_failure_has_one_body(tmp_path: Path, up: Origin) -> None:
    """Unknown, mistyped, expired and malformed tokens are told apart by nobody."""
    past = datetime(2020, 1, 1, tzinfo=UTC)
    with running(tmp_path, up, {"tenants": [tenant("a"), tenant("gone", expires=past)]}) as gateway:
        async with balanced(gateway, up) as books:
            bodies = set()
            for bad in (
                pat("nobody").token,
                mistyped(token("a")),
                token("gone"),
                "evh_pat_",
                pat("job", "evh_job_").token,
            ):
                answer = await call(gateway.address, request(token=bad))
                assert answer.status == 401
                bodies.add(json.dumps({key: value for key, value in answer.json().items() if key != "instance"}))
                books.rejected()
            assert len(bodies) == 1, bodies
    assert up.seen == []


async def test_a_flood_of_unknown_tokens_is_bounded_and_harms_nobody(tmp_path: Path, up: Origin) -> None:
    """200 a second from one address: after the address's own quota they are 429, and A beside them is unharmed."""
    with running(tmp_path, up, {"tenants": [tenant("a")], "auth": {"rejected_quota": "60/min burst 60"}}) as gateway:
        async with balanced(gateway, up) as books:
            flood, mine = await asyncio.gather(
                offer(gateway.address, lambda n: request(token=pat(f"unknown {n}").token), rate=200, seconds=3),
                offer(gateway.address, request(token=token("a")), rate=8, seconds=3),
            )
            assert mine.statuses == {200: 24}
            books.sent("a", 24)
            assert set(flood.statuses) == {401, 429}
            assert 60 <= flood.statuses[401] <= 66
            assert set(flood.limits()) == {"", "key"}
            books.rejected(flood.statuses[401])
            books.sent("rejected", flood.statuses[429])
