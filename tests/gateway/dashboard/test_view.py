"""What the page is told: the band, the last minutes, what is stored, and what a tenant may spend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.dashboard.band import Band
from gateway.dashboard.past import Past
from gateway.dashboard.recent import EVERY, POINTS, Recent
from gateway.dashboard.view import quota_of
from gateway.errors import GatewayError
from gateway.telemetry.codebook import Codebook, Tally
from gateway.telemetry.refusals import KEPT, MAX_TENANTS, LastRefusals
from gateway.telemetry.slots import SLOT, Slot
from policies.charge import NEVER
from policies.policy import Exemption, Match, Pause, PostureAct, TenantRules
from policies.request import Class, Kind
from policies.units import SECOND
from policies.verdict import Outcome
from tests.gateway.dashboard.crowd import Crowd
from tests.gateway.telemetry.made import START, Event, StoppedClock
from tests.policies.documents import acme, credential, policy_set, quota, tenants

__all__: list[str] = []


def band(ready: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """Return the entries of a band; acts are called after what they made."""
    policies = policy_set(**changes)
    noted = {"checks": [], "warnings": [], "off": [], "shadow": []} | ready
    return Band(lambda: noted, lambda: policies, lambda: {"halt": "pause-1"}, StoppedClock()).entries()


def test_the_band_holds_all_that_does_not_hold_as_usual() -> None:
    """Degraded first, then paused, shadow, off, exempt and warnings; acts carry the id to end them by."""
    found = band(
        {
            "checks": [{"name": "store", "ok": False, "detail": "gone"}, {"name": "loop", "ok": True, "detail": ""}],
            "warnings": ["policy login is off: it limits nobody", "the canary pat does not find what it expects"],
            "off": ["login"],
            "shadow": ["policy tried"],
        },
        pauses=(
            Pause("halt", Match(cls=Class.BATCH, identity=Kind.JOB), "backfill", "sre", START + 60 * SECOND),
            Pause("ended", Match(cls=Class.BATCH), "", "", START),
        ),
        exemptions=(
            Exemption("launch", Match(tenant="acme"), "launch", "sre", START + SECOND, multiplier=4.0),
            Exemption("more", Match(tenant="acme", credential="ci"), "", "", START + SECOND, quota=quota(200)),
            Exemption("over", Match(tenant="acme"), "", "", START, multiplier=4.0),
        ),
    )
    assert [(one["kind"], one["text"].partition(" until")[0]) for one in found] == [
        ("degraded", "store: gone"),
        ("paused", "class batch, identity job"),
        ("shadow", "policy tried"),
        ("off", "policy login"),
        ("exempt", "tenant acme at 4 times its quota"),
        ("exempt", "tenant acme, credential ci at 200/s"),
        ("warning", "the canary pat does not find what it expects"),
    ]
    assert found[1] == {
        "kind": "paused",
        "text": "class batch, identity job until 2033-05-18 03:36 UTC (backfill, sre)",
        "act": "pause-1",
    }


def test_the_band_says_that_the_store_is_lost_and_which_posture_was_set() -> None:
    """Once, as degraded and not as a warning besides; acts can be ended from there."""
    lost = "the store does not answer (timeout): closed decides where no route says otherwise"
    act = PostureAct("halt", "deny:5", "exports", "maintenance", "sre", START + SECOND)
    found = band({"degraded": [lost], "warnings": [lost]}, posture_acts=(act,))
    assert [entry["kind"] for entry in found] == ["degraded", "posture"]
    assert found[1]["text"].startswith("without a store deny:5 decides on route exports until 2033-05-18")
    assert (found[1]["text"][-18:], found[1]["act"]) == ("(maintenance, sre)", "pause-1")
    failing = {"name": "store", "ok": False, "detail": lost}
    assert [entry["text"] for entry in band({"degraded": [lost], "checks": [failing]})] == [f"store: {lost}"]


def test_the_band_is_no_longer_than_people_read() -> None:
    """What is left out is counted."""
    found = band({"warnings": [f"warning {number}" for number in range(50)]})
    assert (len(found), found[-1]["text"]) == (31, "and 20 more: see /readyz")


def test_the_last_ten_minutes_of_a_tenant() -> None:
    """Sparklines have a point for each twenty seconds, null where nothing came; who is unseen for long is forgotten."""
    book = Codebook()
    served, refused = book.code(Tally.SERVED, Class.BATCH), book.code(Tally.OVER, Class.BATCH, "share")
    recent = Recent(book)
    first = START // SLOT
    recent.add(Slot(first, {"acme": {served: 30, refused: 10}}))
    recent.add(Slot(first + 1, {"acme": {served: 20}, "gone": {served: 1}}))
    now = (first + 2) * SLOT
    assert recent.spark("acme", now) == {"success": [None] * 29 + [83.3], "offered": [0.0] * 29 + [3.0]}
    assert [(one.offered, dict(one.refused)) for one in recent.points("acme", now)] == [(40, {"share": 10}), (20, {})]
    assert recent.points("nobody", now) == []
    recent.add(Slot(first + 3 * POINTS, {"acme": {served: 1}}))
    assert recent.points("gone", now) == []


def test_the_last_refusals_of_a_tenant() -> None:
    """The newest first, a few of each second, so that a flood leaves what came before it; bounded whatever comes."""
    last = LastRefusals()

    def refuse(tenant: str, at: float, wait_us: int = SECOND) -> None:
        event = Event(tenant, Outcome.REFUSED, "key", at=at, status=429, wait_us=wait_us)
        last.note(event.decision(), event.now)

    for number in range(100):
        refuse("acme", number * 0.001)
    for number in range(50):
        refuse("acme", 2 + number, NEVER)
    found = last.of("acme")
    assert (len(found), found[0].at_us, found[0].wait_us) == (KEPT, START + 51 * SECOND, NEVER)
    for number in range(3):
        refuse("beta", 0.001 * number)
    refuse("beta", 0.1)
    refuse("beta", 0.2)
    refuse("beta", 1.2)
    assert [one.at_us - START for one in last.of("beta")] == [1_200_000, 100_000, 2_000, 1_000, 0]
    for number in range(MAX_TENANTS):
        refuse(f"tenant-{number}", 100)
    assert last.of("acme") == []
    assert last.of("tenant-7")[0].limit == "key"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (acme(credential("ci", quota(10)), credential("cd")), (30.0, "configured, initial", "enforce, shadow", 2)),
        (acme(credential("ci"), quota=quota(50)), (50.0, "configured", "enforce", 1)),
        (acme(), None),
        (TenantRules("other"), None),
    ],
)
def test_quota_with_its_provenance(entry: TenantRules, expected: tuple[object, ...] | None) -> None:
    """The tenant's own where it has one, else the sum over its keys; nothing of a tenant that nobody listed."""
    found = quota_of(policy_set(tenants=tenants(entry)), "acme")
    if found is not None:
        assert expected == (found["rate"], found["provenance"], found["mode"], found["keys"])
    else:
        assert expected is None


def test_without_a_history_there_is_no_past() -> None:
    """A process that keeps none says so, and explains what is configured."""
    past = Past(None, StoppedClock())
    with pytest.raises(GatewayError, match="no history"):
        past.headlines("24h")
    assert past.explain(policy_set(), "nobody") == []
    assert past.explain(policy_set(), "acme")[0].startswith("acme")


def test_the_whole_is_sampled_every_few_seconds(tmp_path: Path) -> None:
    """Aggregate and worst of the last minute, by whom; not more often than it is drawn."""
    crowd = Crowd(tmp_path)
    crowd.slots(1)
    (sample,) = crowd.telemetry.each_second
    for _ in range(3):
        sample(crowd.clock.at)
    crowd.clock.at += EVERY
    sample(crowd.clock.at)
    found = crowd.dashboard._view.headlines(0)
    assert (len(found["at"]), found["tenant"][0]) == (2, "tenant-07777")
    assert found["worst"][0] == pytest.approx(1 / 3)
