"""The rule that stands at the end of every case: nothing is lost, nothing is counted twice, nothing is left behind.

After a moment of quiet, per tenant and since the ledger was opened:

1. sent = served + refused + rejected + upstream_error + aborted, by the fairness API (exact for every tenant) and, over
   all tenants, by the metrics.
2. The upstream's own record agrees: all that was served arrived there, and nothing that was refused did.
3. In flight is 0, and as many sockets are open as at the start; those to a shared store come when they are needed.
4. No answer was a 500 of the gateway's own, and no traceback was printed.

Of a gateway that has ended only its log, its stderr and the upstream's record are left: `balance_ended` goes by these.
What no upstream of ours records (`up` is None: gateways that call each other) is not compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

from tests.wire.gateway import Gateway

__all__ = ["Arrivals", "Books", "Ledger", "balanced"]

#: The quiet after which everything must have come to rest.
QUIET_SECONDS = 20.0
OUTCOMES = ("served", "refused", "rejected", "upstream_error", "aborted")


class Arrivals(Protocol):
    """An upstream that keeps a record: `Origin`, or a WebSocket server of a case's own."""

    def by_tenant(self) -> Counter[str]:
        """Return how many requests arrived of each tenant."""
        ...

    def forget(self) -> None:
        """Drop the record."""
        ...


@dataclass(frozen=True, slots=True)
class Books:
    """What the gateway has counted: by tenant and outcome (rejected apart), and by outcome in the metrics."""

    tenants: dict[str, Counter[str]]
    metrics: Counter[str]
    in_flight: float

    @classmethod
    def read(cls, gateway: Gateway) -> Books:
        """Read them."""
        rows: dict[str, Counter[str]] = {}
        for row in gateway.fairness("24h")["tenants"]:
            counts = Counter({name: row[name] for name in ("offered", "served", "upstream_error", "aborted")})
            counts["refused"] = sum(row["refused"].values())
            rows[row["tenant"]] = counts
        scrape = gateway.metrics()
        by_outcome = {key: round(value) for key, value in scrape.by("outcome", "evenhand_requests_total").items()}
        return cls(rows, Counter(by_outcome), scrape.sum("evenhand_in_flight"))


class Ledger:
    """Opened before a case sends anything; the case says what it sends, `balance` holds the gateway to it."""

    def __init__(self, gateway: Gateway, up: Arrivals | None) -> None:
        self._gateway, self._up = gateway, up
        self._before = Books.read(gateway)
        self._arrived = Counter(up.by_tenant() if up else ())
        self._logged = len(gateway.log_lines())
        self._sockets = gateway.sockets() + _stored(gateway)
        self._sent: Counter[str] = Counter()
        self._rejected = 0
        #: Second attempts that the gateway may have made at the upstream (stale connections).
        self.retries = 0
        #: Requests that were upstream in part when their body turned out too large, too slow or malformed.
        self.turned_back = 0
        #: Answers with status 500 that the upstream was told to give.
        self.relayed_500 = 0

    def sent(self, tenant: str, count: int = 1) -> None:
        """Note requests that a verdict is owed to; a failed credential over its address's quota is of `rejected`."""
        self._sent[tenant] += count

    def rejected(self, count: int = 1) -> None:
        """Note requests that deserve no verdict: 400, 401 and the like."""
        self._rejected += count

    def forget(self) -> None:
        """Let the upstream forget its record, the number of what arrived kept: for what is too many to remember."""
        assert self._up is not None
        self._arrived.subtract(self._up.by_tenant())
        self._up.forget()

    def balance_ended(self) -> None:
        """Check what a gateway leaves behind that has ended: a line for everything it was sent, and no connection."""
        rows: dict[str, Counter[str]] = {}
        rejected = 0
        for line in self._lines():
            # A request has a line of its own, or is one of those that a line counts.
            count = {"request": 1, "counted": line.get("omitted", 0)}.get(line["event"], 0)
            if line.get("outcome") == "rejected":
                rejected += count
            elif count:
                rows.setdefault(line["tenant"], Counter()).update({line["outcome"]: count, "offered": count})
        self._check_tenants(rows)
        assert rejected == self._rejected
        for tenant, row in rows.items():
            self._check_arrivals(tenant, row)
        self._check_words()

    async def balance(self) -> None:
        """Wait for quiet, then check; fails with the first thing that does not add up."""
        deadline = time.monotonic() + QUIET_SECONDS
        while True:
            try:
                self._check()
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
            else:
                return

    def _check(self) -> None:
        books = Books.read(self._gateway)
        changed = {name: row - self._before.tenants.get(name, Counter()) for name, row in books.tenants.items()}
        counted = books.metrics - self._before.metrics
        assert books.in_flight == 0, f"{books.in_flight} in flight"
        self._check_tenants(changed)
        self._check_metrics(changed, counted)
        for tenant, row in changed.items():
            self._check_arrivals(tenant, row)
        sockets = self._gateway.sockets()
        assert sockets <= self._sockets, f"{sockets} sockets open, {self._sockets} before"
        self._check_words()

    def _lines(self) -> list[dict[str, Any]]:
        return self._gateway.log_lines()[self._logged :]

    def _check_words(self) -> None:
        own = [line for line in self._lines() if line.get("status") == 500]
        assert len(own) <= self.relayed_500, own
        assert "Traceback" not in self._gateway.stderr, self._gateway.stderr

    def _check_tenants(self, changed: dict[str, Counter[str]]) -> None:
        offered = {name: row["offered"] for name, row in changed.items() if row["offered"]}
        assert offered == dict(self._sent), f"offered {offered}, sent {dict(self._sent)}"
        for name, row in changed.items():
            parts = row["served"] + row["refused"] + row["upstream_error"] + row["aborted"]
            assert row["offered"] == parts, f"{name}: {dict(row)}"

    def _check_metrics(self, changed: dict[str, Counter[str]], counted: Counter[str]) -> None:
        total = self._sent.total() + self._rejected
        assert counted.total() == total, f"metrics {dict(counted)}, sent {total}"
        assert counted["rejected"] == self._rejected, dict(counted)
        for outcome in OUTCOMES:
            if outcome != "rejected":
                summed = sum(row[outcome] for row in changed.values())
                assert counted[outcome] == summed, f"{outcome}: metrics {counted[outcome]}, tenants {summed}"

    def _check_arrivals(self, tenant: str, row: Counter[str]) -> None:
        if self._up is None:
            return
        arrived = self._up.by_tenant()[tenant] - self._arrived[tenant]
        most = row["served"] + row["upstream_error"] + row["aborted"] + self.retries + self.turned_back
        assert row["served"] <= arrived <= most, f"{tenant}: {arrived} arrived, {dict(row)}"


def _stored(gateway: Gateway) -> int:
    """Return how many connections to a shared store a gateway may make."""
    store = gateway.config.get("store", {})
    return int(store.get("max_connections", 4)) if store.get("url", "memory:") != "memory:" else 0


@contextlib.asynccontextmanager
async def balanced(gateway: Gateway, up: Arrivals | None) -> AsyncIterator[Ledger]:
    """Open a ledger, run a case, and balance it."""
    ledger = Ledger(gateway, up)
    yield ledger
    await ledger.balance()
