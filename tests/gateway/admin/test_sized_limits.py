"""`/api/limits` of sized keys: the number in force, where it comes from, and keys that only history knows."""

from __future__ import annotations

from gateway.admin.limits import key_quotas, key_rows, tenant_row
from policies.policy import Mode, Sized, Term
from tests.clock import EPOCH
from tests.policies.documents import acme, credential, policy_set, quota, tenants

__all__: list[str] = []


def sized(rate: int, mode: Mode = Mode.ENFORCE) -> Sized:
    """Return a number that came of a peak and its multiplier."""
    half = rate * 10**9 // 2
    terms = (Term("peak", half, "sustained"), Term("multiplier", half, "x 2"))
    return Sized(quota(rate, rate), mode, "sized", 20_544, quota(rate, rate), terms, rate / 2, 492_000, "sustained")


POLICIES = policy_set(
    tenants=tenants(acme(credential("ci"), credential("fixed", quota(7)), sized=True)),
    sized={
        "tenant=acme": sized(70),
        "tenant=acme,credential=ci": sized(40),
        "tenant=acme,credential=fixed": sized(90),
        "tenant=acme,credential=by%20token": sized(30, Mode.SHADOW),
        "tenant=acme,project=group%2Fsite": sized(20),
    },
)


def test_every_key_with_its_number_and_its_terms() -> None:
    """Configured ones, then what history knows beside them; the terms add up to the number."""
    rows = {(row["identity"], row["tenant"], row["credential"]): row for row in key_rows(POLICIES, EPOCH)}
    found = rows["user", "acme", "ci"]
    assert (found["quota"], found["mode"], found["provenance"]) == (
        {"rate": "40/s", "per_second": 40.0, "burst": 40},
        "enforce",
        "sized",
    )
    assert isinstance(found["sizing"], dict)
    assert sum(term["per_second"] for term in found["sizing"]["terms"]) == found["sizing"]["next_per_second"] == 40
    assert "Its peak was 20/s, sustained, in the hour of 2026-02-16T00:00Z." in found["sizing"]["explanation"]
    assert rows["user", "acme", "fixed"]["provenance"] == "configured"
    assert "sizing" not in rows["user", "acme", "fixed"]
    assert rows["user", "acme", "by token"]["mode"] == "shadow"
    assert rows["job", "acme", "group/site"]["provenance"] == "sized"
    assert len(rows) == 4 + 5


def test_a_sized_tenant_and_the_gauge() -> None:
    """A tenant's row has the same members; the gauge shows the number in force of configured credentials."""
    row = tenant_row(POLICIES, POLICIES.tenants["acme"], EPOCH)
    assert (row["mode"], row["provenance"], "sizing" in row) == ("enforce", "sized", True)
    assert list(key_quotas(POLICIES, EPOCH)) == [("acme", "ci", 40.0), ("acme", "fixed", 7.0)]
