"""Stage 8: a settled decision becomes counts, and perhaps a line.

Rules
1. `record` changes nothing but counts, and decides nothing. It is the only reader of outcomes.
2. It costs a few additions for a served request; what needs names, texts or ratios happens at the scrape, in another
   thread.
3. A request that was rejected counts under the tenant its credential proved, or else under `rejected`; 400 and 401
   always under `rejected` (contract, section 7).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from gateway.clock import Clock
from gateway.config import Settings
from gateway.ports import Decision
from gateway.telemetry.breath import breathing
from gateway.telemetry.codebook import Codebook, Tally
from gateway.telemetry.decisions import DecisionLog
from gateway.telemetry.figures import Report
from gateway.telemetry.gauges import DECISION_BOUNDS_NS, STORE_BOUNDS_US, UPSTREAM_BOUNDS_US, Gauges, Histogram
from gateway.telemetry.metrics import Counters, Metrics, running_version
from gateway.telemetry.otel import Exporter
from gateway.telemetry.refusals import LastRefusals
from gateway.telemetry.slots import Ledger, Slot
from gateway.telemetry.tenants import Tenants
from policies.policy import Mode, PolicySet
from policies.request import REJECTED, Class, Kind
from policies.units import SECOND, Micros
from policies.verdict import OWN_LIMITS, Outcome, Reason, reason_of

__all__ = ["OWN", "SCOPES", "Telemetry"]

#: This instance alone, and all that share its store.
OWN: Final = "self"
SCOPES: Final = ("fleet", OWN)

_LOG: Final = logging.getLogger("evenhand.telemetry")
# Looked up once: a member of an enum costs as much as a call.
_SERVED: Final = Outcome.SERVED
_REFUSED: Final = Outcome.REFUSED
_REJECTED: Final = Outcome.REJECTED
_INTERACTIVE: Final = Class.INTERACTIVE
_SHADOW: Final = Mode.SHADOW
_OWN: Final = Tally.OWN
#: The limits that are not a caller's own; any other name is, built in or a policy's.
_NOT_OWN: Final = frozenset(reason.value for reason in Reason if reason not in OWN_LIMITS)
_PROVEN: Final = frozenset({Kind.USER, Kind.JOB})
_SHARED: Final = frozenset({Reason.SHARE, Reason.BACKSTOP})
_MAX_FORWARDERS: Final = 16
_ADVANCE_SECONDS: Final = 1.0
_SUMMARY: Final = 60 * SECOND

_Name = TypeVar("_Name", bound=Hashable)

#: A tenant, and how often each tally came by limit.
Tallied = tuple[str, Mapping[tuple[int, str], int]]


class Telemetry:
    """Counts decisions; answers for them in `tenants`, `metrics` and the decision log.

    `gauges` is to be set by whoever composes the house. `start` and `stop` run the threads that write the log and keep
    the windows; without them everything works that is asked for. Raises ConfigError if the log cannot be written.
    """

    def __init__(self, settings: Settings, policies: PolicySet, clock: Clock) -> None:
        section = settings.telemetry
        self._clock = clock
        self._ledger = Ledger(policies.tenants.keys(), policies.max_unlisted_tenants)
        self._codebook = self._ledger.codebook
        self._served = tuple(self._codebook.code(Tally.SERVED, cls) for cls in Class)
        self._served_interactive = self._served[_INTERACTIVE]
        self._decision_time = Histogram(DECISION_BOUNDS_NS, 1_000_000_000)
        self._upstream_time = Histogram(UPSTREAM_BOUNDS_US, SECOND)
        #: Written by whoever waits for a shared store, in microseconds.
        self.store_wait = Histogram(STORE_BOUNDS_US, SECOND)
        #: By the metric that they are.
        self.histograms: Mapping[str, Histogram] = {
            "evenhand_decision_seconds": self._decision_time,
            "evenhand_upstream_seconds": self._upstream_time,
            "evenhand_store_wait_seconds": self.store_wait,
        }
        self.counters = Counters()
        self.gauges = Gauges()
        self.last_refusals = LastRefusals()
        self.tenants = Tenants(self._ledger, section.top_tenants, clock)
        #: The figures to be shown: those of the fleet where processes share a store (`fleet.py`), else the same.
        self.shown = self.tenants if settings.store.url == "memory:" else _shared(settings, policies, clock)
        #: What `shown` is of: `fleet`, or `local` while others cannot be heard; empty where there are none.
        self.scope: Callable[[], str] = str
        #: How each living instance stands, this one first; nothing where there is no fleet.
        self.instances: Callable[[], list[dict[str, object]]] = list
        self.metrics = Metrics(
            self.tenants,
            self.shown,
            self._codebook,
            policies,
            self.gauges,
            self.counters,
            self.histograms,
            clock.now,
        )
        self.log = _open_log(settings, policies, clock)
        self._exporter = _exporter(settings, self.log)
        #: Addresses outside `trusted_proxies` that sent Forwarded or X-Forwarded-For; the first few.
        self.forwarders: dict[str, None] = {}
        #: Trusted proxies whose Forwarded and X-Forwarded-For tell of no caller, or of two; the first few.
        self.doubtful: dict[str, None] = {}
        #: Requests that were forwarded in shadow mode and would have been rejected, by the code of why.
        self.would_reject: dict[str, int] = {}
        #: Called about every second with the time, on the thread that keeps the windows.
        self.each_second: list[Callable[[Micros], None]] = []
        #: Whether the aggregate beside the worst is logged here; one process of an instance does it.
        self.summarises = True
        self._summarised = clock.now() // _SUMMARY
        self._stopping = threading.Event()
        self._keeper: threading.Thread | None = None

    def reload(self, settings: Settings, policies: PolicySet) -> None:
        """Take over another configuration; nothing that was counted is forgotten. The log stays where it is."""
        for tenants in dict.fromkeys((self.tenants, self.shown)):
            tenants.ledger.relist(policies.tenants.keys(), policies.max_unlisted_tenants)
            tenants.relabel(settings.telemetry.top_tenants)
        self.metrics.policies = policies
        if self.log is not None:
            self.log.policies = policies
            self.log.sample = settings.telemetry.admit_sample

    def figures(self, scope: str = "") -> tuple[Tenants, str]:
        """Return the figures that were asked for, and what they are of: those to be shown, or with OWN one's own."""
        return (self.tenants, OWN) if scope == OWN else (self.shown, self.scope())

    def now(self) -> Micros:
        """Return the time by which slots are cut."""
        return self._clock.now()

    @property
    def codebook(self) -> Codebook:
        """What the codes in slots mean."""
        return self._codebook

    def turn(self, now: Micros) -> None:
        """Close a slot that is over; on the thread that records."""
        self._ledger.turn(now)

    def follow(self, take: Callable[[tuple[int, Iterable[Tallied]]], None]) -> None:
        """Hand every closed slot to `take`: its number, and each tenant's counts, which are worked out when read."""
        self.tenants.followers.append(lambda slot: take((slot.number, self._tallied(slot))))

    def slot_now(self) -> tuple[int, Iterable[Tallied]] | None:
        """Return the same of the slot under way, None if nothing is in it; from any thread."""
        slot = self._ledger.slot
        return (slot.number, self._tallied(slot)) if slot.tenants else None

    def _tallied(self, slot: Slot) -> Iterator[Tallied]:
        book = self._codebook
        for tenant, cells in breathing(iter(slot.tenants.copy().items())):
            counts: dict[tuple[int, str], int] = {}
            for code, count in cells.copy().items():
                what = (book.tallies[code], book.limits[code])
                counts[what] = counts.get(what, 0) + count
            yield tenant, counts

    def record(self, decision: Decision, now: Micros) -> None:
        """Count `decision`, whose `outcome`, `status` and `limit` are final."""
        verdict, outcome = decision.verdict, decision.outcome
        if outcome is _SERVED:
            # Compiled, a comparison costs a tenth of what it costs to index by a member of an enum.
            code = self._served_interactive if decision.cls is _INTERACTIVE else self._served[decision.cls]
        else:
            code = self._unserved(decision)
        shadow = False
        if verdict is None or (outcome is _REJECTED and not _proven(decision)):
            self._ledger.tab(_tenant(decision), now).add(code)
        else:
            self._ledger.count(code, verdict.plan, now)
        if verdict is not None:
            self._decision_time.observe(decision.decide_ns, decision.request_id)
            shadow = len(verdict.reading.shadow_refused) > 0 or not verdict.enforced
        if decision.upstream_us:
            self._upstream_time.observe(decision.upstream_us, decision.request_id)
        if shadow or decision.exemption or decision.class_raise_attempt or decision.notes:
            shadow = self._asides(decision, _tenant(decision), now)
        if outcome is _REFUSED:
            self.last_refusals.note(decision, now)
        log = self.log
        if log is None:
            return
        if outcome is not _SERVED:
            log.refused(decision, now)
        elif shadow:
            log.refused(decision, now, _SHADOW)
        else:
            log.served(decision, now)

    def untrusted_forwarder(self, address: str) -> None:
        """Note a peer outside `trusted_proxies` that says for whom it forwards; warned of once per address."""
        if address in self.forwarders or len(self.forwarders) >= _MAX_FORWARDERS:
            return
        self.forwarders[address] = None
        _LOG.warning("%s", forwarder_warning(address))

    def doubtful_proxy(self, address: str) -> None:
        """Note a trusted proxy that does not tell for whom it forwards; warned of once per address."""
        if address in self.doubtful or len(self.doubtful) >= _MAX_FORWARDERS:
            return
        self.doubtful[address] = None
        _LOG.warning("%s", doubtful_warning(address))

    def warnings(self) -> list[str]:
        """Return what an operator should know of now, one sentence each; from any thread."""
        found = [forwarder_warning(address) for address in self.forwarders.copy()]
        found += [doubtful_warning(address) for address in self.doubtful.copy()]
        if len(self.forwarders) == _MAX_FORWARDERS:
            found.append(f"more than {_MAX_FORWARDERS} peers outside trusted_proxies send Forwarded or X-Forwarded-For")
        found += [
            f"in shadow, {count} requests would have been answered 401 by now: {code}"
            for code, count in self.would_reject.copy().items()
        ]
        return [*found, *self.log_warnings()]

    def log_warnings(self) -> list[str]:
        """Return what an operator should know of the decision log."""
        found = []
        if self.log is not None and self.log.sink.dropped:
            found.append(f"the decision log lost {self.log.sink.dropped} lines {self.log.sink.fault}".rstrip())
        if self._exporter is not None and self._exporter.dropped:
            found.append(f"{self._exporter.dropped} requests were not exported: [telemetry] otlp does not keep up")
        return found

    def start(self) -> None:
        """Begin to keep the windows and to write the log."""
        if self.log is not None:
            self.log.sink.start()
        if self._exporter is not None:
            self._exporter.start()
        self._keeper = threading.Thread(target=self._run, name="evenhand-telemetry", daemon=True)
        self._keeper.start()

    def stop(self) -> None:
        """Write what is left, within a second, and end."""
        self._stopping.set()
        if self._keeper is not None:
            self._keeper.join()
        if self.log is not None:
            self.log.sink.stop()
        if self._exporter is not None:
            self._exporter.stop()

    def _run(self) -> None:
        while not self._stopping.wait(_ADVANCE_SECONDS):
            now = self._clock.now()
            self.keep(now)
            for act in self.each_second:
                act(now)

    def keep(self, now: Micros) -> None:
        """Take over closed slots, and once a minute log the aggregate beside the worst. From any thread but one."""
        for tenants in dict.fromkeys((self.tenants, self.shown)):
            tenants.advance(now)
        if self.log is not None and self.summarises and now // _SUMMARY != self._summarised:
            self._summarised = now // _SUMMARY
            report = self.shown.report("1m", now)
            if report.aggregate.offered:
                self.log.event("fairness", now, summary(report))

    def _unserved(self, decision: Decision) -> int:
        """Return the code of a request that was not served."""
        outcome = decision.outcome
        if outcome is _REFUSED:
            return self._codebook.code(_refusal(decision), decision.cls, decision.limit)
        if outcome is _REJECTED:
            return self._codebook.code(Tally.REJECTED, decision.cls)
        if outcome is Outcome.ABORTED:
            tally = Tally.ABORTED_EARLY if decision.verdict is None else Tally.ABORTED
            return self._codebook.code(tally, decision.cls)
        return self._codebook.code(Tally.UPSTREAM_ERROR, decision.cls)

    def _asides(self, decision: Decision, tenant: str, now: Micros) -> bool:
        """Count what is counted beside a request. Return whether it was let through only by shadow."""
        shadow = "rejected" in decision.notes
        if shadow:
            self._ledger.add(Tally.SHADOW, decision.cls, decision.notes["rejected"], tenant, now)
            _count(self.would_reject, decision.notes["rejected"])
        verdict = decision.verdict
        if verdict is not None:
            for refused in verdict.reading.shadow_refused:
                self._ledger.add(Tally.SHADOW, decision.cls, refused.limit, tenant, now)
                shadow = True
            if verdict.refusal is not None and not verdict.enforced:
                self._ledger.add(Tally.SHADOW, decision.cls, verdict.refusal.limit, tenant, now)
                shadow = True
        if decision.class_raise_attempt:
            self._ledger.add(Tally.RAISED, decision.cls, "", tenant, now)
        if decision.exemption:
            _count(self.counters.exempted, decision.exemption)
        if "posture" in decision.notes and decision.outcome is not None:
            _count(self.counters.posture, (decision.notes["posture"], decision.outcome.value))
        return shadow


