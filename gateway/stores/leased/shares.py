"""The backstop of several processes: the real kernel in each, over a capacity that is leased.

    ticks: notice, tell --send--> (wait) --answer--> hear, work out [--send--> (wait)], and between periods `parts`

Every `PERIOD` a process tells the others what is wanted where (`reports`), renews its lease and hears what they told.
From everybody's reports it works out how much of the capacity each should have (`division`) and which part of each
uneven tenant's demand is here (`parts`). Nobody decides; what keeps the sum right is the record (`rates`).

Rules
1. Takes are the kernel's own, with nothing before them. All else is in steps of less than 0.5 ms, one a tick.
2. What this process uses is lowered before that is told, and raised when it is granted: together never more than there
   is.
3. One command a period, and a second one when what this process should have has changed much. The record is one key for
   the whole service, so this is all that it costs: 10 to 20 commands a second and process.
4. Without an answer the last lease stays in force; how much of it to use is for the posture to say.
5. Whoever begins has nothing but what it may owe for a first ask, until the first answer: a tick away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from gateway.stores.leased.reports import Told, pack_report, read_renewal, read_report, renew_call
from gateway.stores.link import Answer, Script, StoreFault, load_script
from policies.kernels.division import Curve, Outlook, debt_bound, divide
from policies.kernels.portion import Portion
from policies.kernels.rates import Claim
from policies.kernels.share import ClassPart, SharesView, ShareView
from policies.policy import PolicySet
from policies.units import SECOND, Micros, RequestUnits

__all__ = ["LEASE_US", "PERIOD_US", "LeasedBackstop", "Runner"]

PERIOD_US: Final = SECOND // 10
#: How long a lease lives without being renewed.
LEASE_US: Final = 3 * SECOND // 2
#: How long an answer is waited for; what comes later is heard, too.
WITHIN_US: Final = 80_000
#: While less than this part of the capacity is wanted, every second period is left out, unless what is held runs out.
CALM: Final = 0.5
#: Least capacity that is shared out, as a part of all: a first ask waits for nobody.
LEAST: Final = 1e-4
#: How much of itself, and how much of the capacity, a want must change by for a second command.
MUCH: Final = 0.05
MUCH_OF_ALL: Final = 0.005
#: How many processes there are taken to be before anybody was heard.
UNKNOWN: Final = 16
#: Reports read in one step.
READ: Final = 4


class Runner(Protocol):
    """What runs a script: `link.Link`."""

    def run(
        self,
        script: Script,
        keys: Sequence[bytes],
        args: Sequence[bytes],
        answer: Answer,
        within_us: Micros,
        late: Callable[[object], None] | None = None,
    ) -> None:
        """Run it, and answer once."""
        ...


class _Pool:
    """One portion and its lease, in units per second; `capacity` and `burst` are the whole's."""

    __slots__ = ("burst", "capacity", "held", "portion", "want")

    def __init__(self, portion: Portion, capacity: float, burst: RequestUnits) -> None:
        self.portion = portion
        self.capacity = capacity
        self.burst = burst
        self.held = self.want = 0.0

    def part(self, rate: float) -> float:
        """Return a rate as a part of the whole, as the record has it: processes may disagree about the whole."""
        return rate / self.capacity if self.capacity > 0.0 else 0.0

    def hold(self, rate: float, processes: int, now: Micros) -> None:
        """Use `rate` from now on."""
        self.held = rate
        if self.capacity <= 0.0:
            return
        used = max(rate, LEAST * self.capacity)
        debt = debt_bound(rate, self.capacity, self.burst, processes)
        self.portion.lease(used / SECOND, self.burst * used / self.capacity, debt, now)


