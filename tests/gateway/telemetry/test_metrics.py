"""What `/metrics` shows: the contract's names and labels, and series that never lie about what was counted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from prometheus_client.samples import Sample

from gateway.telemetry import Telemetry
from policies.request import Class, Kind
from policies.verdict import Outcome
from tests.gateway.telemetry.made import START, Event, StoppedClock, configured, telemetry

#: Section 8 of the contract.
CONTRACT = """
evenhand_requests_total{tenant,class,outcome}
evenhand_refusals_total{tenant,limit,class,mode}
evenhand_worst_tenant_success_ratio{window}
evenhand_lowest_success_ratio{window}
evenhand_aggregate_success_ratio{window}
evenhand_tenant_success_ratio{tenant,window}
evenhand_tenant_throttled_ratio{tenant,window}
evenhand_decision_seconds
evenhand_upstream_seconds
evenhand_backstop_contended
evenhand_backstop_used_ratio
evenhand_key_quota{tenant,credential}
evenhand_exempted_requests_total{exemption}
evenhand_store_up
evenhand_store_errors_total{kind}
evenhand_store_wait_seconds
evenhand_connections{side}
evenhand_in_flight
evenhand_keys
evenhand_overflow_requests_total
evenhand_starved_keys
evenhand_jwks_age_seconds{issuer}
evenhand_canary_ok{check}
evenhand_config_last_reload_ok
evenhand_policy_mode{policy,mode}
evenhand_posture_decisions_total{posture,outcome}
evenhand_class_raise_attempts_total{tenant}
evenhand_workers
evenhand_worker_restarts_total
evenhand_instances
evenhand_build_info
"""

POLICY = """
[[policies]]
name = "login"
match = { route = "login" }
key = ["address"]
quota = "10/min"
mode = "shadow"
[[routes]]
name = "login"
path = "/login"
[[tenants]]
id = "acme"
[[tenants.credentials]]
id = "ci"
pat = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
quota = "80/s"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a place for gateway.toml."""
    return tmp_path_factory.mktemp("metrics")


def record(telemetry: Telemetry, *events: Event) -> None:
    """Record some events."""
    for event in events:
        telemetry.record(event.decision(), event.now)


def samples(record: Telemetry, accept: str = "") -> dict[str, list[Sample]]:
    """Return the samples of our own families, by the name of the family as the contract has it."""
    text = record.metrics.render(accept)[0].decode()
    families = (openmetrics if "openmetrics" in accept else prometheus)(text)
    found = {}
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = family.samples
    return {name: of for name, of in found.items() if name.startswith("evenhand_")}


def full(folder: Path) -> Telemetry:
    """Return telemetry in which every metric has a subject."""
    loaded = configured(folder, POLICY)
    record = Telemetry(loaded.settings, loaded.policies, StoppedClock())
    gauges = record.gauges
    gauges.backstop_contended, gauges.backstop_used_ratio = lambda: True, lambda: 0.5
    gauges.key_quota = lambda _shown: [("acme", "ci", 80.0), ("unseen", "ci", 1.0)]
    gauges.store_up, gauges.store_errors = lambda: True, lambda: {"reset": 3}
    gauges.connections, gauges.in_flight = lambda: {"caller": 4, "upstream": 2}, lambda: 1
    gauges.keys, gauges.overflow_requests, gauges.starved_keys = lambda: 7, lambda: 0, lambda: 0
    gauges.jwks_age_seconds, gauges.canary_ok = lambda: {"https://id.example.com": 12.0}, lambda: {"refuse": True}
    gauges.config_last_reload_ok = lambda: False
    gauges.workers, gauges.worker_restarts, gauges.instances = lambda: 4, lambda: 1, lambda: 2
    for number in range(25):
        event = Event("acme", Outcome.SERVED if number else Outcome.REFUSED, "" if number else "key", shadow=("login",))
        decision = event.decision()
        decision.exemption, decision.class_raise_attempt, decision.notes = "launch", True, {"posture": "open"}
        decision.upstream_us = 12_000
        record.record(decision, event.now)
    return record


def contract() -> dict[str, frozenset[str]]:
    """Return the labels of each metric."""
    lines = CONTRACT.split()
    return {line.partition("{")[0]: frozenset(line.rstrip("}").partition("{")[2].split(",")) - {""} for line in lines}


@pytest.mark.parametrize("accept", ("", "application/openmetrics-text; version=1.0.0"))
def test_every_metric_has_the_name_and_labels_of_the_contract(folder: Path, accept: str) -> None:
    """Names and labels are fixed; `evenhand_build_info` has its own."""
    found = samples(full(folder), accept)
    labels = {name: frozenset(label for one in of for label in one.labels) - {"le"} for name, of in found.items()}
    assert labels.pop("evenhand_build_info") == {"version", "python"}
    assert labels == {name: expected for name, expected in contract().items() if name != "evenhand_build_info"}


def test_help_and_type_stand_where_there_is_no_sample(folder: Path) -> None:
    """A ratio without a denominator has no sample, its HELP and TYPE always stand; so for what nobody knows."""
    text = telemetry(folder).metrics.render("")[0].decode()
    for name in contract():
        assert f"# HELP {name} " in text
        assert f"# TYPE {name} " in text
    sampled = {line.split(" ")[0].partition("{")[0] for line in text.splitlines() if line.startswith("evenhand_")}
    histograms = {name for name in sampled if "_seconds_" in name}
    assert sampled - histograms == {"evenhand_build_info"}


def test_accept_chooses_the_exposition(folder: Path) -> None:
    """OpenMetrics for who asks for it, else the text format of Prometheus."""
    metrics = telemetry(folder).metrics
    assert metrics.render("*/*")[1].startswith("text/plain; version=0.0.4")
    body, media_type = metrics.render("application/openmetrics-text")
    assert media_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_credentials_that_shadow_lets_through_are_counted_and_told(folder: Path) -> None:
    """Whoever tries a configuration out learns how many callers it would turn away, and why."""
    record_ = telemetry(folder)
    for code in ("invalid-credential", "invalid-credential", "credential-required", ""):
        decision = Event("rejected", kind=Kind.REJECTED).decision()
        decision.notes |= {"rejected": code} if code else {}
        record_.record(decision, START)
    found = {one.labels["limit"]: one for one in samples(record_)["evenhand_refusals_total"]}
    assert {limit: one.value for limit, one in found.items()} == {"invalid-credential": 2, "credential-required": 1}
    assert {(one.labels["tenant"], one.labels["mode"]) for one in found.values()} == {("rejected", "shadow")}
    assert record_.warnings() == [
        "in shadow, 2 requests would have been answered 401 by now: invalid-credential",
        "in shadow, 1 requests would have been answered 401 by now: credential-required",
    ]


def test_counts_and_ratios_are_those_of_the_requests(folder: Path) -> None:
    """Each request is in one series, each refusal in one, and the ratios are the API's."""
    record_ = telemetry(folder)
    for number in range(30):
        record(
            record_, Event("a"), Event("b", Outcome.REFUSED, "share") if number < 21 else Event("b", cls=Class.BATCH)
        )
    record(record_, Event("a", shadow=("key", "login")), Event("a", unenforced="tenant"))
    found = {(one.name, *sorted(one.labels.values())): one.value for of in samples(record_).values() for one in of}
    expected = {
        ("evenhand_requests_total", "a", "interactive", "served"): 32,
        ("evenhand_requests_total", "b", "interactive", "refused"): 21,
        ("evenhand_requests_total", "b", "batch", "served"): 9,
        ("evenhand_refusals_total", "b", "enforce", "interactive", "share"): 21,
        ("evenhand_refusals_total", "a", "interactive", "key", "shadow"): 1,
        ("evenhand_refusals_total", "a", "interactive", "login", "shadow"): 1,
        ("evenhand_refusals_total", "a", "interactive", "shadow", "tenant"): 1,
        ("evenhand_worst_tenant_success_ratio", "1m"): 0.3,
        ("evenhand_lowest_success_ratio", "24h"): 0.3,
        ("evenhand_aggregate_success_ratio", "1h"): 41 / 62,
        ("evenhand_tenant_success_ratio", "5m", "b"): 0.3,
        ("evenhand_tenant_throttled_ratio", "15m", "b"): 0.7,
        ("evenhand_tenant_throttled_ratio", "15m", "a"): 0.0,
    }
    assert {name: found.get(tuple(sorted_name(name))) for name in expected} == expected
    assert sum(one.value for one in samples(record_)["evenhand_requests_total"]) == 62


