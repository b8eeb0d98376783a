"""The decision log: who gets a line, what is in it, and that writing it never holds anybody up."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry import Telemetry
from gateway.telemetry.decisions import DecisionLog
from policies.charge import NEVER
from policies.policy import Mode
from policies.request import Class, Kind, RequestFacts
from policies.verdict import Outcome
from tests.gateway.telemetry.made import START, Event, StoppedClock, configured

#: Every field of a `request` line, in order: fields are only ever added.
FIELDS = (
    *("ts", "event", "id", "tenant", "credential", "identity", "class", "address", "method", "path", "route", "cost"),
    *(
        "outcome",
        "status",
        "limit",
        "refused",
        "wait_ms",
        "mode",
        "shadow",
        "exemption",
        "ended",
        "posture",
        "duration_ms",
        "upstream_ms",
    ),
    *("sample", "trace_id", "parent_id"),
)
REFUSED = Event("acme", Outcome.REFUSED, "key", status=429)


class Logged:
    """Telemetry that logs to a file, written when it is read."""

    def __init__(self, folder: Path, form: str = "json", sample: float = 1.0) -> None:
        self.path = folder / "decisions.log"
        self.clock = StoppedClock()
        loaded = configured(folder, log=str(self.path), form=form, sample=sample)
        self.telemetry = Telemetry(loaded.settings, loaded.policies, self.clock)

    @property
    def log(self) -> DecisionLog:
        assert self.telemetry.log is not None
        return self.telemetry.log

    def record(self, *events: Event) -> None:
        for event in events:
            self.clock.at = event.now
            self.telemetry.record(event.decision(), event.now)

    def text(self) -> str:
        self.log.sink.flush()
        return self.path.read_text()

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.text().splitlines()]
        return [line for line in found if event in (None, line["event"])]


@pytest.mark.parametrize(
    ("sent", "valid"),
    [
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", True),
        ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-may-come", True),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", False),
        ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", False),
        ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", False),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", False),
        ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", False),
        ("a, b", False),
        (None, False),
    ],
)
def test_the_ids_of_a_trace_are_logged(tmp_path: Path, sent: str | None, valid: bool) -> None:
    """A valid traceparent (W3C Trace Context, section 3.2.2) is told by its ids, anything else is null."""
    logged = Logged(tmp_path)
    decision = Event("acme").decision()
    decision.facts.trace = sent
    logged.telemetry.record(decision, START)
    (line,) = logged.lines()
    expected = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7") if valid else (None, None)
    assert (line["trace_id"], line["parent_id"]) == expected


def test_a_refusal_names_limit_tenant_credential_class_and_wait(tmp_path: Path) -> None:
    """All that is needed to answer "why was I refused", and the fields stand in their order."""
    logged = Logged(tmp_path)
    logged.record(Event("acme", Outcome.REFUSED, "key", status=429, cls=Class.BATCH, shadow=("login",)))
    (line,) = logged.lines()
    assert tuple(line) == FIELDS
    expected = {
        "ts": "2033-05-18T03:35:00.000000Z",
        "event": "request",
        "id": "01JE",
        "identity": "user",
        "tenant": "acme",
        "credential": "ci",
        "class": "batch",
        "limit": "key",
        "refused": ["key"],
        "wait_ms": 1240,
        "outcome": "refused",
        "status": 429,
        "mode": "enforce",
        "shadow": ["login"],
        "cost": 1.0,
        "duration_ms": 5.0,
        "upstream_ms": None,
        "sample": 1.0,
        "trace_id": None,
        "parent_id": None,
        "route": None,
        "exemption": None,
        "ended": None,
        "posture": None,
        "address": "192.0.2.1",
        "method": "GET",
        "path": "/v1/things",
    }
    assert line == expected


def test_a_wait_that_never_ends_is_minus_one_and_no_wait_is_null(tmp_path: Path) -> None:
    """Not yet, never, and not refused are three things."""
    logged = Logged(tmp_path)
    logged.record(REFUSED, Event("acme", Outcome.REFUSED, "key", wait_us=NEVER), Event())
    assert [line["wait_ms"] for line in logged.lines()] == [1240, -1, None]


def test_refusals_are_logged_in_full_up_to_ten_a_second_then_counted(tmp_path: Path) -> None:
    """Per tenant and limit, one counted line a second, and nothing is lost between the two."""
    logged = Logged(tmp_path)
    logged.record(*[REFUSED] * 25, *[Event("other-corp", Outcome.REFUSED, "key")] * 3)
    logged.record(*[Event("acme", Outcome.REFUSED, "share", at=0.5)] * 12)
    assert Counter((line["tenant"], line["limit"]) for line in logged.lines("request")) == {
        ("acme", "key"): 10,
        ("other-corp", "key"): 3,
        ("acme", "share"): 10,
    }
    assert logged.lines("counted") == []
    logged.record(Event("acme", Outcome.REFUSED, "key", at=1.0))
    counted = {line["limit"]: line for line in logged.lines("counted")}
    assert {limit: (line["count"], line["omitted"]) for limit, line in counted.items()} == {
        "key": (25, 15),
        "share": (12, 2),
    }
    assert counted["key"] == {
        "ts": "2033-05-18T03:35:00.000000Z",
        "event": "counted",
        "tenant": "acme",
        "outcome": "refused",
        "limit": "key",
        "mode": "enforce",
        "count": 25,
        "omitted": 15,
    }


def test_the_last_second_is_counted_though_nobody_comes_after_it(tmp_path: Path) -> None:
    """A flood that ends leaves its counted line all the same, once."""
    logged = Logged(tmp_path)
    logged.record(*[REFUSED] * 11)
    logged.clock.at = START + 1_900_000
    assert logged.lines("counted") == []
    logged.clock.at = START + 2_000_000
    assert [line["omitted"] for line in logged.lines("counted")] == [1]
    logged.record(Event("acme", Outcome.REFUSED, "key", at=5.0))
    assert len(logged.lines("counted")) == 1


@given(bursts=st.lists(st.tuples(st.sampled_from((0.0, 0.4, 1.0, 7.0)), st.integers(1, 40)), max_size=12))
def test_lines_and_counted_lines_add_up(
    tmp_path_factory: pytest.TempPathFactory, bursts: list[tuple[float, int]]
) -> None:
    """Every refusal is either a line or in the `omitted` of one."""
    logged = Logged(tmp_path_factory.mktemp("log"))
    at = 0.0
    for pause, times in bursts:
        at += pause
        logged.record(*[Event("acme", Outcome.REFUSED, "key", at=at)] * times)
    logged.clock.at += 3_000_000
    lines = logged.lines()
    logged.log.sink.close()
    full = sum(line["event"] == "request" for line in lines)
    assert full + sum(line.get("omitted", 0) for line in lines) == sum(times for _, times in bursts)


def test_what_was_rejected_failed_or_left_is_logged_like_a_refusal(tmp_path: Path) -> None:
    """Everything that was not served: by its reason, in full up to ten a second."""
    logged = Logged(tmp_path, sample=0.0)
    logged.record(
        *[Event(outcome=Outcome.REJECTED, status=401, code="invalid-credential", judged=False)] * 12,
        Event(outcome=Outcome.REJECTED, status=413),
        Event(outcome=Outcome.UPSTREAM_ERROR, status=502),
        Event(outcome=Outcome.ABORTED, status=0, judged=False),
        Event(outcome=Outcome.REFUSED, limit="connections", status=503),
    )
    found = Counter((line["outcome"], line["limit"], line["status"]) for line in logged.lines("request"))
    assert found == {
        ("rejected", "invalid-credential", 401): 10,
        ("rejected", None, 413): 1,
        ("upstream_error", None, 502): 1,
        ("aborted", None, 0): 1,
        ("refused", "connections", 503): 1,
    }


def test_shadow_refusals_are_logged_in_full_as_shadow(tmp_path: Path) -> None:
    """What a limit would have done is on record before it is switched on."""
    logged = Logged(tmp_path, sample=0.0)
    rejected = Event("rejected", kind=Kind.REJECTED).decision()
    rejected.notes["rejected"] = "invalid-credential"
    logged.record(Event(shadow=("login",)), Event(unenforced="tenant"), Event())
    logged.telemetry.record(rejected, START)
    assert [(line["mode"], line["limit"], line["outcome"]) for line in logged.lines()] == [
        (Mode.SHADOW, "login", "served"),
        (Mode.SHADOW, "tenant", "served"),
        (Mode.SHADOW, "invalid-credential", "served"),
    ]


def test_admissions_are_sampled_by_the_draw(tmp_path: Path) -> None:
    """`admit_sample` of them, each gap by its own draw, and the line says which part it stands for."""
    # With a quarter logged, the gap is 0 below a draw of 1/4, 1 below 7/16, 2 below 37/64.
    draws = iter([0.24, 0.43, 0.44, 0.0, 0.9])
    policies = configured(tmp_path).policies
    log = DecisionLog(tmp_path / "sampled.log", "json", 0.25, policies, lambda: START, lambda: next(draws))
    for number in range(7):
        log.served(Event(path=f"/{number}").decision(), START)
    log.sink.flush()
    lines = [json.loads(line) for line in (tmp_path / "sampled.log").read_text().splitlines()]
    log.sink.close()
    assert [(line["path"], line["sample"]) for line in lines] == [(f"/{number}", 0.25) for number in (0, 2, 5, 6)]


@pytest.mark.parametrize("sample", [0.0, 0.01, 0.3, 1.0])
def test_gaps_log_as_many_as_a_draw_for_each_would(tmp_path: Path, sample: float) -> None:
    """In number and in spread: one after another as often as chance has it."""
    policies = configured(tmp_path).policies
    log = DecisionLog(tmp_path / "sampled.log", "json", 1.0, policies, lambda: START, Random(1).random)
    log.sample = sample
    decision = Event().decision()
    logged: list[int] = []
    log.exported = lambda line: logged.append(line.now)
    for number in range(20_000):
        log.served(decision, START + number)
    log.sink.close()
    together = sum(second == first + 1 for first, second in pairwise(logged))
    assert len(logged) == pytest.approx(20_000 * sample, rel=0.2)
    assert together == pytest.approx(20_000 * sample * sample, rel=0.2, abs=6)


def test_a_reload_changes_sample_and_routes(tmp_path: Path) -> None:
    """`admit_sample` holds from the reload on; a route's name is that of the policies in force."""
    logged = Logged(tmp_path, sample=0.0)
    logged.record(Event())
    loaded = configured(tmp_path, '[[routes]]\nname = "all"\npath = "/**"\n', log=str(logged.path))
    logged.telemetry.reload(loaded.settings, loaded.policies)
    decision = Event().decision()
    decision.route, decision.sent, decision.upstream_us = 0, True, 2500
    logged.telemetry.record(decision, START)
    assert [(line["route"], line["upstream_ms"]) for line in logged.lines()] == [("all", 2.5)]


