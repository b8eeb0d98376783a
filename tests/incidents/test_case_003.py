"""Case 3: authenticated traffic is never limited by a bucket shared through the source address."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.wire.caller import request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import offer
from tests.wire.origin import Origin
from tests.wire.tokens import pat

__all__: list[str] = []

SECONDS = 3.0


async def test_neighbours_behind_one_address_do_not_matter(tmp_path: Path, up: Origin) -> None:
    """B is served in full, its remaining count untouched, beside A over its quota and a flood of bad tokens."""
    with running(tmp_path, up, {"tenants": tenants("a", "b")}) as gateway:
        async with balanced(gateway, up) as books:
            over, bad, good = await asyncio.gather(
                offer(gateway.address, request(token=token("a")), rate=100, seconds=SECONDS),
                offer(gateway.address, request(token=pat("nobody").token), rate=100, seconds=SECONDS),
                offer(gateway.address, request(token=token("b")), rate=5, seconds=SECONDS),
            )
            books.sent("a", 300)
            books.sent("b", 15)
            books.rejected(bad.statuses[401])
            books.sent("rejected", bad.statuses[429])
    assert good.statuses == {200: 15}
    left = [re.search(r'"key";r=(\d+)', answer.header("ratelimit") or "") for _, answer in good.answers]
    # r is at most q (contract, section 6), and the bucket never held less.
    assert [match and int(match[1]) for match in left] == [10] * 15
    assert over.limits() == {"key": over.statuses[429]}
    assert 20 <= over.admitted <= 21 + 10 * over.elapsed
    assert set(bad.statuses) == {401, 429}
    assert bad.statuses[401] >= 60
