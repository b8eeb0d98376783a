"""The corpus end to end: for every row the log line, the metrics, the field that went upstream and the bucket agree.

Each row comes from an address of its own. An address that presented something bad has then used up its allowance of bad
attempts and not that of anonymous callers, and the other way round; a caller that proved somebody has used up neither,
and its named bucket has exactly one unit less than before.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

from tests.gateway.identity.corpus import INTROSPECTED, Row, auth, corpus, listed
from tests.wire.caller import Caller, Response, request
from tests.wire.gateway import Gateway, running
from tests.wire.origin import Origin, Seen, serving
from tests.wire.script import Answer

__all__: list[str] = []

_REMAINING = re.compile(r'"of-(?:user|job)";r=(\d+)')
#: A prime, so that RateLimit-Policy cannot reduce it; and so slow a refill that no unit comes back meanwhile.
FULL = 499
#: Lines in full are ten a second for each tenant and reason.
PACE_SECONDS = 0.11


def knows(seen: Seen) -> Answer:
    """Answer as an introspection service does."""

    def body() -> Iterator[bytes]:
        tenant, key = INTROSPECTED.get(parse_qs(seen.body.decode())["token"][0], ("", ""))
        yield json.dumps({"active": bool(tenant), "tenant": tenant, "sub": key}).encode()

    return Answer(body=body, framing="chunked")


def config(service: Origin) -> dict[str, Any]:
    """Return a configuration in which every bucket can be seen."""
    quota = f"{FULL}/d burst {FULL}"
    own = {"anonymous_quota": "1/d burst 1", "rejected_quota": "1/d burst 1"}
    return {
        "server": {"trusted_proxies": ["127.0.0.0/8"]},
        "backstop": {"quota": "100000/s"},
        "auth": auth(f"{service.address}/introspect") | own,
        "tenants": listed(past=datetime(2020, 1, 1, tzinfo=UTC), quota=quota),
        "policies": [
            {"name": "of-user", "match": {"identity": "user"}, "key": ["tenant", "credential"], "quota": quota},
            {"name": "of-job", "match": {"identity": "job"}, "key": ["tenant", "project"], "quota": quota},
        ],
    }


class Run:
    """One gateway through all rows."""

    def __init__(self, gateway: Gateway, up: Origin) -> None:
        self.gateway, self.up = gateway, up
        self.counted: Counter[tuple[str, str]] = Counter()
        self.spent: Counter[tuple[str, str]] = Counter()
        self.logged: dict[str, Row] = {}
        self.addresses: dict[str, str] = {}
        self._next_refusal = 0.0

    async def ask(self, caller: Caller, address: str, fields: tuple[tuple[str, str], ...]) -> Response:
        """Send a request from behind a proxy."""
        await caller.send(request(fields=[*fields, ("X-Forwarded-For", address)]))
        return await caller.response()

    async def row(self, caller: Caller, number: int, row: Row) -> None:
        """Send one row and look at all that can be seen of it at once."""
        if row.status != 200:
            await asyncio.sleep(self._next_refusal - time.monotonic())
            self._next_refusal = time.monotonic() + PACE_SECONDS
        address = f"10.{number >> 8}.{number & 255}.1"
        arrived = len(self.up.seen)
        answer = await self.ask(caller, address, row.fields)
        assert answer.status == row.status, row.name
        request_id = answer.header("x-request-id") or self.up.seen[-1].header("x-request-id")
        assert request_id is not None
        self.logged[request_id], self.addresses[request_id] = row, address
        self.counted[row.who.tenant, "served" if row.status == 200 else "rejected"] += 1
        assert len(self.up.seen) == arrived + (row.status == 200), row.name
        if row.status == 200:
            self.check_served(row, answer, self.up.seen[-1], address)
        await self.check_address(caller, row, address)

    def check_served(self, row: Row, answer: Response, seen: Seen, address: str) -> None:
        """Compare what went upstream and what is left of the bucket."""
        who = row.who
        told = (seen.header("evenhand-tenant"), seen.header("evenhand-credential"), seen.header("evenhand-class"))
        cls = "batch" if who.kind == "job" else "interactive"
        assert told == (who.tenant, quote(who.credential or address, safe=""), cls), row.name
        left = _REMAINING.search(answer.header("ratelimit") or "")
        if who.kind in {"user", "job"}:
            bucket = (who.tenant, f"{who.kind} {who.credential}")
            self.spent[bucket] += 1
            assert left is not None, row.name
            assert int(left[1]) == FULL - self.spent[bucket], row.name
            for name, _ in row.fields:
                assert seen.header(name) is None, row.name
        else:
            assert left is None, row.name

    async def check_address(self, caller: Caller, row: Row, address: str) -> None:
        """Find out what the address has left: one anonymous request, and one bad attempt."""
        if row.status == 400:
            return  # what cannot be read is answered 400 however often it comes
        first = row.who.kind != "anonymous"
        nobody = await self.ask(caller, address, ())
        assert nobody.status == (200 if first else 429), row.name
        self.counted["anonymous", "served" if first else "refused"] += 1
        if row.who.kind == "rejected":
            again = await self.ask(caller, address, row.fields)
            assert (again.status, again.header("evenhand-refused")) == (429, "key"), row.name
            self.counted["rejected", "refused"] += 1

    async def check_books(self) -> None:
        """Compare the log, line by line, and the metrics."""
        async with asyncio.timeout(10):
            lines: dict[str, dict[str, Any]] = {}
            while not self.logged.keys() <= lines.keys():
                await asyncio.sleep(0.1)
                lines = {line["id"]: line for line in self.gateway.log_lines() if line["event"] == "request"}
        for request_id, row in self.logged.items():
            line, address = lines[request_id], self.addresses[request_id]
            assert (line["identity"], line["tenant"], line["credential"], line["status"], line["address"]) == (
                row.who.kind,
                row.who.tenant,
                row.who.credential or address,
                row.status,
                address,
            ), row.name
        metrics = self.gateway.metrics()
        for tenant in ("alpha", "beta", "unlisted", "anonymous", "rejected"):
            for outcome in ("served", "refused", "rejected", "upstream_error", "aborted"):
                counted = metrics.sum("evenhand_requests_total", tenant=tenant, outcome=outcome)
                assert counted == self.counted[tenant, outcome], (tenant, outcome)
        assert metrics.sum("evenhand_requests_total") == self.counted.total()


def jobs(gateway: Gateway) -> tuple[str, str]:
    """Register two jobs, end one, and return the tokens of both."""
    body = json.dumps({"tenant": "alpha", "project": "alpha/web", "job": "1", "ttl": "1h"}).encode()
    kept, ended = (gateway.ask("/api/jobs", "POST", body).json() for _ in range(2))
    assert gateway.ask(f"/api/jobs/{ended['id']}", "DELETE").status == 204
    return kept["token"], ended["token"]


async def test_all_that_is_said_of_a_request_agrees(tmp_path: Path) -> None:
    """Who is proved is who is charged, logged, counted and told to the upstream, in every row."""
    with serving() as up, serving() as service:
        service.on("/introspect", knows)
        with running(tmp_path, up, config(service)) as gateway:
            kept, ended = jobs(gateway)
            rows = corpus(int(time.time()), kept, ended)
            assert len(rows) >= 300
            run = Run(gateway, up)
            proved = [row for row in rows if row.status == 200]
            others = [row for row in rows if row.status != 200]
            # Between two that are refused there is time for several that are not.
            each = len(proved) // len(others) + 1
            order = [row for n, one in enumerate(others) for row in (one, *proved[n * each : (n + 1) * each])]
            assert sorted(row.name for row in order) == sorted(row.name for row in rows)
            async with await Caller.connect(gateway.address) as caller:
                for number, row in enumerate(order):
                    if caller.closed or caller.transport.is_closing():
                        caller = await Caller.connect(gateway.address)  # noqa: PLW2901 - a 400 may end a connection
                    await run.row(caller, number, row)
            await run.check_books()
