"""`/metrics`: every family of section 8 of the contract, Prometheus or OpenMetrics text.

Rules
1. A family always stands with HELP and TYPE; one that has nothing to say has no sample. A ratio without a
   denominator is nothing to say.
2. The number of series depends on the configuration and on `top_tenants`, never on what callers send.
3. Counters, histograms and gauges are those of this instance, so that a sum over instances is one over the fleet. The
   ratios cannot be added up: they are those of the fleet, the same at every instance.
4. Computed at the scrape, in the thread that asks; between families other threads may run.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Exemplar

from gateway.telemetry.catalog import CATALOG, Family
from gateway.telemetry.codebook import Codebook, Tally
from gateway.telemetry.figures import Report, ratio
from gateway.telemetry.gauges import Bucket, Gauges, Histogram
from gateway.telemetry.slots import OTHER, Cells
from gateway.telemetry.tenants import Tenants
from gateway.telemetry.windows import WINDOWS
from policies.policy import Mode, PolicySet
from policies.request import REJECTED
from policies.units import Micros

__all__ = ["Counters", "Metrics", "running_version"]

_BREATH_SECONDS = 0.000_05
#: Name and value of an exemplar's label have 128 characters together (OpenMetrics 1.0).
_LONGEST_ID = 100


#: Label values, in the order of the family's labels, and the value.
Sample = tuple[tuple[str, ...], float]


class Counters:
    """Counts that belong to no tenant. Written by the data plane's thread, copied by a scrape."""

    __slots__ = ("exempted", "posture")

    def __init__(self) -> None:
        self.exempted: dict[str, int] = {}
        self.posture: dict[tuple[str, str], int] = {}


class Metrics(Collector):
    """The registry, and what fills it. `tenants` are counted here, `shown` wherever the fleet is."""

    def __init__(
        self,
        tenants: Tenants,
        shown: Tenants,
        codebook: Codebook,
        policies: PolicySet,
        gauges: Gauges,
        counters: Counters,
        histograms: Mapping[str, Histogram],
        now: Callable[[], Micros],
    ) -> None:
        self.policies = policies
        self._tenants = tenants
        self._shown = shown
        self._codebook = codebook
        self._gauges = gauges
        self._counters = counters
        self._histograms = histograms
        self._now = now
        self._process = ProcessCollector(registry=None)
        #: Puts what other processes use to what this one does, where it answers for them as well.
        self.processes: Callable[[Iterable[Metric]], Iterable[Metric]] = iter

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the exposition that `accept` asks for, and its content type. May take a while; blocks nobody."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not compute a scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield every family of CATALOG in its order, then those of the process."""
        samples = self._samples()
        for name, family in CATALOG.items():
            yield _family(name, family, self._histograms.get(name), samples.get(name, ()))
            time.sleep(_BREATH_SECONDS)
        yield from self.processes(self._process.collect())

    def _samples(self) -> dict[str, Iterable[Sample]]:
        now = self._now()
        totals = self._tenants.totals(now)
        reports = [self._shown.glance(window, now) for window in WINDOWS]
        return {
            **self._requests(totals),
            **_ratios(reports),
            **self._asked(totals.keys()),
            "evenhand_exempted_requests_total": self._exempted(),
            "evenhand_posture_decisions_total": list(self._counters.posture.copy().items()),
            "evenhand_policy_mode": [
                ((policy.name, mode.value), float(policy.mode is mode))
                for policy in self.policies.policies
                for mode in Mode
            ],
            "evenhand_build_info": [((running_version(), platform.python_version()), 1.0)],
        }

    def _exempted(self) -> list[Sample]:
        """Count each exemption from 0 on, so that the first hour of one is a change that an alert can see."""
        counted = dict.fromkeys((exemption.name for exemption in self.policies.exemptions), 0)
        counted |= self._counters.exempted.copy()
        return [((name,), float(count)) for name, count in counted.items()]

    def _requests(self, totals: Mapping[str, Cells]) -> dict[str, Iterable[Sample]]:
        """Sort the labelled totals into the families that carry a `tenant` label."""
        requests: Counter[tuple[str, ...]] = Counter()
        refusals: Counter[tuple[str, ...]] = Counter()
        raised: Counter[tuple[str, ...]] = Counter()
        for tenant, cells in totals.items():
            for code, count in cells.items():
                entry = self._codebook.entries[code]
                if entry.outcome is not None:
                    requests[tenant, entry.cls.label, entry.outcome.value] += count
                if entry.limit:
                    mode = Mode.SHADOW if entry.tally is Tally.SHADOW else Mode.ENFORCE
                    refusals[tenant, entry.limit, entry.cls.label, mode.value] += count
                if entry.tally is Tally.RAISED:
                    raised[(tenant,)] += count
        return {
            "evenhand_requests_total": list(requests.items()),
            "evenhand_refusals_total": list(refusals.items()),
            "evenhand_class_raise_attempts_total": list(raised.items()),
        }

    def _asked(self, labelled: Iterable[str]) -> dict[str, Iterable[Sample]]:
        """Ask the gauges that somebody set."""
        gauges = self._gauges
        shown = frozenset(labelled)
        quotas = [] if gauges.key_quota is None else gauges.key_quota(shown)
        return {
            "evenhand_backstop_contended": _single(gauges.backstop_contended),
            "evenhand_backstop_used_ratio": _single(gauges.backstop_used_ratio),
            "evenhand_key_quota": [((tenant, name), rate) for tenant, name, rate in quotas if tenant in shown],
            "evenhand_store_up": _single(gauges.store_up),
            "evenhand_store_errors_total": _labelled(gauges.store_errors),
            "evenhand_connections": _labelled(gauges.connections),
            "evenhand_in_flight": _single(gauges.in_flight),
            "evenhand_keys": _single(gauges.keys),
            "evenhand_overflow_requests_total": _single(gauges.overflow_requests),
            "evenhand_starved_keys": _single(gauges.starved_keys),
            "evenhand_jwks_age_seconds": _labelled(gauges.jwks_age_seconds),
            "evenhand_canary_ok": _labelled(gauges.canary_ok),
            "evenhand_workers": _single(gauges.workers),
            "evenhand_worker_restarts_total": _single(gauges.worker_restarts),
            "evenhand_instances": _single(gauges.instances),
            "evenhand_config_last_reload_ok": _single(gauges.config_last_reload_ok),
        }


