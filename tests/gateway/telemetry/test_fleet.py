"""What other processes counted is counted once, whatever happens to them or to the way there."""

from __future__ import annotations

import random
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.errors import GatewayError
from gateway.stores.stream import Entry
from gateway.telemetry import Telemetry
from gateway.telemetry.fleet import Fleet
from gateway.telemetry.frames import GROWING, ITS_OWN, MOMENTARY, Inflow, Outflow
from gateway.telemetry.gauges import Gauges
from gateway.telemetry.merged import MEANINGS, Merged
from gateway.telemetry.metrics import Counters
from gateway.telemetry.tap import Tap, pour
from policies.units import SECOND
from policies.verdict import Outcome
from tests.gateway.telemetry.made import Event, StoppedClock, configured

__all__: list[str] = []


class House:
    """One process: its telemetry on a clock that all share."""

    def __init__(self, folder: Path, clock: StoppedClock, url: str = "redis://127.0.0.1:1") -> None:
        loaded = configured(folder, f'[store]\nurl = "{url}"\n')
        self.clock = clock
        self.telemetry = Telemetry(loaded.settings, loaded.policies, clock)

    def count(self, tenant: str, times: int = 1, outcome: Outcome = Outcome.SERVED, limit: str = "") -> None:
        for _ in range(times):
            decision = Event(tenant, outcome, limit).decision()
            decision.decide_ns = 4_000
            self.telemetry.record(decision, self.clock.at)

    def offered(self, scope: str = "fleet", window: str = "1h") -> dict[str, int]:
        report = self.telemetry.figures(scope)[0].report(window, self.clock.at)
        return {row.tenant: row.offered for row in report.tenants}