def _proven(decision: Decision) -> bool:
    """Return whether a rejected request counts under the tenant that its credential proved (rule 3)."""
    return decision.principal.kind in _PROVEN and decision.status not in (400, 401)


def _tenant(decision: Decision) -> str:
    """Return the tenant that a request counts under. A served one's is that of its plan, and not looked at."""
    return REJECTED if decision.outcome is _REJECTED and not _proven(decision) else decision.principal.tenant


def _refusal(decision: Decision) -> Tally:
    """Return whose doing an enforced refusal was."""
    if decision.limit not in _NOT_OWN:
        return _OWN
    reason, verdict = reason_of(decision.limit), decision.verdict
    if reason is Reason.CONNECTIONS:  # refused after the verdict
        return Tally.OVER if decision.over_seats else Tally.WITHIN
    if verdict is None or verdict.admitted:
        return Tally.OTHERS
    if verdict.reading.beyond_own:
        return Tally.BEYOND
    if verdict.reading.share_over or reason is Reason.SHARE:
        return Tally.OVER
    return Tally.WITHIN if reason in _SHARED else Tally.OTHERS


def _count(counts: dict[_Name, int], name: _Name) -> None:
    counts[name] = counts.get(name, 0) + 1


def _shared(settings: Settings, policies: PolicySet, clock: Clock) -> Tenants:
    ledger = Ledger(policies.tenants.keys(), policies.max_unlisted_tenants)
    return Tenants(ledger, settings.telemetry.top_tenants, clock)