def sorted_name(name: tuple[str, ...]) -> tuple[str, ...]:
    """Return a name with its label values in order."""
    return name[0], *sorted(name[1:])


def test_gauges_are_asked_and_counted_as_they_are(folder: Path) -> None:
    """What other parts say is shown; quotas only of tenants that have a label."""
    found = samples(full(folder))
    values = {name: {tuple(one.labels.values()): one.value for one in of} for name, of in found.items()}
    assert [(one.labels, one.value) for one in found["evenhand_key_quota"]] == [
        ({"tenant": "acme", "credential": "ci"}, 80.0)
    ]
    assert values["evenhand_backstop_contended"] == {(): 1.0}
    assert values["evenhand_exempted_requests_total"] == {("launch",): 25.0}
    assert sum(values["evenhand_posture_decisions_total"].values()) == 25
    assert sum(values["evenhand_class_raise_attempts_total"].values()) == 25
    modes = {one.labels["mode"]: one.value for one in found["evenhand_policy_mode"]}
    assert modes == {"off": 0.0, "shadow": 1.0, "enforce": 0.0}
    buckets = {one.labels["le"]: one.value for one in found["evenhand_upstream_seconds"] if "le" in one.labels}
    assert (buckets["0.01"], buckets["0.025"], buckets["+Inf"]) == (0.0, 25.0, 25.0)
    totals = {one.name: one.value for one in found["evenhand_upstream_seconds"] if "le" not in one.labels}
    assert totals == {"evenhand_upstream_seconds_count": 25.0, "evenhand_upstream_seconds_sum": pytest.approx(0.3)}


