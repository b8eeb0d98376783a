"""The simulator itself: what a call is, who comes back when, and that a crowd is its callers one by one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from loadtest.__main__ import main
from loadtest.plot import svg
from loadtest.report import holds, table, text
from loadtest.scenarios.catalogue import CATALOGUE
from loadtest.sim.figures import Figures
from loadtest.sim.maxmin import maxmin
from loadtest.sim.model import (
    GIVE_UP,
    OBEY,
    Arrivals,
    Callers,
    Check,
    Herd,
    Loop,
    Mint,
    Mode,
    Rate,
    Scenario,
    TenantLoad,
    hammer,
)
from loadtest.sim.run import simulate
from tests.oracle import exact_maxmin

__all__: list[str] = []

pytestmark = pytest.mark.untraced


def run(*callers: Callers, quota: Rate | None = None, mode: Mode = Mode.EVENHAND, seconds: float = 10.0) -> Figures:
    """Let one tenant's callers loose on a service of 100/s."""
    load = TenantLoad("a", callers, quota=quota)
    return simulate(Scenario("s", "one tenant", Rate(100), (load,), seconds, measure_from=0.0), mode)


def test_same_seed_same_figures() -> None:
    """A run is a function of scenario, mode and seed."""
    scenario = replace(CATALOGUE["busy-hour"], seconds=3.0, measure_from=1.0)
    assert simulate(scenario, Mode.EVENHAND, 7).rows == simulate(scenario, Mode.EVENHAND, 7).rows
    assert simulate(scenario, Mode.EVENHAND, 7).rows != simulate(scenario, Mode.EVENHAND, 8).rows


def test_call_is_one_however_often_it_is_refused() -> None:
    """A caller that comes back every 50 ms makes one call of many attempts, until it is served."""
    row = run(Herd(30, hammer(0.05)), quota=Rate(10, burst=10)).rows[0]
    assert (row.calls, row.served, row.failed) == (30, 30, 0)
    assert row.served_at_once == 10
    assert row.attempts > 60
    assert row.most_refused >= 20
    assert 1.8 <= row.longest <= 2.2


def test_call_ends_at_its_deadline() -> None:
    """A call that was not admitted by then has failed; one that gives up at once fails at its first refusal."""
    row = run(Herd(30, hammer(0.05), deadline=0.5), quota=Rate(10, burst=10)).rows[0]
    assert row.calls == 30
    assert row.failed == pytest.approx(15, abs=1)
    row = run(Herd(30, GIVE_UP), quota=Rate(10, burst=10)).rows[0]
    assert (row.served, row.failed, row.attempts) == (10, 20, 30)
    row = run(Herd(30, OBEY, deadline=1.5), quota=Rate(10, burst=10)).rows[0]
    assert row.served + row.failed == 30