def _open_log(settings: Settings, policies: PolicySet, clock: Clock) -> DecisionLog | None:
    section = settings.telemetry
    if section.decision_log == "off":
        return None
    return DecisionLog(section.decision_log, section.decision_log_format, section.admit_sample, policies, clock.now)


def _exporter(settings: Settings, log: DecisionLog | None) -> Exporter | None:
    if log is None or not settings.telemetry.otlp:
        return None
    exporter = Exporter(settings.telemetry.otlp, running_version())
    log.exported = exporter.put
    return exporter


def summary(report: Report) -> dict[str, object]:
    """Return a report without its tenants, as the log and the index page show it."""
    return {
        "window": report.window,
        "aggregate": report.aggregate.as_members(),
        "worst": report.worst_members(),
        "tenants": len(report.tenants),
    }


def forwarder_warning(address: str) -> str:
    """Return what to say of a peer that forwards for others without being trusted to."""
    return (
        f"{address} sends Forwarded or X-Forwarded-For and is not in trusted_proxies: "
        f"callers behind {address} share one address; add it to trusted_proxies"
    )


def doubtful_warning(address: str) -> str:
    """Return what to say of a trusted proxy that names no caller, or two."""
    return (
        f"{address} is in trusted_proxies, and sent Forwarded and X-Forwarded-For that disagree or name no address: "
        f"those callers share its own; let it write one of the two and remove the other"
    )