def test_who_is_harmed_most_gets_the_label_then_who_asks_most(folder: Path) -> None:
    """By harm, then volume; what a tenant did before it was labelled stays in `other`."""
    record_ = telemetry(folder, top=2)
    record(record_, *[Event("quiet")] * 2, *[Event("idle")] * 1, *[Event("busy")] * 50)
    record(record_, *[Event("victim", Outcome.REFUSED, "share")] * 9)
    assert totals(record_) == {"quiet": 2, "idle": 1, "other": 59}
    record(record_, *[Event("victim", at=10)] * 3, *[Event("busy", at=10)] * 4, *[Event("quiet", at=10)] * 5)
    assert totals(record_) == {"victim": 3, "busy": 4, "other": 64}


def totals(record_: Telemetry) -> dict[str, float]:
    """Return evenhand_requests_total by tenant."""
    found: dict[str, float] = {}
    for one in samples(record_)["evenhand_requests_total"]:
        found[one.labels["tenant"]] = found.get(one.labels["tenant"], 0) + one.value
    return found


def test_a_label_is_not_lost_to_one_that_ranks_only_just_higher(folder: Path) -> None:
    """Series that come and go are worth less than an exact order."""
    record_ = telemetry(folder, top=1)
    record(record_, *[Event("first")] * 10, *[Event("second")] * 12)
    assert totals(record_) == {"first": 10, "other": 12}
    record(record_, Event("first", at=10))
    assert totals(record_) == {"first": 11, "other": 12}
    record(record_, *[Event("second", at=10)] * 5)
    record(record_, Event("second", at=20))
    assert totals(record_) == {"second": 1, "other": 17}


