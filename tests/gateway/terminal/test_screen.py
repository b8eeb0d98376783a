"""The terminal's screen: the worst beside the aggregate, everything as text, nothing wider than the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.terminal.screen import fitted, plain, screen, visible

__all__: list[str] = []

HOSTILE = "<b>\u202eevil\u202c\x1b[31m\u200b\u3164"


def row(tenant: str, success: float | None, **more: Any) -> dict[str, Any]:
    """Return one tenant's row."""
    return {
        "tenant": tenant, "in_profile_success": success, "success": success, "rate": 3.5, "refused": {},
        "quota": None, "share": None, **more,
    }  # fmt: skip


def snapshot(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a snapshot of the stream."""
    worst = {"tenant": rows[0]["tenant"], "in_profile_success": rows[0]["in_profile_success"]} if rows else None
    return {
        "at": "2026-11-30T02:20:00.000+00:00", "window": "1m", "worst": worst, "contended": True, "total": len(rows),
        "aggregate": {"success": 0.9999, "within_share_refused": 0},
        "backstop": {"capacity": 200.0, "used": 0.5, "level": 12.5}, "band": [], "heavy": [], "tenants": list(rows),
    } | more  # fmt: skip


def test_the_worst_stands_beside_the_aggregate() -> None:
    """The first line has both, and nothing short of all reads as 100 %."""
    first, second, *_ = screen(snapshot(row("acme", 0.304)), 200, 50, colours=False)
    assert "aggregate 99.9 %" in first
    assert "worst 30.4 % (acme)" in first
    assert "CONTENDED" in second


@pytest.mark.parametrize(
    ("scope", "said"),
    [({}, ""), ({"scope": "fleet", "instances": 1}, "1 instance"), ({"scope": "fleet", "instances": 3}, "3 instances"),
     ({"scope": "local", "instances": 1}, "THIS INSTANCE ALONE")],
)  # fmt: skip
def test_it_says_whose_figures_these_are(scope: dict[str, Any], said: str) -> None:
    """Of the fleet, or of the one instance that is known; where there is but one, nothing."""
    first = screen(snapshot(row("acme", 1.0), **scope), 200, 50, colours=False)[0]
    assert first.endswith(said or "within share refused 0")


def test_what_it_says_of_a_tenant() -> None:
    """A row says by which limits it was refused, its quota with provenance, and its share."""
    quota = {"rate": 20.0, "provenance": "initial"}
    line = screen(
        snapshot(row("acme", 0.5, refused={"key": 1, "share": 9}, quota=quota, share=8.0)), 200, 50, colours=False
    )[-1]
    assert line.startswith("v acme")
    assert "share 9, key 1" in line
    assert "20/s initial" in line
    assert line.endswith("8")


def test_the_band_and_the_heavy_are_told() -> None:
    """What does not hold as usual stands above the list, and so does who asks for too much."""
    band = [{"kind": "paused", "text": "class batch", "act": "pause-1"}, {"kind": "off", "text": "policy login"}]
    lines = screen(snapshot(band=band, heavy=[row("bulk", 0.1, share=2.0)]), 200, 50, colours=True)
    assert any("! paused: class batch [pause-1]" in line for line in lines)
    assert any("over its share: bulk asks 3.5/s, its share 2/s" in line for line in lines)
    assert "worst - (nobody)" in lines[0]


def test_hostile_ids_are_text() -> None:
    """Controls, direction marks and invisible letters are spelled out, wherever an id is shown."""
    rows = [row(HOSTILE, None, refused={HOSTILE: 2})]
    band = [{"kind": "exempt", "text": HOSTILE}]
    text = "\n".join(screen(snapshot(*rows, band=band, heavy=rows), 500, 50, colours=False))
    assert "<b><U+202E>evil<U+202C><U+001B>[31m<U+200B><U+3164>" in text
    assert not set(text) & set("\u202e\u202c\x1b\u200b\u3164")


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 5, "abcd~"),
        ("\u5ba2\u6237\u4e00", 5, "\u5ba2\u6237~"),
        ("e\u0301a", 3, "e\u0301a "),
    ],
)
def test_cells_count_columns(text: str, width: int, expected: str) -> None:
    """Wide letters take two columns, combining ones none."""
    assert fitted(text, width) == expected


def test_fits_the_terminal() -> None:
    """No line is wider and no screen higher than the terminal; what is left out is counted."""
    many = snapshot(*(row(f"tenant-{number}", 1.0) for number in range(100)))
    lines = screen(many, 40, 12, colours=True)
    assert len(lines) == 11
    assert lines[-1].startswith("... 94 more")
    assert all(len(line.replace("\x1b[0m", "").split("m", 1)[-1]) <= 40 for line in lines)


def test_acts_are_told_in_a_line() -> None:
    """An act shows its id, what it covers and how long."""
    pause = {
        "id": "pause-1",
        "match": {"class": "batch"},
        "expires": "2026-11-30T02:50:00Z",
        "reason": HOSTILE,
        "owner": "",
    }
    raised = {"id": None, "match": {"tenant": "acme"}, "expires": "x", "multiplier": 2.0}
    quota = {"id": "e", "match": {"tenant": "acme"}, "expires": "x", "quota": "5/s"}
    assert list(plain([pause, raised, quota])) == [
        f"pause-1  class batch  until 2026-11-30T02:50:00Z  {visible(HOSTILE)}",
        "gateway.toml  tenant acme x 2  until x",
        "e  tenant acme at 5/s  until x",
    ]
