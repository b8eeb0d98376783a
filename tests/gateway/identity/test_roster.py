"""Who may be spoken for, and how many nobody listed."""

from __future__ import annotations

from gateway.identity.roster import OTHER, Claimed, Roster, Rules
from policies.request import Class, Kind
from policies.units import SECOND
from tests.gateway.identity.tokens import NOW, ManualClock

__all__: list[str] = []

WALL = NOW * SECOND
HOUR = 3600 * SECOND


def ask(roster: Roster, tenant: str, credential: str = "c", kind: Kind = Kind.USER) -> tuple[str, str, bool]:
    job = "1" if kind is Kind.JOB else None
    principal = roster.principal(Claimed(kind, tenant, credential, WALL + 10**15, job), WALL)
    assert principal is not None
    return principal.tenant, principal.credential, principal.listed


def test_unlisted_tenants_are_told_apart_up_to_the_bound() -> None:
    """Above it new ones are one tenant with one credential; those inside keep their place, listed ones need none."""
    roster = Roster({"acme": {}}, 3, ManualClock())
    for name in ("a", "b", "c"):
        assert ask(roster, name) == (name, "c", False)
    for name in ("d", "e", "f"):
        assert ask(roster, name, "whoever") == (OTHER, OTHER, False)
    assert ask(roster, "b", "x") == ("b", "x", False)
    assert ask(roster, "acme") == ("acme", "c", True)


def test_the_overflow_keeps_what_was_proved_beside_what_is_charged() -> None:
    """Buckets and figures are those of `other`; the upstream is told who it really is. Both names are one-to-one."""
    roster = Roster({}, 1, ManualClock())
    principals = [roster.principal(Claimed(Kind.USER, name, "me", WALL + 10**15), WALL) for name in ("a", "b", "c")]
    assert [one.spoken for one in principals if one] == [("a", "me"), ("b", "me"), ("c", "me")]
    assert [one.name for one in principals if one] == ["tenant=a,credential=me"] + ["tenant=other,credential=other"] * 2


def test_the_memory_of_unlisted_tenants_is_bounded() -> None:
    """A fresh tenant per token grows nothing beyond the bound."""
    roster = Roster({}, 100, ManualClock())
    for n in range(5000):
        ask(roster, f"minted-{n}")
    assert len(roster._unlisted._now) + len(roster._unlisted._before) == 100


def test_a_tenant_not_seen_for_two_hours_gives_its_place_up() -> None:
    """So a flood of minted tenants does not keep others out for ever."""
    clock = ManualClock()
    roster = Roster({}, 2, clock)
    assert ask(roster, "stays")[0] == "stays"
    assert ask(roster, "leaves")[0] == "leaves"
    for _ in range(2):
        clock.us += HOUR
        assert ask(roster, "stays")[0] == "stays"
    assert ask(roster, "new")[0] == "new"
    assert ask(roster, "leaves")[0] == OTHER
    clock.us += 10 * HOUR
    assert ask(roster, "leaves")[0] == "leaves"
    assert ask(roster, "another")[0] == "another"
    assert ask(roster, "stays")[0] == OTHER


def test_a_job_is_batch_and_keeps_its_number_unless_it_overflows() -> None:
    """The project is the credential; in the overflow nothing of it is left."""
    roster = Roster({"acme": {"web": Rules(Class.INTERACTIVE, 0)}}, 1, ManualClock())
    claimed = Claimed(Kind.JOB, "acme", "web", WALL + 5, "17")
    listed = roster.principal(claimed, WALL)
    assert listed is not None
    assert (listed.highest, listed.job, listed.listed, listed.expires_us) == (Class.BATCH, "17", True, WALL + 5)
    minted = roster.principal(claimed._replace(tenant="one"), WALL)
    assert minted is not None
    assert (minted.highest, minted.job, minted.listed) == (Class.BATCH, "17", False)
    overflow = roster.principal(claimed._replace(tenant="two"), WALL)
    assert overflow is not None
    assert (overflow.tenant, overflow.credential, overflow.highest, overflow.job) == (OTHER, OTHER, Class.BATCH, None)


def test_what_is_no_id_is_nobody() -> None:
    """A mapping may forget to look; the roster does not."""
    roster = Roster({}, 10, ManualClock())
    for bad in ("", "other", "a\tb", "x" * 129, "\ud800"):
        assert roster.principal(Claimed(Kind.USER, bad, "c", WALL + 1), WALL) is None
        assert roster.principal(Claimed(Kind.USER, "t", bad, WALL + 1), WALL) is None
