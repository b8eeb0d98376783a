"""Plan and judge: what to ask of a store for one request, and what its answer means.

Rules
1. A plan depends only on (principal, class, route), on the method and the address where a policy looks at them, and on
   nothing that changes while it is cached. It is compiled once and reused.
2. Own limits are the key, the tenant, the named policies and the seats. Sized quotas not learnt yet, policies in shadow
   and the keys outside a policy's percentage are asked in shadow: counted, never obeyed.
3. A named policy that keys by what a principal does not have (a project for a user) does not apply to it.
4. A request that will not be forwarded asks nothing of the backstop.
5. The refusal named is the own limit with the longest wait; without one, `share` before `class` before the rest.
6. No randomness: the percentage is a stable hash of policy and bucket, the jitter an argument.
"""

from __future__ import annotations

from hashlib import blake2b

from policies.charge import NEVER, Charge, Plan, Reading, Refusal, SeatCharge, ShareCharge
from policies.classify import applicable, bucket_of
from policies.cost import cost_of
from policies.policy import Characteristic, Mode, Policy, PolicySet, Quota
from policies.rank import Rank, rank
from policies.request import ANONYMOUS, REJECTED, Class, Kind, Principal, key_name
from policies.sizing import Effective, credential_rules, effective_key, effective_tenant, own_cap
from policies.units import SECOND, Micros, RequestUnits
from policies.verdict import OWN_LIMITS, Verdict, reason_of

__all__ = ["Planner", "enforced_at", "judge"]

#: Plans kept per generation; there are two. A plan with its charges is about 1 KB.
MAX_PLANS = 10_000

#: Jitter on a told wait is at most a quarter of it, and never more than this (contract, section 6).
MAX_JITTER: Micros = 30 * SECOND

_FORWARDED = (Kind.USER, Kind.JOB, Kind.ANONYMOUS, Kind.PREFLIGHT)


