"""Case 67: nobody can miss that limits are not counted: a gauge with its cause, a counter, a mark, and one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.cli import run
from tests.wire.lost import POSTURES, Lost
from tests.wire.toml import written
from tests.wire.waiting import SLACK, until

__all__: list[str] = []


async def test_an_outage_is_seen(lost: Lost) -> None:
    """What is marked is what is counted and logged, for each posture; one line when it begins, one when it is over."""
    gateway = lost.gateway
    before, lines = lost.decided(), gateway.stderr.count("\n")
    tenants = {posture: lost.fresh() for posture in POSTURES}
    lost.proxy.down()
    await lost.lost(within=1.0 + SLACK)
    assert gateway.metrics().value("evenhand_store_up") == 0
    marked = dict.fromkeys(POSTURES, 0)
    for posture in POSTURES:
        answers = await lost.ask(posture, 5, tenants[posture])
        marked[posture] = sum(answer.header("evenhand-degraded") == "store" for answer in answers)
    assert marked == dict.fromkeys(POSTURES, 5)
    assert {name: lost.decided()[name] - before.get(name, 0) for name in POSTURES} == marked
    ready = gateway.ask("/readyz")
    (sentence,) = ready.json()["degraded"]
    assert ready.status == 200
    assert sentence in ready.json()["warnings"]
    assert "safe-capacity decides where no route says otherwise" in sentence
    standing = lost.standing()
    assert (standing["up"], standing["cause"] in sentence) == (False, True)
    await lost.heal(within=2.0 + SLACK)
    assert gateway.metrics().value("evenhand_store_up") == 1

    def told() -> list[str]:
        return [line for line in gateway.stderr.splitlines()[lines:] if "the store" in line]

    await until(lambda: len(told()) >= 2, "both lines are in the log")
    gone, back = told()
    assert "the store does not answer (" in gone
    assert "the store answers again: 20 requests were decided without it" in back

    def postures() -> list[Any]:
        lines = [line for line in gateway.log_lines() if line["event"] == "request"]
        return [line["posture"] for line in lines if line["tenant"] in tenants.values()]

    await until(lambda: len(postures()) >= 20, "every request is in the decision log")
    assert {posture: postures().count(posture) for posture in POSTURES} == marked


@pytest.mark.parametrize("command", ["check", "serve"])
def test_workers_that_share_nothing_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Four processes on `memory:` would each allow the whole of every limit: one sentence, and nothing starts."""
    file = tmp_path / "gateway.toml"
    config = {"server": {"workers": 4}, "upstream": {"url": "http://127.0.0.1:9"}, "backstop": {"quota": "5/s"}}
    file.write_text(written(config), encoding="utf-8")
    assert run([command, "-c", str(file)]) == 2
    said = capsys.readouterr().err
    assert said == (
        f"{file}: server.workers: expected 1, since [store] url is memory:, which no two processes share, found 4\n"
    )