def test_obedient_callers_stay_away_for_whole_seconds() -> None:
    """Whoever is told two seconds comes back after two seconds, and not before."""
    figures = run(Herd(30, OBEY), quota=Rate(10, burst=10))
    seconds = {slot // 10 for slot, attempts in enumerate(figures.attempts) if attempts}
    assert all(slot % 10 == 0 for slot, attempts in enumerate(figures.attempts) if attempts)
    assert seconds >= {0, 1, 2}
    assert figures.rows[0].served == 30


def test_closed_loop_keeps_its_calls_in_flight() -> None:
    """Ten callers of 20 ms at most make a thousand calls a second if nothing stops them; with a stop, they end."""
    free = run(Loop(10, GIVE_UP, stop=5.0), quota=Rate(100_000), mode=Mode.SHARED_BUCKET)
    assert free.rows[0].attempts == pytest.approx(5_000, rel=0.15)
    assert free.rows[0].admitted == pytest.approx(100 + 500, rel=0.1)


def test_crowd_is_its_callers() -> None:
    """As one process that skips what is refused for certain, or caller by caller: the same is served and tried."""
    beside = Arrivals(20, hammer(0.02), deadline=0.3)
    loads = [Loop(60, hammer(0.02)), Loop(60, hammer(0.02), deadline=1e6)]
    seen = []
    for loop in loads:
        tenants = (TenantLoad("crowd", (loop,)), TenantLoad("light", (beside,)))
        figures = simulate(Scenario("s", "", Rate(100), tenants, 60.0, 5.0), Mode.SHARED_BUCKET)
        seen.append(figures)
    assert seen[0].rows[0].admitted == pytest.approx(seen[1].rows[0].admitted, rel=0.03)
    assert seen[0].rows[0].attempts == pytest.approx(seen[1].rows[0].attempts, rel=0.03)
    assert seen[0].call_success("light") == pytest.approx(seen[1].call_success("light"), abs=0.04)


def test_minted_tenants_are_each_somebody_else() -> None:
    """With three calls each, 90 calls are 30 tenants; none of them is listed."""
    load = TenantLoad("minted", (Mint(30.0, calls=3, stop=3.0),), listed=False)
    figures = simulate(Scenario("s", "", Rate(1_000), (load,), 3.0, 0.0))
    assert figures.rows[0].attempts == pytest.approx(90, abs=30)
    assert figures.rows[0].call_success == 1.0


def test_even_arrivals_and_lumps_come_at_their_rate() -> None:
    """Evenly, or five at a time: the rate is the same."""
    for callers in (Arrivals(50, even=True), Arrivals(50, together=5), Arrivals(50, start=0.0, stop=10.0)):
        assert run(callers).rows[0].calls == pytest.approx(500, rel=0.15)


def test_report_says_what_held_and_what_did_not() -> None:
    """A line that must hold says what was measured and what was asked; one that does not, FAILS."""
    checks = (
        Check("calls per second", lambda f: f.rate("a"), least=1.0, most=1_000.0, unit="/s"),
        Check("exactly nothing", lambda f: f.rate("a"), least=0.0, most=0.0),
        Check("for another mode", lambda f: f.rate("a"), mode=Mode.KEYS_ONLY),
    )
    tenants = (TenantLoad("a", (Arrivals(20),)), *(TenantLoad(f"b{i}", (Arrivals(2),), group="b") for i in range(6)))
    scenario = Scenario("s", "a report", Rate(100), tenants, 10.0, 1.0, changes=(3.0,), checks=checks)
    figures = simulate(scenario)
    report = text(figures)
    assert "holds  calls per second" in report
    assert "FAILS  exactly nothing" in report
    assert "is 0" in report
    assert "another mode" not in report
    assert "b (6)" in report
    assert "b5" in text(figures, every=True)
    assert "convergence" in report
    assert [held for _, _, held in holds(figures)] == [True, False]
    assert "no attempts" not in report
    assert len(figures.convergence) == 1


def test_table_lines_up() -> None:
    """The first column to the left, the others to the right."""
    assert table(("a", "b"), [("xx", "1"), ("y", "22")]).splitlines() == ["a    b", "xx   1", "y   22"]


def test_picture_is_well_formed() -> None:
    """The plot parses as XML, has a line for each group and a dot for each tenant, and quotes what it must."""
    tenants = (TenantLoad("a<b", (Arrivals(20),)), TenantLoad("c", (Arrivals(20),)))
    figures = simulate(Scenario("s", "a & b", Rate(100), tenants, 4.0, 1.0))
    root = ET.fromstring(svg(figures))
    names = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert (names.count("polyline"), names.count("circle")) == (2, 2)


@pytest.mark.parametrize("supply", [0.0, 1.0, 7.5, 100.0])
def test_both_oracles_agree(supply: float) -> None:
    """What the report calls fair is what the tests call fair."""
    demands, weights = [0.0, 1.0, 5.0, 2.0, 30.0], [1.0, 2.0, 0.5, 1.0, 3.0]
    exact = [float(part) for part in exact_maxmin(demands, weights, supply)]
    assert maxmin(demands, weights, supply) == pytest.approx(exact)


def test_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`sim NAME` prints a report and exits 0 if it held; the picture goes where it was asked for."""
    picture = tmp_path / "herd.svg"
    monkeypatch.setattr(sys, "argv", ["loadtest", "sim", "retry-herd-1", "--mode", "evenhand", "--svg", str(picture)])
    assert main() == 0
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    monkeypatch.setattr(sys, "argv", ["loadtest", "soak-shares", "--requests", "20000"])
    assert main() == 0
    assert "must be 0" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["loadtest", "sim"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