def enforced_at(policy: Policy, bucket: str) -> bool:
    """Return whether a bucket is among the `percent` of a policy's keys that are enforced; the same for ever."""
    if policy.percent >= 100.0:
        return True
    digest = blake2b(f"{policy.name}\0{bucket}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < policy.percent / 100.0 * 2**64


class Planner:
    """Compiles and caches the plans of one PolicySet. Bounded: two generations of plans, the older one forgotten."""

    __slots__ = (
        "_addressed", "_classes", "_compiled", "_max_plans", "_methods", "_old", "_policies", "_ranks", "_young",
    )  # fmt: skip

    def __init__(self, policies: PolicySet, max_plans: int = MAX_PLANS) -> None:
        self._policies = policies
        self._classes = len(policies.classes)
        self._ranks = tuple(rank(policies.classes, cls) for cls in Class)
        matches = [policy.match for policy in policies.policies]
        self._methods = {method: index for index, method in enumerate({m.method for m in matches if m.method}, 1)}
        self._addressed = any(Characteristic.ADDRESS in policy.key for policy in policies.policies)
        self._max_plans = max_plans
        self._compiled = 0
        slots = (len(policies.routes) + 1) * self._classes * (len(self._methods) + 1)
        self._young: list[dict[str, Plan]] = [{} for _ in range(slots)]
        self._old: list[dict[str, Plan]] = [{} for _ in range(slots)]

    def plan(self, principal: Principal, cls: Class, route: int, address: str, method: str = "") -> Plan:
        """Return what a request asks of a store; `route` is an index into the routes, or UNMATCHED."""
        slot = (route + 1) * self._classes + cls
        if self._methods:
            slot = slot * (len(self._methods) + 1) + self._methods.get(method, 0)
        # Neither a principal's name nor an address can hold a blank.
        key = f"{principal.name} {address}" if self._addressed else principal.name
        plan = self._young[slot].get(key)
        if plan is not None:
            return plan
        plan = self._old[slot].get(key) or self._compile(principal, cls, route, address, method)
        if self._compiled >= self._max_plans:
            self._old, self._young = self._young, [{} for _ in self._young]
            self._compiled = 0
        self._compiled += 1
        self._young[slot][key] = plan
        return plan

    def _compile(self, principal: Principal, cls: Class, route: int, address: str, method: str) -> Plan:
        cost = cost_of(self._policies, route)
        charges = self._charges(principal, cls, cost)
        for policy in applicable(self._policies, principal, cls, route, method):
            bucket = bucket_of(self._policies, policy, principal, cls, route, address)
            enforced = policy.mode is Mode.ENFORCE and enforced_at(policy, bucket)
            charges.append((enforced, _charge(policy.name, bucket, policy.quota, cost, cls)))
        return Plan(
            tenant=REJECTED if principal.kind is Kind.REJECTED else principal.tenant,
            credential=principal.credential,
            cls=cls,
            cost=cost,
            own=tuple(charge for enforced, charge in charges if enforced),
            shadow=tuple(charge for enforced, charge in charges if not enforced),
            seats=self._seats(principal),
            share=self._share(principal, cls, cost),
        )

    def _charges(self, principal: Principal, cls: Class, cost: RequestUnits) -> list[tuple[bool, Charge]]:
        """Return the charges of key and tenant, each with whether it is enforced."""
        standing = self._ranks[cls]
        key = effective_key(self._policies, principal)
        bucket = f"limit=key,{principal.name}"
        charges = [(key, _charge("key", bucket, key.quota, cost, cls, standing, key, f"key {principal.kind.value}"))]
        tenant = effective_tenant(self._policies, principal)
        if tenant is not None:
            bucket = key_name(limit="tenant", tenant=principal.tenant)
            charges.append((tenant, _charge("tenant", bucket, tenant.quota, cost, cls, standing, tenant)))
        return [(effective.mode is Mode.ENFORCE, charge) for effective, charge in charges]

    def _seats(self, principal: Principal) -> tuple[SeatCharge, ...]:
        if principal.kind not in (Kind.USER, Kind.JOB):
            return ()
        credential = credential_rules(self._policies, principal)
        tenant = self._policies.tenants.get(principal.tenant)
        limits = ((principal.name, credential), (key_name(tenant=principal.tenant), tenant))
        return tuple(
            SeatCharge(holder, rules.concurrency) for holder, rules in limits if rules and rules.concurrency is not None
        )

    def _share(self, principal: Principal, cls: Class, cost: RequestUnits) -> ShareCharge | None:
        if principal.kind not in _FORWARDED:
            return None
        rules = self._policies.tenants.get(principal.tenant)
        if principal.tenant == ANONYMOUS:
            weight, listed = self._policies.anonymous_weight, True
        elif rules is not None:
            weight, listed = rules.weight, True
        else:
            weight, listed = 1.0, False
        rate_us, burst = own_cap(self._policies, principal)
        return ShareCharge(principal.tenant, weight, listed, cost, cls, rate_us, burst)


_LEVEL = Rank(low=False, reserve=0.0, floor=0.0)


def _charge(
    limit: str,
    bucket: str,
    quota: Quota,
    cost: RequestUnits,
    cls: Class,
    standing: Rank = _LEVEL,
    effective: Effective | None = None,
    overflow: str = "",
) -> Charge:
    """Build a charge. Named policies have no reserve or floor: those are of key, tenant and share buckets."""
    return Charge(
        limit=limit,
        bucket=bucket,
        rate_us=quota.rate.per_us,
        burst=quota.burst,
        cost=cost,
        cls=cls,
        reserve=standing.reserve * quota.burst,
        floor=standing.floor,
        pinned=effective is not None and effective.pinned,
        rate=quota.rate,
        low=standing.low,
        overflow=overflow,
    )


#: Which to name of what is not an own limit; `share` outranks `class`, that the rest.
_OUTRANKS = {"share": 0, "class": 1}


def _named(refused: tuple[Refusal, ...]) -> Refusal:
    """Return the refusal to name: the longest wait among own limits, or the first in rank of the others."""
    own = [refusal for refusal in refused if reason_of(refusal.limit) in OWN_LIMITS]
    if not own:
        return min(refused, key=lambda refusal: _OUTRANKS.get(refusal.limit, 2))
    return max(own, key=lambda refusal: (refusal.wait_us == NEVER, refusal.wait_us))


def judge(plan: Plan, reading: Reading, now: Micros, jitter: float) -> Verdict:
    """Return the verdict on a reading; `jitter` in [0, 1) picks the told wait from [wait, wait + min(wait/4, 30 s)]."""
    if not reading.refused:
        return Verdict(plan, reading, now)
    refusal = _named(reading.refused)
    wait = refusal.wait_us
    if wait == NEVER:
        return Verdict(plan, reading, now, refusal)
    return Verdict(plan, reading, now, refusal, wait + int(jitter * min(wait / 4, MAX_JITTER)))