HOSTILE = ("\n", '"', "\\", "\x00", "\x1b[2J", "\ud800", "\u2028", "é", " ", "%", "</script>", '"}\n{"event":"x"}')


@given(text=st.lists(st.sampled_from((*HOSTILE, "a")), max_size=400).map("".join), form=st.sampled_from(
    ("json", "common", "combined")
))  # fmt: skip
def test_what_callers_made_never_leaves_its_field_or_its_length(
    tmp_path_factory: pytest.TempPathFactory, text: str, form: str
) -> None:
    """One line each, of bounded length, whatever path, credential and tenant say."""
    logged = Logged(tmp_path_factory.mktemp("hostile"), form)
    proved = text.replace("\ud800", "")  # ids are UTF-8 by the time they name anybody
    logged.record(Event(proved or "t", path=text, credential=proved, kind=Kind.ANONYMOUS))
    lines = logged.text().split("\n")
    logged.log.sink.close()
    assert len(lines) == 2
    assert lines[1] == ""
    assert len(lines[0].encode()) < 4096
    if form == "json":
        line = json.loads(lines[0])
        assert line["event"] == "request"
        assert line["path"].startswith(text[:256].encode("utf-8", "backslashreplace").decode())
    else:
        assert re.fullmatch(APACHE[form], lines[0])