class LeasedBackstop(Portion):
    """The fair backstop over a lease; implements `memory.Backstop`. `process` is this one's number in the record."""

    __slots__ = (
        "_again", "_burst_all", "_calm", "_classes", "_filled", "_groups", "_heard", "_key", "_leases", "_link",
        "_mine", "_next_us", "_now", "_others", "_process", "_rate", "_sent", "_step", "_unheard", "processes",
    )  # fmt: skip

    def __init__(
        self, policies: PolicySet, link: Runner, key: bytes, process: int, now: Callable[[], Micros]
    ) -> None:  # fmt: skip
        allowed, begun = policies.backstop, now()
        self._classes: Sequence[ClassPart] = policies.classes
        self._rate, self._burst_all = allowed.rate.per_us, allowed.burst
        super().__init__(
            self._rate * LEAST, self._burst_all * LEAST, self._classes, policies.unlisted_weight, begun,
            policies.max_unlisted_tenants,
        )  # fmt: skip
        self._link = link
        self._key = key
        self._process = process
        self._now = now
        #: Living processes, this one included.
        self.processes = 1
        self._leases: dict[int, _Pool] = {}
        #: What this process told last, and what was heard of each pool since; reports not read yet.
        self._mine: dict[int, Told] = {}
        self._groups: dict[int, Outlook] = {}
        self._heard: dict[int, list[Told]] = {}
        self._others: dict[int, list[Told]] = {}
        self._unheard: list[bytes] = []
        self._step: Callable[[Micros], None] | None = None
        self._next_us = begun
        #: Number of the last call; whether it is the second of a period; whether the buckets are still to be filled.
        self._sent = 0
        self._again = self._filled = False
        #: Whether so little is wanted that every second period is left out.
        self._calm = False
        self._fit_pools(UNKNOWN, begun)

    @property
    def lease_share(self) -> float:
        """Return which part of the backstop is leased to this process; 0 to 1."""
        pool = self._leases[0]
        return pool.held / pool.capacity if pool.capacity > 0.0 else 0.0

    def tick(self, now: Micros) -> None:
        """Do the next slice of background work."""
        super().tick(now)
        if self._step is not None:
            self._step(now)
        elif now >= self._next_us or (self._calm and now >= self._next_us - PERIOD_US and self._debt(now) > 0.0):
            self._next_us = max(min(self._next_us, now) + PERIOD_US, now)
            self._notice(now)
        else:
            self._follow(now)

    def leave(self) -> None:
        """Give the lease back: this process serves no more."""
        self._call(b"", 0, [], lambda _: None)

    def rebuild(
        self, rate_us: float, burst: RequestUnits, classes: Sequence[ClassPart], unlisted_weight: float, now: Micros,
        max_unlisted: int = 10_000,
    ) -> None:  # fmt: skip
        """Follow a reload: what this process holds is the same part of the new capacity until it hears more."""
        part = max(self.lease_share, LEAST)
        super().rebuild(rate_us * part, burst * part, classes, unlisted_weight, now, max_unlisted)
        self._rate, self._burst_all = rate_us, burst
        self._classes = classes
        self._fit_pools(self.processes, now)

    def view(self, now: Micros) -> SharesView:
        """Return the whole backstop, as far as it is known here; `tenants` are those of this process."""
        mine = super().view(now)
        others = [told.outlook for told in self._others.get(0, [])]
        capacity = self._rate * SECOND
        demand = mine.demand + sum(Curve(other).demand for other in others)
        used = mine.used_ratio * self._capacity * SECOND + sum(other.used for other in others)
        return replace(
            mine,
            contended=mine.contended if not others else demand > capacity,
            level=mine.level * self.processes,
            unlisted_level=mine.unlisted_level * self.processes,
            tokens=mine.tokens + sum(max(0.0, other.tokens) for other in others),
            debt=mine.debt + sum(max(0.0, -other.tokens) for other in others),
            debt_bound=max(capacity / 2, min(5.0, self._burst_all / 2)),
            demand=demand,
            used_ratio=used / capacity if capacity > 0.0 else 0.0,
        )

    def share_of(self, tenant: str, now: Micros) -> ShareView | None:
        """Return a tenant's share of the whole, and its share bucket here."""
        member = self._members.get(tenant)
        if member is None:
            return None
        return replace(member.view(now), share=member.line.level * member.whole * self.processes * SECOND)

    def _fit_pools(self, processes: int, now: Micros) -> None:
        """Follow the documents; a pool keeps the part that it held."""
        before, self._leases = self._leases, {}
        for number, portion in self.pools().items():
            part = self._classes[number - 1].ceiling if number else 1.0
            pool = _Pool(portion, self._rate * SECOND * part, self._burst_all * part)
            if (old := before.get(number)) is not None and old.capacity > 0.0:
                pool.held = old.held / old.capacity * pool.capacity
                pool.want = old.want / old.capacity * pool.capacity
            self._leases[number] = pool
            pool.hold(pool.held, processes, now)

    def _notice(self, now: Micros) -> None:
        """Begin a period: notice who is uneven, and what the groups of the unlisted want."""
        self._groups = {}
        for number, pool in self._leases.items():
            pool.portion.parts.notice(now)
            self._groups[number] = pool.portion.outlook_of_group(now)
        self._step = self._tell

    def _tell(self, now: Micros) -> None:
        """Tell what is wanted here, and renew the lease; a pool that a reload just brought is told of next time."""
        self._mine = {
            number: Told(pool.portion.outlook(now), group, pool.portion.parts.told(now))
            for number, group in self._groups.items()
            if (pool := self._leases.get(number)) is not None
        }
        self._again = False
        self._renew(pack_report(self._mine.items(), self.processes), now)

    def _renew(self, report: bytes, now: Micros) -> None:
        """Ask for what is wanted, having lowered what is used to that."""
        claims = []
        for number, pool in self._leases.items():
            if pool.want < pool.held:
                pool.hold(pool.want, self.processes, now)
            claims.append(Claim(number, 1.0, pool.part(pool.held), pool.part(pool.want)))
        self._step = self._wait
        self._sent += 1
        sent = self._sent
        self._call(report, LEASE_US, claims, lambda reply: self._answered(reply, sent, [each.pool for each in claims]))

    def _call(self, report: bytes, ttl_us: Micros, claims: list[Claim], answer: Callable[[object], None]) -> None:
        full_us = int(self._burst_all / self._rate) if self._rate > 0.0 else 0
        args = renew_call(self._process, ttl_us, full_us, claims, report)
        self._link.run(_SCRIPT, [self._key], args, answer, WITHIN_US, answer)

    def _wait(self, now: Micros) -> None:
        """Do nothing: the answer comes by itself."""

    def _answered(self, reply: object, sent: int, pools: list[int]) -> None:
        """Hear the answer to the call of that number; a fault, and what was overtaken, changes nothing."""
        if sent != self._sent:
            return
        self._step = None
        if isinstance(reply, StoreFault):
            return
        try:
            renewal = read_renewal(reply, len(pools))
        except ValueError:
            return
        now = self._now()
        self._filled |= renewal.fresh
        self.processes = renewal.processes
        for number, granted in zip(pools, renewal.granted, strict=True):
            if (pool := self._leases.get(number)) is not None:
                pool.hold(granted * pool.capacity, self.processes, now)
                if self._filled and granted > 0.0:
                    pool.portion.fill(now)
        if self._filled and self._leases[0].held > 0.0:
            self._filled = False
        if not self._again:
            self._unheard = renewal.reports
            self._heard = {}
            self._step = self._hear
        else:
            self._step = self._follow

    def _hear(self, now: Micros) -> None:
        """Read the next few reports; after the last, work out what to want."""
        for report in self._unheard[-READ:]:
            try:
                told = read_report(report)
            except ValueError:
                continue
            for number, each in told.items():
                if (pool := self._leases.get(number)) is not None:
                    self._heard.setdefault(number, []).append(each)
                    pool.portion.parts.hear(each.heard, now)
        del self._unheard[-READ:]
        if not self._unheard:
            self._others = self._heard
            for pool in self._leases.values():
                pool.portion.parts.all_heard()
            self._step = self._work_out

    def _work_out(self, now: Micros) -> None:
        """Work out what each pool should have here, and ask again if that is news."""
        much, self._calm = False, True
        self._step = self._follow
        for number, pool in self._leases.items():
            if pool.capacity <= 0.0 or number not in self._mine:
                continue
            mine = self._mine[number]
            outlooks = [_of_all(mine.outlook, self.processes), *(told.outlook for told in self._others.get(number, []))]
            curves = [Curve(outlook) for outlook in outlooks]
            (want, *_), level = divide(curves, pool.capacity, pool.burst)
            self._calm &= sum(curve.demand for curve in curves) <= CALM * pool.capacity
            pool.portion.keep_level(level / self.processes)
            much |= abs(want - pool.want) > max(MUCH_OF_ALL * pool.capacity, MUCH * pool.want)
            pool.want = want
            groups = [_of_all(mine.group, self.processes), *(told.group for told in self._others.get(number, []))]
            pool.portion.divide_group([Curve(group) for group in groups], now)
        if much:
            self._again = True
            self._renew(b"", now)
        elif self._calm:
            self._next_us += PERIOD_US

    def _follow(self, now: Micros) -> None:
        """Look after the next few uneven tenants."""
        self._step = None
        for pool in self._leases.values():
            pool.portion.parts.step(self.processes, now)


def _of_all(outlook: Outlook, processes: int) -> Outlook:
    """Return an outlook in which levels are those of all processes."""
    rows = [(ratio * processes, weight / processes) for ratio, weight in outlook.rows]
    return outlook._replace(rows=rows)


_SCRIPT: Final = load_script("shares")