def test_top_tenants_follows_a_reload_without_moving_a_count(folder: Path) -> None:
    """Fewer labels, more labels: from the next slot on."""
    record_ = telemetry(folder, top=2)
    record(record_, Event("a"), Event("a"), Event("b"))
    assert totals(record_) == {"a": 2, "b": 1}
    loaded = configured(folder, top=1)
    record_.reload(loaded.settings, loaded.policies)
    assert totals(record_) == {"a": 2, "b": 1}
    record(record_, Event("b", at=10))
    assert totals(record_) == {"a": 2, "other": 1}
    loaded = configured(folder, top=0)
    record_.reload(loaded.settings, loaded.policies)
    record(record_, Event("a", at=20))
    assert totals(record_) == {"other": 2}


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.sampled_from((Outcome.SERVED, Outcome.REFUSED)),
            st.integers(1, 30),
            st.sampled_from((0, 0, 4, 10, 61, 4000)),
            st.booleans(),
        ),
        max_size=30,
    ),
    top=st.integers(0, 3),
)
def test_series_never_fall_and_no_request_is_in_two(
    folder: Path, steps: list[tuple[str, Outcome, int, int, bool]], top: int
) -> None:
    """Read as Prometheus reads counters, all labels together have never counted more than there was."""
    clock = StoppedClock()
    record_ = telemetry(folder, clock, top=top)
    at, happened, increased = 0, 0, 0.0
    before: dict[str, float] = {}
    for tenant, outcome, times, pause, look in steps:
        at += pause
        event = Event(tenant, outcome, "share" if outcome is Outcome.REFUSED else "", at=at)
        clock.at = event.now
        record(record_, *[event] * times)
        happened += times
        if not look:
            continue
        now = {label: float(sum(cells.values())) for label, cells in record_.tenants.totals(event.now).items()}
        assert len(now) <= top + 1
        assert now["other"] >= before.get("other", 0)
        for label, value in now.items():
            last = before.get(label, 0)
            increased += value - last if value >= last else value
        assert increased <= happened
        before = now
    if top == 3 and len({step[0] for step in steps}) <= 3 and steps and steps[-1][4]:
        assert increased == happened


def names(found: Iterable[Sample]) -> set[str]:
    """Return the tenants that have a label."""
    return {one.labels["tenant"] for one in found}


def test_ten_thousand_hostile_ids_make_no_more_series_than_the_top(folder: Path) -> None:
    """The number of series is bounded whatever callers send, and every id is a valid label value."""
    clock = StoppedClock()
    record_ = telemetry(folder, clock, top=5, unlisted=2_000)
    record(record_, *[Event(f"calm-{number}") for number in range(6)])
    before = sum(len(of) for of in samples(record_).values())
    hostile = ('quote"}', "line\\nbreak", "comma,=", "ünïcode\u2028", 'evenhand_up{a="b"} 1', "{}", "#", "\\")
    for number in range(10_000):
        event = Event(f"{hostile[number % len(hostile)]}-{number}", at=number * 0.003)
        record(record_, event)
        clock.at = event.now
    found = samples(record_)
    assert len(names(found["evenhand_requests_total"])) <= 6
    assert sum(of.value for of in found["evenhand_requests_total"]) == 10_006
    assert sum(len(of) for of in found.values()) - before < 50
    report = record_.tenants.report("24h", clock.at)
    assert len(report.tenants) == 2_001
    assert {row.tenant: row.offered for row in report.tenants}["other"] == 10_006 - 2_000


def test_buckets_carry_the_id_of_their_last_request_in_openmetrics_alone(folder: Path) -> None:
    """From a slow bucket the way leads to one request that was slow; the older format cannot say it, and does not."""
    record_ = telemetry(folder)
    for name, upstream_us in (("01A", 20_000), ("01B", 24_000), ("x" * 300, 700_000)):
        decision = Event("acme").decision()
        decision.request_id, decision.upstream_us = name, upstream_us
        record_.record(decision, START)
    text = record_.metrics.render("application/openmetrics-text; version=1.0.0")[0].decode()
    said = dict(re.findall(r'evenhand_upstream_seconds_bucket\{le="([^"]+)"\} \S+ # (\{.*)', text))
    assert said == {"0.025": '{request_id="01B"} 0.024', "1.0": f'{{request_id="{"x" * 100}"}} 0.7'}
    assert "request_id" not in record_.metrics.render("text/plain")[0].decode()