APACHE = {
    "common": r'\S+ - \S+ \[\d\d/\w{3}/\d{4}(:\d\d){3} \+0000\] "[^"\\]*(\\x[0-9a-f]{2}[^"\\]*)*" \d{3} -',
}
APACHE["combined"] = APACHE["common"] + ' "-" "-"'


@pytest.mark.parametrize(
    ("form", "expected"),
    (
        ("common", '192.0.2.1 - acme/ci [18/May/2033:03:35:00 +0000] "GET /v1/things HTTP/1.1" 429 -\n'),
        ("combined", '192.0.2.1 - acme/ci [18/May/2033:03:35:00 +0000] "GET /v1/things HTTP/1.1" 429 - "-" "-"\n'),
    ),
)
def test_the_formats_of_httpd_hold_requests_only(tmp_path: Path, form: str, expected: str) -> None:
    """There is no place in them for counted lines and summaries."""
    logged = Logged(tmp_path, form)
    logged.record(*[REFUSED] * 11)
    logged.log.event("fairness", START, {})
    logged.clock.at += 5_000_000
    assert logged.text() == expected * 10


@pytest.mark.parametrize(("method", "path"), [("", ""), ("CONNECT", ""), ("", "/a")])
def test_httpd_writes_a_dash_for_what_could_not_be_read(tmp_path: Path, method: str, path: str) -> None:
    """A request line that was none is no empty one, nor is the address of a caller who has none."""
    logged = Logged(tmp_path, "common")
    decision = Event(
        "rejected", Outcome.REJECTED, status=400, kind=Kind.REJECTED, credential="", judged=False
    ).decision()
    decision.facts = RequestFacts(method, path, "")
    logged.telemetry.record(decision, START)
    line = logged.text()
    assert line == '- - rejected/ [18/May/2033:03:35:00 +0000] "-" 400 -\n'
    assert re.fullmatch(APACHE["common"], line.rstrip())


