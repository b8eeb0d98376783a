"""From a verdict to what its caller is told: RFC 9457 members, RateLimit fields, Retry-After.

Rules
1. Only what a caller's own contract says is disclosed. The numbers of share, class, backstop and posture never leave
   the house, and limits in shadow are not mentioned.
2. Retry-After is never less than the wait (plus its jitter), in whole seconds, at least 1. For limits that others
   influence it is at most `LONGEST_HINT`; `retry_after_ms` is the wait itself.
3. What can never be admitted has no Retry-After: it needs its owner.
4. Names are ids: percent-encoded in header fields, so any of them is a valid String of RFC 9651; as they are in JSON.
5. Whatever depends only on a plan is worked out once per plan.
6. An answer decided without a store carries a mark, admitted or refused. It does not say by which posture: whoever
   learns that nothing is counted just now has no need to know.

References: RFC 9457 (problem details), RFC 9110 section 10.2.3 (Retry-After), draft-ietf-httpapi-ratelimit-headers-11
(RateLimit-Policy, RateLimit, the problem types), RFC 9651 (structured fields).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from policies.charge import NEVER, Charge, Plan, Reading, Refusal
from policies.request import Kind
from policies.units import SECOND, Micros, Rate
from policies.verdict import Reason, Verdict, reason_of

__all__ = ["LONGEST_HINT", "TYPES", "Fields", "Members", "Unchanging", "Wording", "decimal", "encoded", "pushback"]

Fields: TypeAlias = list[tuple[bytes, bytes]]
Members: TypeAlias = dict[str, Any]

#: Seconds; longest Retry-After of a limit whose wait depends on what others do.
LONGEST_HINT: Final = 60

_OWN_TYPES: Final = "https://evenhand.dev/problems/"
_REGISTERED: Final = "https://iana.org/assignments/http-problem-types#"
_QUOTA: Final = (_REGISTERED + "quota-exceeded", "Quota exceeded")
_CAPACITY: Final = (_REGISTERED + "temporary-reduced-capacity", "Temporarily reduced capacity")

#: Problem type URI and title of each reason.
TYPES: Final = {
    Reason.POLICY: _QUOTA,
    Reason.KEY: _QUOTA,
    Reason.TENANT: _QUOTA,
    Reason.CONCURRENCY: _QUOTA,
    Reason.PAUSED: (_OWN_TYPES + "paused", "Paused by the operator"),
    Reason.CLASS: _CAPACITY,
    Reason.SHARE: _CAPACITY,
    Reason.BACKSTOP: _CAPACITY,
    Reason.POSTURE: _CAPACITY,
    Reason.CONNECTIONS: (_OWN_TYPES + "connections", "No upstream connection"),
}

_CLAMPED: Final = frozenset(
    {Reason.SHARE, Reason.CLASS, Reason.BACKSTOP, Reason.POSTURE, Reason.CONNECTIONS, Reason.CONCURRENCY}
)
_OPERATORS_STATUS: Final = frozenset({Reason.SHARE, Reason.CLASS, Reason.BACKSTOP, Reason.PAUSED})
_UNAVAILABLE: Final = frozenset({Reason.POSTURE, Reason.CONNECTIONS})

_DETAILS: Final = {
    Reason.POLICY: "Policy {limit} allows {quota} and is asked for more.",
    Reason.KEY: "{who} may spend {quota} and {is_} asking for more.",
    Reason.TENANT: "Tenant {tenant} may spend {quota} in all and is asking for more.",
    Reason.CONCURRENCY: "{who} {has} as many requests in flight as {it} may have.",
    Reason.PAUSED: "{who} {is_} paused by the operator.",
    Reason.CLASS: "Requests of class {cls} have all of the service that they may have for now.",
    Reason.SHARE: "The service is contended and tenant {tenant} has had its fair share for now.",
    Reason.BACKSTOP: "The service is at its capacity.",
    Reason.POSTURE: "Limits cannot be checked just now, and this request is not among those let through meanwhile.",
    Reason.CONNECTIONS: "No connection to the service behind came free in time.",
}
#: Whose seats were taken, if they are not those of who asked.
_ALL_OF: Final = "Tenant {tenant}, all its credentials together,"
_NEVER_DETAIL: Final = "{who} may spend nothing here: a quota is zero, and only its owner can have it raised."

_CALLERS: Final = {
    Kind.USER: "Credential {credential} of tenant {tenant}",
    Kind.JOB: "Project {credential} of tenant {tenant}",
    Kind.ANONYMOUS: "A caller without a credential at {credential}",
    Kind.PREFLIGHT: "Preflight requests from {credential}",
    Kind.REJECTED: "A caller at {credential} whose credential was not accepted",
}

_SINGULAR: Final = {"is_": "is", "has": "has", "it": "it"}
_PLURAL: Final = {"is_": "are", "has": "have", "it": "they"}

#: What was decided without a store says so; the value is what is missing.
_MARK: Final = (b"evenhand-degraded", b"store")

#: Integers of RFC 9651 have at most 15 digits.
_LARGEST: Final = 999_999_999_999_999
_UNITS_OF_TIME: Final = ((1, "second"), (60, "minute"), (3600, "hour"), (86_400, "day"))
#: Bucket levels are floats: a whole token may read as 0.9999999.
_ROUNDING: Final = 1e-6
#: Small numbers as they are written: to format one takes ten times as long as to look it up.
_DECIMALS: Final = tuple(b"%d" % number for number in range(1024))
#: Kinds of quotas that are remembered; plans that have one keep it.
_KINDS: Final = 1024


@dataclass(slots=True)
class _Limit:
    """One own limit of a plan, ready to be told: `opening` is its quoted name and `;r=`, as in a RateLimit member.

    `unit_seconds` is how long one unit takes to come back, None if none ever does. `full` is the member of a bucket
    that is, `brim` from how many tokens on.
    """

    name: str
    opening: bytes
    units: int
    burst: float
    unit_seconds: float | None
    brim: float
    full: bytes


class Unchanging:
    """What is told of one kind of refusal of one plan: `members` have places for what each request has of its own.

    `memo` is room for what somebody else works out once for all of them.
    """

    __slots__ = ("_clamped", "_never", "members", "memo", "status")

    def __init__(self, members: Members, status: int, *, never: bool, clamped: bool) -> None:
        self.members = members
        self.status = status
        self._never = never
        self._clamped = clamped
        self.memo: object = None

    def pushback(self, retry_us: Micros) -> int | None:
        """Return what `pushback` says of such a refusal."""
        return None if self._never else _seconds(retry_us, clamped=self._clamped)


@dataclass(slots=True)
class _Told:
    """What is told of limits and no reading changes: one for all plans of the same quotas.

    Ten thousand tenants have a few dozen kinds of quotas, and what they share the processor's cache holds. `opening` is
    the field of the policy and the name of the other one, as lines (see `Wording.lines`).
    `tokens` is what the last reading that refused nothing left, and `said` how that was told: a caller well within its
    limits finds its buckets full again each time.
    """

    wording: Wording
    limits: tuple[_Limit, ...]
    policy: tuple[bytes, bytes]
    opening: bytes
    tokens: tuple[float, ...] = ()
    said: tuple[bytes, bytes] = (b"ratelimit", b"")


class Wording:
    """Puts verdicts into words, as one configuration wants them.

    `backstop_status` is 429 or 503; `fields` is "draft-11", "legacy" or "off" (`[refusal] headers`).
    """

    __slots__ = ("_backstop_status", "_fields", "_known")

    def __init__(self, backstop_status: int = 429, fields: str = "draft-11") -> None:
        self._backstop_status = backstop_status
        self._fields = fields
        self._known: dict[tuple[tuple[object, ...], ...], _Told] = {}

    def status(self, limit: str) -> int:
        """Return the status of a refusal by `limit`: 429, 503, or `[backstop] status`."""
        reason = reason_of(limit)
        if reason in _OPERATORS_STATUS:
            return self._backstop_status
        return 503 if reason in _UNAVAILABLE else 429

    def members(
        self, plan: Plan, refusal: Refusal, retry_us: Micros, violated: tuple[str, ...], kind: Kind, request_id: str
    ) -> Members:
        """Return the members of the problem that says `refusal`, in the order in which people read them."""
        unchanging = self.unchanging(plan, refusal, kind)
        members = unchanging.members.copy()
        members["instance"] = f"urn:evenhand:request:{request_id}"
        members["violated-policies"] = violated
        if refusal.wait_us != NEVER:
            members["retry_after"] = unchanging.pushback(retry_us)
            members["retry_after_ms"] = -(-refusal.wait_us // 1000)
        return members

    def unchanging(self, plan: Plan, refusal: Refusal, kind: Kind) -> Unchanging:
        """Return what is told of every such refusal of this plan, worked out once."""
        never = refusal.wait_us == NEVER
        self._of(plan)
        ready = plan.memo.ready
        key = (refusal.limit, refusal.whose, kind, never)
        found = ready.get(key)
        if not isinstance(found, Unchanging):
            members, clamped = self._unchanging(plan, refusal, kind, never=never), reason_of(refusal.limit) in _CLAMPED
            found = ready[key] = Unchanging(members, self.status(refusal.limit), never=never, clamped=clamped)
        return found

    def _unchanging(self, plan: Plan, refusal: Refusal, kind: Kind, *, never: bool) -> Members:
        """Return the members with places for those that each request has of its own."""
        limit = refusal.limit
        type_uri, title = TYPES[reason_of(limit)]
        waits = {} if never else {"retry_after": 0, "retry_after_ms": 0}
        whose = {"held_by": refusal.whose} if refusal.whose else {}
        return {
            "type": type_uri,
            "title": title,
            "status": self.status(limit),
            "detail": _detail(plan, refusal, kind),
            "instance": "",
            "limit": limit,
            **whose,
            "violated-policies": (),
            "tenant": plan.tenant,
            "credential": plan.credential,
            "class": plan.cls.label,
            "retryable": not never,
            **waits,
            "owner_action_required": never,
        }

    def fields(self, verdict: Verdict) -> Fields:
        """Return the RateLimit fields of an answer, the enforced own limits that apply, `key` first; and the mark."""
        if self._fields == "draft-11":
            fields = self._draft(verdict)
        else:
            fields = self._legacy(verdict) if self._fields == "legacy" else []
        return [*fields, _MARK] if verdict.reading.posture else fields

    def lines(self, verdict: Verdict, pieces: list[bytes]) -> None:
        """Append what `fields` returns to an HTTP/1.1 head in pieces: a line begins with the end of the one before."""
        reading = verdict.reading
        if self._fields == "draft-11" and reading.tokens and not reading.posture:
            # Every refusal is told so: nothing is made that the head does not need.
            told = self._of(verdict.plan)
            pieces.append(told.opening)
            _members(told.limits, reading, pieces)
            return
        for name, value in self.fields(verdict):
            pieces.append(b"\r\n%b: %b" % (name, value))

    def _draft(self, verdict: Verdict) -> Fields:
        told, reading = self._of(verdict.plan), verdict.reading
        if not reading.tokens:
            return []
        if reading.refused or reading.tokens != told.tokens:
            pieces: list[bytes] = []
            _members(told.limits, reading, pieces)
            said = (b"ratelimit", b"".join(pieces))
            if reading.refused:
                return [told.policy, said]
            told.tokens, told.said = reading.tokens, said
        return [told.policy, told.said]

    def _legacy(self, verdict: Verdict) -> Fields:
        """Tell of one limit: the one that refused, else the one with the least left."""
        standing = _standing(self._of(verdict.plan), verdict.reading)
        if not standing:
            return []
        refused = verdict.refusal.limit if verdict.refusal else ""
        limit, left, reset = min(standing, key=lambda entry: (entry[0].name != refused, entry[1]))
        told = [(b"x-ratelimit-limit", b"%d" % limit.units), (b"x-ratelimit-remaining", b"%d" % left)]
        return told if reset is None else [*told, (b"x-ratelimit-reset", b"%d" % reset)]

    def _of(self, plan: Plan) -> _Told:
        """Return what is told of the limits of `plan`, which keeps it, so that it is found without hashing."""
        kept = plan.memo.told
        if isinstance(kept, _Told) and kept.wording is self:
            return kept
        quotas = tuple([(one.limit, one.rate_us, one.burst, one.rate) for one in plan.own])
        told = self._known.get(quotas)
        if told is None:
            if len(self._known) >= _KINDS:
                self._known.clear()
            told = self._known[quotas] = _tell(self, plan)
        plan.memo.told, plan.memo.ready = told, {}
        return told


@lru_cache(maxsize=4096)
def encoded(name: str) -> bytes:
    """Return an id as header fields carry it: percent-encoded outside `[A-Za-z0-9._~-]`."""
    return quote(name, safe="").encode("ascii")


def decimal(number: int) -> bytes:
    """Return how a number that is not negative is written."""
    return _DECIMALS[number] if number < 1024 else b"%d" % number


def pushback(refusal: Refusal, retry_us: Micros) -> int | None:
    """Return Retry-After in seconds, or None if waiting does not help. `retry_us` is the wait with its jitter."""
    if refusal.wait_us == NEVER:
        return None
    return _seconds(retry_us, clamped=reason_of(refusal.limit) in _CLAMPED)


def _seconds(retry_us: Micros, *, clamped: bool) -> int:
    seconds = max(1, -(-retry_us // SECOND))
    return min(seconds, LONGEST_HINT) if clamped else seconds


def _standing(told: _Told, reading: Reading) -> list[tuple[_Limit, int, int | None]]:
    """Return each own limit with what is left of it and the seconds to tell (None: it never refills).

    There is none where no limit applies, or where no store was there to read.
    """
    if not reading.tokens:
        return []
    waits = {refusal.limit: refusal.wait_us for refusal in reading.refused}
    told_of = zip(told.limits, reading.tokens, strict=True)
    return [(limit, *_left(limit, tokens, waits.get(limit.name))) for limit, tokens in told_of]


def _left(limit: _Limit, tokens: float, wait: Micros | None) -> tuple[int, int | None]:
    """Return what is left of a limit, and the seconds to tell; `wait` is that of its refusal, None if it agreed."""
    left = min(int(tokens + _ROUNDING), limit.units) if tokens > 0 else 0
    if wait is not None:
        return left, None if wait == NEVER else -(-wait // SECOND)
    if tokens >= limit.brim:
        return left, 0
    if limit.unit_seconds is None:
        return left, None
    return left, ceil((limit.burst - tokens) * limit.unit_seconds - _ROUNDING)


def _members(limits: tuple[_Limit, ...], reading: Reading, said: list[bytes]) -> None:
    """Append the members of the RateLimit field. Most buckets are full, whatever became of one."""
    refused, readings = reading.refused, reading.tokens
    for index in range(len(limits)):
        limit, tokens = limits[index], readings[index]
        wait: Micros | None = None
        for refusal in refused:
            if refusal.limit == limit.name:
                wait = refusal.wait_us
        if index:
            said.append(b", ")
        if wait is None and tokens >= limit.brim:
            said.append(limit.full)
            continue
        left, reset = _left(limit, tokens, wait)
        said.append(limit.opening)
        said.append(decimal(left))
        if reset is not None:
            said.append(b";t=")
            said.append(decimal(reset))


def _tell(wording: Wording, plan: Plan) -> _Told:
    limits, policies = [], []
    for charge in plan.own:
        name = b'"%b"' % encoded(charge.limit)
        units, seconds = _window(_rate(charge))
        unit_seconds = 1 / charge.rate_us / SECOND if charge.rate_us else None
        brim = charge.burst - _ROUNDING
        full = b"%b;r=%d;t=0" % (name, min(int(charge.burst + _ROUNDING), units))
        limits.append(_Limit(charge.limit, name + b";r=", units, charge.burst, unit_seconds, brim, full))
        policies.append(b"%b;q=%d;w=%d" % (name, units, seconds))
    policy = b", ".join(policies)
    opening = b"\r\nratelimit-policy: %b\r\nratelimit: " % policy
    return _Told(wording, tuple(limits), (b"ratelimit-policy", policy), opening)


def _rate(charge: Charge) -> Rate:
    return charge.rate or Rate(Fraction(charge.rate_us * SECOND).limit_denominator(86_400))


def _window(rate: Rate) -> tuple[int, int]:
    """Return the rate reduced to integers that fit a structured field."""
    units, seconds = rate.window()
    if units <= _LARGEST and seconds <= _LARGEST:
        return units, seconds
    nearest = rate.per_second.limit_denominator(1_000_000)
    return min(nearest.numerator, _LARGEST), nearest.denominator


def _detail(plan: Plan, refusal: Refusal, kind: Kind) -> str:
    quotas = [_spoken(_rate(charge)) for charge in plan.own if charge.limit == refusal.limit]
    caller = _ALL_OF if refusal.whose == "tenant" else _CALLERS[kind]
    who = caller.format(credential=plan.credential, tenant=plan.tenant)
    template = _NEVER_DETAIL if refusal.wait_us == NEVER else _DETAILS[reason_of(refusal.limit)]
    words = _PLURAL if kind is Kind.PREFLIGHT else _SINGULAR
    quota = quotas[0] if quotas else "less"
    return template.format(who=who, tenant=plan.tenant, limit=refusal.limit, cls=plan.cls.label, quota=quota, **words)


def _spoken(rate: Rate) -> str:
    """Return the rate in the smallest unit of time in which it is whole: 10 request units per minute."""
    for seconds, unit in _UNITS_OF_TIME:
        units = rate.per_second * seconds
        if units.denominator == 1:
            return f"{units} request unit{'' if units == 1 else 's'} per {unit}"
    return f"{float(rate.per_second):.4g} request units per second"