def _ratios(reports: Iterable[Report]) -> dict[str, Iterable[Sample]]:
    worst: list[Sample] = []
    lowest: list[Sample] = []
    aggregate: list[Sample] = []
    success: list[Sample] = []
    throttled: list[Sample] = []
    for report in reports:
        total = report.aggregate
        _put(worst, (report.window,), None if report.worst is None else report.worst.in_profile_success)
        _put(lowest, (report.window,), None if report.lowest is None else report.lowest.success)
        _put(aggregate, (report.window,), total.success)
        others = [total.served, total.refused, total.offered]
        for row in report.tenants:
            if row.tenant == OTHER:
                continue
            _put(success, (row.tenant, report.window), row.success)
            _put(throttled, (row.tenant, report.window), row.throttled_fraction)
            if row.tenant != REJECTED:  # it is no part of the aggregate
                others[0] -= row.served
                others[1] -= row.refusals
                others[2] -= row.offered
        _put(success, (OTHER, report.window), ratio(others[0], others[2]))
        _put(throttled, (OTHER, report.window), ratio(others[1], others[2]))
    return {
        "evenhand_worst_tenant_success_ratio": worst,
        "evenhand_lowest_success_ratio": lowest,
        "evenhand_aggregate_success_ratio": aggregate,
        "evenhand_tenant_success_ratio": success,
        "evenhand_tenant_throttled_ratio": throttled,
    }


def _put(samples: list[Sample], labels: tuple[str, ...], value: float | None) -> None:
    if value is not None:
        samples.append((labels, value))


def _single(gauge: Callable[[], float | None] | None) -> list[Sample]:
    value = None if gauge is None else gauge()
    return [] if value is None else [((), float(value))]


def _labelled(gauge: Callable[[], Mapping[str, float]] | None) -> list[Sample]:
    return [] if gauge is None else [((label,), float(value)) for label, value in gauge().items()]


def _family(name: str, family: Family, histogram: Histogram | None, samples: Iterable[Sample]) -> Metric:
    if family.type == "histogram":
        made = HistogramMetricFamily(name, family.help)
        if histogram is not None:
            buckets, total = histogram.buckets()
            made.add_metric([], [_bucket(bucket) for bucket in buckets], total)
        return made
    kind = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
    filled = kind(name, family.help, labels=family.labels)
    for labels, value in samples:
        filled.add_metric(labels, value)
    return filled


def _bucket(bucket: Bucket) -> tuple[str, float] | tuple[str, float, Exemplar]:
    """Return a bucket as the library has it, with its last request as an exemplar (OpenMetrics shows it)."""
    if bucket.last is None:
        return bucket.bound, bucket.observed
    request_id, value = bucket.last
    return bucket.bound, bucket.observed, Exemplar({"request_id": request_id[:_LONGEST_ID]}, value)


def running_version() -> str:
    """Return the version of the distribution, or that there is none."""
    try:
        return version("evenhand")
    except PackageNotFoundError:
        return "unknown"
