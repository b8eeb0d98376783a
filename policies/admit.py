"""Plan and judge: what to ask of a store for one request, and what its answer means.

Rules
1. A plan depends only on (principal, class, route), and on the method and the address where an entry looks at them. It
   is compiled once and reused, until an exemption, a pause or an act on the posture ends.
2. Own limits are the key, the tenant, the named policies, the seats and a pause. Sized quotas not learnt yet, policies
   in shadow and the keys outside a policy's percentage are asked in shadow: counted, never obeyed.
3. A named policy that keys by what a principal does not have (a project for a user) does not apply to it.
4. A request that will not be forwarded asks nothing of the backstop.
5. The refusal named is the own limit with the longest wait; without one, `share` before `class` before the rest.
6. No randomness: the percentage is a stable hash of policy and bucket, the jitter an argument.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import count
from typing import Final, NamedTuple

from policies.charge import NEVER, Charge, Plan, Reading, Refusal, SeatCharge, ShareCharge
from policies.classify import applicable, bounded, bucket_of
from policies.cost import cost_of
from policies.exempt import bucket_suffix, in_force, next_expiry, raised
from policies.pause import holds, next_end
from policies.policy import Characteristic, Exemption, Mode, Policy, PolicySet
from policies.posture import chosen, next_change
from policies.rank import Rank, rank
from policies.request import Class, Kind, Principal, key_name
from policies.sizing import Effective, credential_rules, effective_key, effective_tenant, own_cap
from policies.units import SECOND, Micros, RequestUnits
from policies.verdict import OWN_LIMITS, Verdict, reason_of

__all__ = ["Planner", "enforced_at", "judge"]

#: Plans kept per generation; there are two. A plan with its charges is about 1 KB.
MAX_PLANS = 10_000

#: Jitter on a told wait is at most a quarter of it, and never more than this (contract, section 6).
MAX_JITTER: Final = 30 * SECOND

#: Until when plans hold while nothing ends. Not more: a larger number is compared more slowly where this is compiled.
FOREVER: Final[Micros] = 2**62 - 1

_PROVED = (Kind.USER, Kind.JOB)

#: Plans let go of for each that is made or found again: more than there can be before the next generation.
_PLANS_PER_PLAN: Final = 4

#: Generations of plans of this process, of whatever planner; a mark has the slot below.
_GENERATIONS: Final = count(1)
_SLOT_BITS: Final = 24

#: Named policies have no reserve and no floor: those are of key, tenant and share buckets.
_LEVEL = Rank(low=False, reserve=0.0, floor=0.0)


def enforced_at(policy: Policy, bucket: str) -> bool:
    """Return whether a bucket is among the `percent` of a policy's keys that are enforced; the same for ever."""
    if policy.percent >= 100.0:
        return True
    digest = blake2b(f"{policy.name}\0{bucket}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < policy.percent / 100.0 * 2**64


class Planner:
    """Compiles and caches the plans of one PolicySet. Bounded: two generations of plans, the older one forgotten.

    Plans hold until `valid_until`, when an exemption, a pause or an act on the posture ends; then call `renew`.

    A plan is found by its principal, which keeps the one it was asked by last: to look it up by name among those of ten
    thousand tenants is mostly waiting for memory. The plan's mark says of which generation and slot it is, and each
    generation has a number that no other planner of this process ever has; so what is kept is good while it is of the
    young generation of whoever is asked. It has one owner at a time, which lets go of it when the planner does.
    """

    __slots__ = (
        "_addressed", "_classes", "_compiled", "_gone", "_mark", "_max_plans", "_methods", "_now", "_old", "_policies",
        "_postures", "_ranks", "_shares", "_young", "applied", "valid_until",
    )  # fmt: skip

    def __init__(self, policies: PolicySet, now: Micros = 0, max_plans: int = MAX_PLANS) -> None:
        self._policies = policies
        self._classes = len(policies.classes)
        self._ranks = tuple(rank(policies.classes, cls) for cls in Class)
        narrowed = (policies.policies, policies.exemptions, policies.pauses)
        matches = [rule.match for rules in narrowed for rule in rules]
        self._methods = {method: index for index, method in enumerate({m.method for m in matches if m.method}, 1)}
        self._addressed = any(Characteristic.ADDRESS in policy.key for policy in policies.policies)
        self._max_plans = max_plans
        self._gone: list[dict[str, Plan]] = []
        self._old: list[dict[str, Plan]] = []
        self._young: list[dict[str, Plan]] = []
        self.renew(now)

    def renew(self, now: Micros) -> None:
        """Forget every plan, and compile for the exemptions, pauses and postures that are in force at `now`."""
        slots = (len(self._policies.routes) + 1) * self._classes * (len(self._methods) + 1)
        self._now = now
        #: Plans of nobody any more: `forget` lets go of them a few at a time.
        self._gone += [*self._old, *self._young]
        self._old = [{} for _ in range(slots)]
        self._shares: dict[ShareCharge, ShareCharge] = {}
        self._young = [{} for _ in range(slots)]
        self._mark = next(_GENERATIONS) << _SLOT_BITS
        self._compiled = 0
        #: Named policies that some plan has asked since this was called; those that are off are never asked.
        self.applied: set[str] = set()
        ends = (next_expiry(self._policies, now), next_end(self._policies, now), next_change(self._policies, now))
        self._postures = tuple(chosen(self._policies, route, now) for route in range(-1, len(self._policies.routes)))
        self.valid_until = min((end for end in ends if end is not None), default=FOREVER)

    def forget(self, most: int) -> bool:
        """Let go of some plans that were forgotten (thousands at once take milliseconds); return whether any are left.

        It takes at most so many steps: one for each plan, and one for each table of them.
        """
        while self._gone and most > 0:
            plans = self._gone[-1]
            steps = min(most, len(plans))
            for _ in range(steps):
                _, plan = plans.popitem()
                _disown(plan)
            most -= steps + 1
            if not plans:
                self._gone.pop()
        return bool(self._gone)

    def retire(self) -> None:
        """Forget every plan for good; `forget` lets go of them."""
        self._gone += [*self._old, *self._young]
        self._old, self._young = [], []
        self._mark = next(_GENERATIONS) << _SLOT_BITS

    @property
    def kept(self) -> int:
        """Plans held now, in both generations."""
        return sum(map(len, self._young)) + sum(map(len, self._old))

    def plan(self, principal: Principal, cls: Class, route: int, address: str, method: str = "") -> Plan:
        """Return what a request asks of a store; `route` is an index into the routes, or UNMATCHED."""
        slot = (route + 1) * self._classes + cls
        if self._methods:
            slot = slot * (len(self._methods) + 1) + self._methods.get(method, 0)
        plan = principal.plan
        if isinstance(plan, Plan) and plan.memo.mark == self._mark + slot:
            return plan
        return self._find(principal, cls, route, address, method, slot)

    def _find(self, principal: Principal, cls: Class, route: int, address: str, method: str, slot: int) -> Plan:
        # Neither a principal's name nor an address can hold a blank.
        key = f"{principal.name} {address}" if self._addressed else principal.name
        plan = self._young[slot].get(key)
        if plan is None:
            plan = self._old[slot].pop(key, None) or self._compile(principal, cls, route, address, method)
            self._keep(plan, slot, key)
        if not self._addressed:
            _own(principal, plan, self._mark + slot)
        return plan

    def _keep(self, plan: Plan, slot: int, key: str) -> None:
        """Remember a plan, and begin a generation with it if the young one is full."""
        self.forget(_PLANS_PER_PLAN)
        if self._compiled >= self._max_plans:
            self._gone += self._old
            self._old, self._young = self._young, [{} for _ in self._young]
            self._mark = next(_GENERATIONS) << _SLOT_BITS
            self._shares = {}
            self._compiled = 0
        self._compiled += 1
        self._young[slot][key] = plan

    def _compile(self, principal: Principal, cls: Class, route: int, address: str, method: str) -> Plan:
        policies, standing = self._policies, self._ranks[cls]
        cost = cost_of(policies, route)
        exemptions = in_force(policies, principal, cls, route, method, self._now)
        key = effective_key(policies, principal)
        tenant = effective_tenant(policies, principal)
        limits = [_Limit("key", f"limit=key,{principal.name}", key, f"key {principal.kind.value}", standing)]
        if tenant is not None:
            bucket = key_name(limit="tenant", tenant=principal.tenant)
            limits.append(_Limit("tenant", bucket, tenant, "tenant", standing))
        for policy in applicable(policies, principal, cls, route, method):
            self.applied.add(policy.name)
            bucket = bucket_of(policies, policy, principal, cls, route, address)
            mode = policy.mode if enforced_at(policy, bucket) else Mode.SHADOW
            pinned = bounded(policies, policy, principal)
            effective = Effective(policy.quota, mode, "configured", pinned=pinned)
            limits.append(_Limit(policy.name, bucket, effective, policy.name, _LEVEL))
        limits = [_exempted(limit, exemptions) for limit in limits]
        charges = [(limit.effective.mode, _charge(limit, cost, cls)) for limit in limits]
        return Plan(
            tenant=principal.tenant,
            credential=principal.credential,
            cls=cls,
            cost=cost,
            own=tuple(charge for mode, charge in charges if mode is Mode.ENFORCE),
            shadow=tuple(charge for mode, charge in charges if mode is not Mode.ENFORCE),
            seats=self._seats(principal),
            share=self._share(principal, cls, cost, {limit.name: limit.effective for limit in limits}),
            exemption=next((limit.exemption for limit in limits if limit.exemption), ""),
            holds=holds(policies, principal, cls, route, method, self._now),
            posture=self._postures[route + 1],
        )

    def _seats(self, principal: Principal) -> tuple[SeatCharge, ...]:
        tenant = self._policies.tenants.get(principal.tenant) if principal.kind in _PROVED else None
        credential = credential_rules(self._policies, principal)
        holders = ((principal.name, credential, "credential"), (key_name(tenant=principal.tenant), tenant, "tenant"))
        return tuple(
            SeatCharge(holder, rules.concurrency, whose)
            for holder, rules, whose in holders
            if rules and rules.concurrency is not None
        )

    def _share(
        self, principal: Principal, cls: Class, cost: RequestUnits, own: dict[str, Effective]
    ) -> ShareCharge | None:
        """Return the step on the backstop; equal ones are one object, so that a kernel may remember by identity."""
        if principal.kind is Kind.REJECTED:
            return None
        rules = self._policies.tenants.get(principal.tenant)
        if principal.kind not in _PROVED:
            weight, listed = self._policies.anonymous_weight, True
        elif rules is not None:
            weight, listed = rules.weight, True
        else:
            weight, listed = 1.0, False
        rate_us, burst = own_cap(self._policies, principal, own["key"], own.get("tenant"))
        share = ShareCharge(principal.tenant, weight, listed, cost, cls, rate_us, burst)
        return self._shares.setdefault(share, share)


def _own(principal: Principal, plan: Plan, mark: int) -> None:
    """Let `principal` keep `plan`, and nobody else: of one name there may be several, each from a token of its own."""
    memo = plan.memo
    memo.mark = mark
    if memo.owner is not principal:
        _disown(plan)
        memo.owner = principal
    principal.plan = plan


def _disown(plan: Plan) -> None:
    """Let whoever keeps `plan` keep it no longer."""
    owner, plan.memo.owner = plan.memo.owner, None
    if isinstance(owner, Principal) and owner.plan is plan:
        owner.plan = None


class _Limit(NamedTuple):
    """One rate limit of a request on its way to a charge."""

    name: str
    bucket: str
    effective: Effective
    overflow: str
    standing: Rank
    exemption: str = ""


def _exempted(limit: _Limit, exemptions: tuple[Exemption, ...]) -> _Limit:
    quota, exemption = raised(limit.name, limit.effective.quota, exemptions)
    if exemption is None:
        return limit
    bucket = limit.bucket + bucket_suffix(limit.name, exemption)
    effective = Effective(quota, limit.effective.mode, f"exemption {exemption.name}", limit.effective.pinned)
    return limit._replace(bucket=bucket, effective=effective, exemption=exemption.name)


def _charge(limit: _Limit, cost: RequestUnits, cls: Class) -> Charge:
    quota = limit.effective.quota
    return Charge(
        limit=limit.name,
        bucket=limit.bucket,
        rate_us=quota.rate.per_us,
        burst=quota.burst,
        cost=cost,
        cls=cls,
        reserve=limit.standing.reserve * quota.burst,
        floor=limit.standing.floor,
        pinned=limit.effective.pinned,
        rate=quota.rate,
        low=limit.standing.low,
        overflow=limit.overflow,
    )


#: Which to name of what is not an own limit; `share` outranks `class`, that the rest.
_OUTRANKS = {"share": 0, "class": 1}


def _named(refused: tuple[Refusal, ...]) -> Refusal:
    """Return the refusal to name: the longest wait among own limits, or the first in rank of the others."""
    if len(refused) == 1:
        return refused[0]
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
    most = wait / 4
    if most > MAX_JITTER:
        most = float(MAX_JITTER)
    return Verdict(plan, reading, now, refusal, wait + int(jitter * most))