def test_once_a_minute_the_aggregate_stands_beside_the_worst(tmp_path: Path) -> None:
    """In the log as everywhere, and only where there was traffic."""
    logged = Logged(tmp_path, sample=0.0)
    refused = Event("b", Outcome.REFUSED, "share", at=20)
    logged.record(*[Event("a", at=20)] * 30, *[refused] * 14, *[Event("b", at=20)] * 6)
    logged.telemetry.keep(START + 30_000_000)
    logged.telemetry.keep(START + 60_000_000)
    logged.telemetry.keep(START + 61_000_000)
    logged.telemetry.keep(START + 600_000_000)
    (line,) = logged.lines("fairness")
    assert line["window"] == "1m"
    assert line["aggregate"]["success"] == pytest.approx(36 / 50)
    assert (line["worst"]["tenant"], line["worst"]["in_profile_success"]) == ("b", 0.3)


def test_lines_that_were_lost_are_told_once(tmp_path: Path) -> None:
    """`dropped` says how many, when there is room again."""
    logged = Logged(tmp_path)
    logged.log.sink._max_bytes = 1000
    logged.record(*[REFUSED] * 9)
    assert logged.log.sink.dropped > 0
    assert [line["count"] for line in logged.lines("dropped")] == [logged.log.sink.dropped]
    assert len(logged.lines("dropped")) == 1
