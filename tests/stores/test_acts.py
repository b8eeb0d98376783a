"""Acts of operators: checked, kept, ended, shared between processes, and put over the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.errors import ConfigError
from gateway.stores.acts import MAX_ACTS, ActError, Acts
from policies.policy import Exemption, Match, Policy, Route
from policies.request import Class
from policies.units import SECOND
from tests.gateway.telemetry.made import StoppedClock
from tests.policies.documents import policy_set, quota

__all__: list[str] = []

POLICIES = policy_set(
    routes=(Route("exports", "/exports", cost=5.0),), policies=(Policy("login", Match(), (), quota(1)),)
)
BATCH: dict[str, Any] = {"match": {"class": "batch"}, "for": "30m"}
RAISE: dict[str, Any] = {
    "match": {"tenant": "acme"}, "multiplier": 4, "reason": "launch", "owner": "sre", "for": "1h",
}  # fmt: skip


@pytest.fixture
def clock() -> StoppedClock:
    """Time stands still."""
    return StoppedClock()


@pytest.fixture
def acts(tmp_path: Path, clock: StoppedClock) -> Acts:
    """No acts yet."""
    return Acts(tmp_path / "evenhand.sqlite3", clock)


def test_a_pause_is_put_over_the_policies(acts: Acts) -> None:
    """A pause that is made is in force in what `over` returns, and gone once it is ended."""
    act = acts.add("pause", BATCH | {"reason": "backfill", "owner": "sre"}, POLICIES)
    (pause,) = acts.over(POLICIES).pauses
    assert (pause.match.cls, pause.reason, pause.expires_us) == (Class.BATCH, "backfill", act.expires_us)
    assert acts.end("exemption", act.id) is None
    assert acts.end("pause", act.id) == act
    assert acts.end("pause", act.id) is None
    assert acts.over(POLICIES).pauses == ()


def test_an_exemption_is_put_beside_the_configured_ones(acts: Acts) -> None:
    """An exemption by act stands beside those of the file, and asking twice does not put it there twice."""
    configured = Exemption("launch", Match(tenant="beta"), "why", "who", 10**18, multiplier=2.0)
    acts.add("exemption", RAISE | {"name": "more", "policies": ["login"]}, POLICIES)
    acts.add("exemption", RAISE | {"multiplier": None, "quota": "200/s"}, POLICIES)
    once = acts.over(policy_set(exemptions=(configured,), routes=POLICIES.routes))
    assert [one.name for one in acts.over(once).exemptions] == ["launch", "more", acts.current[1].id]
    assert (once.exemptions[1].multiplier, once.exemptions[1].policies) == (4.0, ("login",))
    assert once.exemptions[2].quota == quota(200, 200.0)


def test_kept_over_a_restart(acts: Acts, clock: StoppedClock, tmp_path: Path) -> None:
    """An act is there after a restart, an ended one is not."""
    kept = acts.add("pause", BATCH, POLICIES)
    acts.end("pause", acts.add("pause", BATCH, POLICIES).id)
    again = Acts(tmp_path / "evenhand.sqlite3", clock)
    again.poll()
    assert again.current == (kept,)
    again.close()


def test_another_process_sees_it(acts: Acts, clock: StoppedClock, tmp_path: Path) -> None:
    """A process that polls the same file sees what another one made and ended."""
    other = Acts(tmp_path / "evenhand.sqlite3", clock)
    other.poll()
    act = acts.add("pause", BATCH, POLICIES)
    other.poll()
    assert (other.current, other.version) == ((act,), 1)
    acts.end("pause", act.id)
    other.poll()
    assert (other.current, other.version) == ((), 2)
    other.close()


def test_ends_by_the_clock(acts: Acts, clock: StoppedClock) -> None:
    """An act ends at its expiry, and the version says that something changed."""
    acts.add("pause", BATCH, POLICIES)
    clock.at += 1800 * SECOND
    assert acts.of("pause") == []
    acts.poll()
    assert (acts.current, acts.version) == ((), 2)
    acts.close()


@pytest.mark.parametrize(
    ("kind", "asked", "fault"),
    [
        ("pause", [], "body: expected an object"),
        ("pause", {"match": {"class": "batch"}}, "expires: expected a date and time"),
        ("pause", {"match": {}, "for": "1h"}, "match: expected a tenant"),
        ("pause", BATCH | {"for": "soon"}, "for: expected a duration"),
        ("pause", BATCH | {"for": "91d"}, "expires: expected an instant within"),
        ("pause", BATCH | {"for": None, "expires": "2001-01-01T00:00:00Z"}, "expires: expected an instant within"),
        ("pause", BATCH | {"for": None, "expires": "tomorrow"}, "expires: expected a date and time"),
        ("pause", BATCH | {"match": {"route": "nowhere"}}, "match.route: expected the name of a known route"),
        ("pause", BATCH | {"colour": "red"}, "colour: unknown key"),
        ("exemption", RAISE | {"quota": "1/s"}, "multiplier: expected one of"),
        ("exemption", RAISE | {"multiplier": None}, "multiplier: expected one of"),
        ("exemption", RAISE | {"policies": ["gone"]}, "policies: expected the name of a known policy"),
        ("exemption", RAISE | {"owner": ""}, "owner: expected a string"),
        ("exemption", RAISE | {"match": {"class": "batch"}}, "match: expected a tenant or a credential"),
    ],
)
def test_what_is_wrong_is_told(acts: Acts, kind: Any, asked: Any, fault: str) -> None:
    """An act that cannot be obeyed says what was expected, and nothing is kept."""
    with pytest.raises(ConfigError) as raised:
        acts.add(kind, asked, POLICIES)
    assert fault in str(raised.value)
    assert acts.current == ()


def test_bounded(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are at most so many acts at a time."""
    monkeypatch.setattr(acts.registry, "most", 1)
    acts.add("pause", BATCH, POLICIES)
    with pytest.raises(ActError, match="already"):
        acts.add("pause", BATCH, POLICIES)
    assert MAX_ACTS == 1000


def test_a_file_that_cannot_be_used(tmp_path: Path, clock: StoppedClock) -> None:
    """A file that is none of ours makes no act, and a warning; nothing else stops."""
    path = tmp_path / "evenhand.sqlite3"
    path.write_bytes(b"not a database, and longer than a header of one" * 30)
    acts = Acts(path, clock)
    with pytest.raises(ActError):
        acts.add("pause", BATCH, POLICIES)
    acts.poll()
    assert "cannot be read" in acts.warnings()[0]
    acts.close()


def test_a_posture_is_put_over_the_policies(acts: Acts) -> None:
    """For all or for one route that there is; the configured ones come back when it ends."""
    asked = {"posture": "deny:20", "for": "1h", "reason": "store maintenance", "owner": "sre"}
    made = acts.add("posture", asked, POLICIES)
    acts.add("posture", {"posture": "closed", "route": "exports", "for": "1h"}, POLICIES)
    set_ = [(one.posture, one.route) for one in acts.over(POLICIES).posture_acts]
    assert set_ == [("deny:20", None), ("closed", "exports")]
    with pytest.raises(ConfigError) as raised:
        acts.add("posture", {"posture": "ajar", "route": "none", "for": "1h"}, POLICIES)
    assert [fault.path for fault in raised.value.faults] == ["posture"]
    with pytest.raises(ConfigError, match="known route"):
        acts.add("posture", {"posture": "open", "route": "none", "for": "1h"}, POLICIES)
    assert acts.end("posture", made.id) == made
    assert [one.route for one in acts.over(POLICIES).posture_acts] == ["exports"]
