"""The live table, as text."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gateway.demo import show, table
from gateway.demo.drive import Tally
from gateway.demo.table import Gateway, percent

__all__: list[str] = []

TALLIES = {
    "aster": Tally(through=40, attempts=40),
    "birch": Tally(through=3, gave_up=7, attempts=80, failed=2, refused=Counter(backstop=70, key=5)),
    "cedar": Tally(),
    "backfill": Tally(through=2500, attempts=60_000, refused=Counter(key=57_500)),
}
FAIRNESS: dict[str, Any] = {
    "window": "1m",
    "aggregate": {"success": 0.0423, "within_share_refused": 3},
    "worst": {"tenant": "birch", "in_profile_success": 0.05, "interval": [0.0, 0.1]},
    "tenants": [{"tenant": "aster", "in_profile_success": 1.0}, {"tenant": "birch", "in_profile_success": 0.05}],
}


@pytest.mark.parametrize(
    ("part", "text"),
    ((None, "-"), (0.0, "0.0 %"), (1.0, "100.0 %"), (0.9997, "99.9 %"), (0.999, "99.9 %"), (0.3, "30.0 %")),
)
def test_a_part_is_never_rounded_up_to_the_whole(part: float | None, text: str) -> None:
    """100 % means all."""
    assert percent(part) == text


def test_the_screen_says_who_was_refused_by_what() -> None:
    """A row per tenant: calls, success, attempts, refusals by limit, and the gateway's own figure."""
    lines = table.screen("title", table.rows(TALLIES, 10.0), Gateway.of(FAIRNESS))
    by_name = {text.split()[0]: text for text in lines if text.strip()}
    assert by_name["aster"].split() == ["aster", "4.0", "4.0", "100.0", "%", "4.0", "-", "100.0", "%"]
    assert "30.0 %" in by_name["birch"]
    assert "backstop 7.0, key 0.5, failed 0.2" in by_name["birch"]
    assert by_name["birch"].endswith("5.0 %")
    assert by_name["cedar"].split() == ["cedar", "0.0", "0.0", "-", "0.0", "-", "-"]
    assert "6,000" in by_name["backfill"]
    assert max(map(len, lines)) <= 110


def test_the_aggregate_never_stands_alone() -> None:
    """On the screen, in the line of a second, and in the last sentence: the worst stands beside it, with its name."""
    rows = table.rows(TALLIES, 10.0)
    gateway = Gateway.of(FAIRNESS)
    texts = [
        *(text for text in table.screen("", rows, gateway) if "aggregate" in text),
        table.line(7, "backfill", rows, gateway),
        table.sentence("With Evenhand", rows, "backfill"),
    ]
    assert len(texts) == 4
    for text in texts:
        assert "birch" in text
        assert "worst" in text
    assert "99.7 %" in texts[-1]
    assert "30.0 %" in texts[-1]
    assert "86.0 %" in texts[-1], "the light ones together: 43 of 50"


def test_before_anybody_called_there_is_no_ratio() -> None:
    """Nothing is divided by nothing."""
    rows = table.rows({"aster": Tally()}, 1.0)
    assert table.sentence("Nobody", rows, "backfill") == "Nobody: nobody called."
    assert "worst -" in table.screen("", rows, Gateway())[-2]
    assert "aggregate -" in table.line(1, "calm", rows, Gateway())


@pytest.mark.parametrize("document", ({}, {"tenants": None, "worst": None, "aggregate": None}, {"tenants": [1]}))
def test_an_account_without_figures_is_empty(document: dict[str, Any]) -> None:
    """The gateway has no worst tenant before there were twenty requests."""
    assert Gateway.of(document) == Gateway()


@pytest.mark.parametrize(("height", "in_place"), (("50", True), ("10", False)))
def test_a_terminal_is_redrawn_in_place_if_there_is_room(
    height: str, in_place: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines are cut to its width, and drawn over the last ones; a low terminal gets plain lines."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", height)
    screen = show._Screen()
    screen._terminal = True
    rows = table.rows(TALLIES, 10.0)
    screen.live(1, "calm", "title", rows, Gateway())
    first = capsys.readouterr().out
    screen.live(2, "calm", "title", rows, Gateway())
    second = capsys.readouterr().out
    assert "\x1b" not in first
    assert second.startswith("\x1b[") is in_place
    assert (max(map(len, first.splitlines())) <= 60) is in_place
    assert (len(first.splitlines()) == 1) is not in_place