class Line:
    """A stream as every instance sees it; `down` says that nobody does, `mute` that answers are lost."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.down = self.mute = False
        self.fault = ""

    def end(self) -> Line.End:
        return Line.End(self)

    class End:
        def __init__(self, line: Line) -> None:
            self._line = line
            self._read = len(line.entries)

        def trade(self, instance: str, number: int, body: bytes) -> list[Entry]:
            if self._line.down:
                self._line.fault = "the store is gone"
                raise GatewayError(self._line.fault)
            self._line.entries.append((instance, number, body))
            if self._line.mute:
                self._line.fault = "the store did not answer in time"
                raise GatewayError(self._line.fault)
            found, self._read = self._line.entries[self._read :], len(self._line.entries)
            return found


@pytest.fixture
def clock() -> StoppedClock:
    """Return the clock of all."""
    return StoppedClock()


@pytest.fixture
def two(tmp_path: Path, clock: StoppedClock) -> tuple[House, House]:
    """Return two processes."""
    return House(tmp_path, clock), House(tmp_path, clock)


def test_every_count_is_in_one_delta(two: tuple[House, House], clock: StoppedClock) -> None:
    """Taken at any moments, over slots that close in between, the deltas together are what was counted."""
    source, target = two
    tap, draw = Tap(source.telemetry.tenants), random.Random(7)
    for _ in range(400):
        outcome, limit = draw.choice([(Outcome.SERVED, ""), (Outcome.REFUSED, "key")])
        source.count(draw.choice("abc"), draw.randrange(3), outcome, limit)
        clock.at += draw.choice([0, SECOND, 4 * SECOND])
        if draw.random() < 0.3:
            pour(tap.take(clock.at), target.telemetry.tenants.ledger, clock.at)
    pour(tap.take(clock.at), target.telemetry.tenants.ledger, clock.at)
    assert tap.take(clock.at) == {}
    assert target.offered("self") == source.offered("self") != {}


def test_frames_count_as_if_one_process_had(two: tuple[House, House], clock: StoppedClock) -> None:
    """Counters and histograms grow by what each frame adds; refusals, warnings and addresses come with it."""
    source, parent = two
    source.telemetry.gauges.store_errors = lambda: {"timeout": 3}
    outflow, inflow = Outflow(source.telemetry, lambda: ["careful"]), Inflow(parent.telemetry)
    merged = Merged(parent.telemetry, inflow)
    source.count("a", 5)
    source.count("b", 2, Outcome.REFUSED, "key")
    source.telemetry.untrusted_forwarder("192.0.2.1")
    for _ in range(2):
        frame = orjson.loads(orjson.dumps(outflow.take(clock.at)))
        inflow.add(frame, clock.at)
        merged.put("one", frame, clock.at)
        source.count("a")
    text = parent.telemetry.metrics.render("")[0].decode()
    for line in (
        'evenhand_requests_total{class="interactive",outcome="served",tenant="a"} 6.0',
        'evenhand_refusals_total{class="interactive",limit="key",mode="enforce",tenant="b"} 2.0',
        "evenhand_decision_seconds_count 8.0",
        'evenhand_store_errors_total{kind="timeout"} 3.0',
    ):
        assert line in text.splitlines(), text
    assert [one.limit for one in parent.telemetry.last_refusals.of("b")] == ["key", "key"]
    assert (merged.warnings(), list(parent.telemetry.forwarders)) == (["careful"], ["192.0.2.1"])


GAUGES: list[tuple[str, list[Any], Any]] = [
    ("in_flight", [2, 3], 5),
    ("keys", [10, 7], 17),
    ("connections", [{"caller": 1, "upstream": 2}, {"caller": 4}], {"caller": 5, "upstream": 2}),
    ("store_up", [True, False], False),
    ("backstop_contended", [False, True], True),
    ("backstop_used_ratio", [0.4, 0.5], 0.5),
    ("jwks_age_seconds", [{"i": 3.0}, {"i": 9.0}], {"i": 9.0}),
]


@pytest.mark.parametrize(("name", "values", "together"), GAUGES)
def test_gauges_have_a_meaning_over_processes(
    two: tuple[House, House], clock: StoppedClock, name: str, values: list[Any], together: Any
) -> None:
    """Sums, the highest, the lowest; a process that ended is out at once, a silent one after four seconds."""
    source, parent = two
    merged = Merged(parent.telemetry, Inflow(parent.telemetry))
    for number, value in enumerate(values):
        setattr(source.telemetry.gauges, name, lambda value=value: value)
        merged.put(number, Outflow(source.telemetry).take(clock.at), clock.at)
    assert getattr(parent.telemetry.gauges, name)() == together
    merged.drop(1)
    assert merged.value(name) == values[0]
    clock.at += 5 * SECOND
    assert merged.value(name) is None
    assert {name for name, _, _ in GAUGES} == set(MEANINGS)


def test_whatever_is_measured_has_a_meaning_over_processes() -> None:
    """A gauge or counter that is added later is sorted in here, or it would be missing where there are workers."""
    assert {one.name for one in fields(Gauges)} == {*MOMENTARY, *GROWING, *ITS_OWN}
    assert set(Counters.__slots__) == {"exempted", "posture"}


def test_shares_and_store_are_those_of_the_workers(tmp_path: Path, clock: StoppedClock) -> None:
    """Each worker tells how the whole backstop stands; a store that one of them has lost is lost."""
    parent = House(tmp_path, clock)
    merged = Merged(parent.telemetry, Inflow(parent.telemetry))
    assert (merged.standing(), merged.view(clock.at).level, merged.share_of("a", clock.at)) == (None, 0.0, None)
    told = {
        "up": {"up": True, "cause": None, "lost_seconds": 0, "decided": 1},
        "lost": {"up": False, "cause": "refused", "lost_seconds": 7, "decided": 2},
    }
    for name, standing in told.items():
        view = dict.fromkeys(("unlisted_level", "tokens", "debt", "debt_bound", "demand", "used_ratio"), 0.0)
        backstop = {"contended": name == "lost", "level": 5.0, "tenants": 0, **view}
        frame = {"gauges": {}, "standing": standing, "backstop": backstop, "shares": {"a": 2.5}, "cause": ""}
        merged.put(name, frame, clock.at)
    assert merged.standing() == {"up": False, "cause": "refused", "lost_seconds": 7, "decided": 3}
    assert (merged.view(clock.at).contended, merged.view(clock.at).level) == (True, 5.0)
    share = merged.share_of("a", clock.at)
    assert share is not None
    assert share.share == 2.5
    clock.at += 61 * SECOND
    assert merged.share_of("a", clock.at) is None


def test_any_instance_shows_all(two: tuple[House, House], clock: StoppedClock) -> None:
    """And itself. Ratios are of sums: 90 of 100 here and 0 of 20 there are 75 %."""
    line = Line()
    fleets = [Fleet(house.telemetry, line.end(), name) for house, name in zip(two, ("one", "two"), strict=True)]
    assert fleets[0].scope == "local"
    two[0].count("a", 90)
    two[0].count("a", 10, Outcome.REFUSED, "backstop")
    two[1].count("a", 20, Outcome.REFUSED, "backstop")
    for _ in range(2):
        for fleet in fleets:
            fleet.turn(clock.at)
    for house, own in zip(two, (100, 20), strict=True):
        assert (house.offered(), house.offered("self")) == ({"a": 120}, {"a": own})
        worst = house.telemetry.shown.report("1m", clock.at).worst
        assert worst is not None
        assert worst.in_profile_success == 0.75
    assert [(fleet.scope, list(fleet.others())) for fleet in fleets] == [("fleet", ["two"]), ("fleet", ["one"])]
    assert [one["instance"] for one in fleets[1].instances()] == ["two", "one"]


def test_dead_instance_drops_out_and_stays_counted(two: tuple[House, House], clock: StoppedClock) -> None:
    """Within five seconds out of the list; what it counted is what it counted."""
    line = Line()
    ours, theirs = (Fleet(house.telemetry, line.end()) for house in two)
    two[1].count("a", 30)
    theirs.turn(clock.at)
    ours.turn(clock.at)
    assert len(ours.others()) == 1
    clock.at += 5 * SECOND
    ours.turn(clock.at)
    assert (ours.others(), two[0].offered()) == ({}, {"a": 30})
    clock.at += 20 * 60 * SECOND
    ours.turn(clock.at)
    assert two[0].offered() == {"a": 30}


@pytest.mark.parametrize("fault", ["down", "mute"])
def test_lost_store_leaves_the_local_view(
    two: tuple[House, House], clock: StoppedClock, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so, in the log once; what was counted meanwhile is told later, once, though it may have been written."""
    line = Line()
    ours, theirs = (Fleet(house.telemetry, line.end()) for house in two)
    ours.turn(clock.at)
    theirs.turn(clock.at)
    setattr(line, fault, True)
    for _ in range(4):
        two[0].count("a", 5)
        ours.turn(clock.at)
    assert (ours.scope, two[0].offered()) == ("local", {"a": 20})
    assert "of this instance alone" in ours.warnings()[0]
    setattr(line, fault, False)
    for _ in range(12):
        ours.turn(clock.at)
        theirs.turn(clock.at)
    assert (ours.scope, ours.warnings(), two[1].offered()) == ("fleet", [], {"a": 20})
    assert [text for text in caplog.messages if "figures are of" in text] == [
        f"figures are of this instance alone, as [store] url tells of no others: {line.fault}",
        "the store tells of others again: figures are of the whole fleet",
    ]


