"""The map from principal to bucket is one-to-one, whatever the names are made of."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.identity.roster import is_id
from policies.admit import Planner
from policies.charge import Plan
from policies.cost import UNMATCHED
from policies.problem import encoded
from policies.request import Class, Kind, Principal
from tests.policies.documents import policy_set

__all__: list[str] = []

#: What imitates a separator, an escape, another case or another form of the same letters.
PIECES = (
    ",", "=", "%", "%2C", "%3D", "%252C", "/", "\\", ":", ";", " ", "\u00a0", "|", "&", "+", "{", "}", "*", "'", '"',
    "tenant=", ",credential=", "project=", "limit=key", ",exemption=launch", "address=", "A", "a", "\u0130", "i", "I",
    "\u0131", "\u212a", "K", "k", "\u00e9", "e\u0301", "\ufb01", "fi", "\uff21", "\u200b", "\u202e", "\U0001f600",
    "~", "-", "_", ".", "..", "\u00df", "ss",
)  # fmt: skip
names = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), min_size=1, max_size=6).map("".join).filter(is_id)
longest = st.sampled_from(("x" * 128, "x" * 127 + "y", "\u00e9" * 64, "%" * 128, "," * 128, "\U0001f600" * 32))
ids = names | longest
kinds = st.sampled_from((Kind.USER, Kind.JOB))
proved = st.builds(Principal, kinds, ids, ids)
addresses = st.ip_addresses().map(str) | st.just("unix")
strangers = st.builds(
    lambda kind, address: Principal(kind, "rejected" if kind is Kind.REJECTED else "anonymous", address),
    st.sampled_from((Kind.ANONYMOUS, Kind.REJECTED, Kind.PREFLIGHT)),
    addresses,
)
principals = proved | strangers


def buckets(principal: Principal) -> dict[str, str]:
    """Return the buckets that one request is charged to, by limit."""
    plan: Plan = Planner(policy_set()).plan(principal, Class.INTERACTIVE, UNMATCHED, "192.0.2.1")
    return {charge.limit: charge.bucket for charge in (*plan.own, *plan.shadow)}


def identity(principal: Principal) -> tuple[Any, ...]:
    """Return all that tells one principal from another."""
    if principal.kind in {Kind.USER, Kind.JOB}:
        return principal.kind, principal.tenant, principal.credential
    return principal.kind, principal.credential


@given(principals, principals)
@example(Principal(Kind.USER, "a", "b,credential=c"), Principal(Kind.USER, "a,credential=b", "c"))
@example(Principal(Kind.USER, "a", "b"), Principal(Kind.JOB, "a", "b"))
@example(Principal(Kind.USER, "a%2Cb", "c"), Principal(Kind.USER, "a,b", "c"))
@example(Principal(Kind.USER, "\u00e9", "c"), Principal(Kind.USER, "e\u0301", "c"))
@example(Principal(Kind.USER, "A", "c"), Principal(Kind.USER, "a", "c"))
@example(Principal(Kind.ANONYMOUS, "anonymous", "192.0.2.1"), Principal(Kind.PREFLIGHT, "anonymous", "192.0.2.1"))
@example(Principal(Kind.USER, "x" * 128, "y"), Principal(Kind.USER, "x" * 127, "xy"))
def test_two_principals_share_a_bucket_exactly_if_they_are_one(one: Principal, other: Principal) -> None:
    """By separators, case, Unicode forms, percent signs and length alike; also in names and in fields."""
    same = identity(one) == identity(other)
    assert (one.name == other.name) is same
    assert (buckets(one)["key"] == buckets(other)["key"]) is same
    assert (encoded(one.tenant) == encoded(other.tenant)) is (one.tenant == other.tenant)


@given(ids, ids)
def test_nothing_is_normalised(one: str, other: str) -> None:
    """Two forms that look alike are two tenants: whoever proved one did not prove the other."""
    if unicodedata.normalize("NFKC", one).casefold() == unicodedata.normalize("NFKC", other).casefold():
        first, second = (Principal(Kind.USER, name, "c") for name in (one, other))
        assert (first.name == second.name) is (one == other)


@given(principals)
def test_a_name_cannot_leave_its_place(one: Principal) -> None:
    """Neither a blank, a separator nor a byte beyond ASCII is in a bucket's name but where we put it."""
    bucket = buckets(one)["key"]
    assert bucket.isascii()
    assert " " not in bucket
    assert bucket.count("=") == bucket.count(",") + 1 == len(bucket.split(","))
    assert len(bucket) < 1000


@given(proved)
def test_what_is_no_part_of_the_identity_changes_nothing(one: Principal) -> None:
    """The job, the class, the expiry and what the upstream is told have no bucket of their own."""
    other = replace(one, job="7", highest=Class.BATCH, expires_us=1, proved=("a", "b"), listed=False)
    assert other.name == one.name