STRANGE = {
    "noise": b"?",
    "no JSON": zlib.compress(b"?"),
    "cut off": zlib.compress(b"{}")[:-4],
    "a list": zlib.compress(b"[]"),
    "no counts": zlib.compress(b'{"counts": null, "gauges": {}}'),
    "no gauges": zlib.compress(b'{"counts": {"a": [[0, 0, "", 1]]}, "gauges": []}'),
    "half of it": zlib.compress(b'{"counts": {"a": [[0, 0, "", 1]], "b": [[99, 0, "", 1]]}, "gauges": {}}'),
    "too few": zlib.compress(b'{"counts": {"a": [[0, 0, ""]]}, "gauges": {}}'),
}


def test_entry_that_nobody_can_read_harms_nobody(
    two: tuple[House, House], clock: StoppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Another version of us may write what it likes: nothing of it counts, the others of that turn do; told once."""
    line = Line()
    ours, theirs = (Fleet(house.telemetry, line.end()) for house in two)
    line.entries += [(name, 1, body) for name, body in STRANGE.items()]
    two[1].count("a", 3)
    theirs.turn(clock.at)
    ours.turn(clock.at)
    assert (ours.scope, list(ours.others()), two[0].offered()) == ("fleet", [theirs.name], {"a": 3})
    assert len([line for line in caplog.messages if "makes no sense" in line]) == 2  # once of each


def test_round_that_fails_is_not_the_last(
    two: tuple[House, House], clock: StoppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in one round is logged; the thread goes on, and tells the last of it when it is stopped."""
    line = Line()

    class Broken(Line.End):
        rounds = 0

        def trade(self, instance: str, number: int, body: bytes) -> list[Entry]:
            self.rounds += 1
            if self.rounds == 1:
                raise RuntimeError("a bug")
            return super().trade(instance, number, body)

    ours = Fleet(two[0].telemetry, Broken(line))
    two[0].count("a")
    ours._guarded()
    ours.start()
    ours.stop()
    assert "a round of the fleet failed" in caplog.text
    assert len(line.entries) == 1
