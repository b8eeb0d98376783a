"""The one resolver: who sent this request. What it answers is what is charged, ranked, logged and counted.

Rules
1. A token's kind is told by its own prefix, then by its shape, never by the slot it came in.
2. Each kind answers NOT_MINE, INVALID or OK (`answer.py`). The first that does not say NOT_MINE is the answer.
3. What proves nothing is looked up in one table: presented or found -> which strangers. There is no other way to be
   anonymous or rejected, so none of them differs from another by what was wrong with a credential.
4. Synchronous, and bounded: at most one hash of at most MAX_TOKEN bytes, and the signatures of the entries that share
   the token's issuer and audience. Answers are remembered by digest: good ones until they expire or for `[auth] cache`,
   others for a few seconds in a memory of their own, so that no flood of bad tokens displaces good ones. A key set
   that changes ends all of it.
5. What only another service can know (`introspection.py`) is asked for by `ask`, before; `resolve` then finds it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from gateway.clock import Clock
from gateway.config import Settings
from gateway.config.auth import JobIssuerEntry, JwtIssuerEntry
from gateway.config.entries import CredentialEntry, TenantEntry
from gateway.identity.answer import Answer, Finding
from gateway.identity.cache import Generations, TokenCache
from gateway.identity.credentials import Presented, extract
from gateway.identity.introspection import Introspection, could_be_opaque
from gateway.identity.job import JobMapping, OpaqueJobs
from gateway.identity.jobs import JobRegistry
from gateway.identity.jwt import MAX_TOKEN, Issuer, Jwts, UserMapping
from gateway.identity.keyring import Keyring
from gateway.identity.pat import JOB_PREFIX, PAT_PREFIX, Pats
from gateway.identity.roster import Roster, Rules, glob
from gateway.identity.strangers import Strangers
from gateway.ports import Ask, Headers, Rejection, Resolution
from policies.request import Class, Kind, Principal
from policies.units import SECOND, Micros

__all__ = [
    "AMBIGUOUS",
    "INVALID",
    "REQUIRED",
    "UNAVAILABLE",
    "Checker",
    "CredentialResolver",
    "StrangerTable",
    "build_resolver",
    "stranger_table",
]

# Looked up once, as it is called for nearly every request.
_SHA256: Final = hashlib.sha256
_TOKEN: Final = Presented.TOKEN
_NOT_MINE: Final = Answer.NOT_MINE
_OURS: Final = b"evh_"
_PAT: Final = PAT_PREFIX.encode()
_JOB: Final = JOB_PREFIX.encode()

#: Finding -> strangers, without and with a preflight: the index is the truth of "this is a preflight".
StrangerTable: TypeAlias = tuple[Mapping[Presented | Answer, Strangers], Mapping[Presented | Answer, Strangers]]

_REMEMBERED: Final = 32_768
_REMEMBERED_BAD: Final = 4096
#: How long a bad token stays bad unseen: its clock may be ahead of ours, so it can become good.
_BAD_FOR: Final = 5 * SECOND

REQUIRED: Final = Rejection(401, "credential-required", "This service answers only callers that present a credential.")
INVALID: Final = Rejection(401, "invalid-credential", "The credential that was presented is not valid here.")
UNAVAILABLE = Rejection(503, "identity-unavailable", "Whoever can tell whether this credential is valid is silent.")
AMBIGUOUS = Rejection(400, "ambiguous-credentials", "The request presents more than one credential; send exactly one.")


class Checker(Protocol):
    """One kind of credential."""

    def check(self, token: bytes, wall: Micros) -> Finding:
        """Judge `token` at the wall-clock instant `wall`."""
        ...


class CredentialResolver:
    """Prefixes, then shapes, then who can be asked, then strangers."""

    __slots__ = (
        "_bad", "_cache_us", "_clock", "_epoch", "_good", "_introspection", "_jobs", "_pats", "_seen", "_shapes",
        "_strangers", "ask", "keyring",
    )  # fmt: skip

    def __init__(
        self,
        pats: Pats,
        jobs: OpaqueJobs,
        shapes: Sequence[Checker],
        strangers: StrangerTable,
        cache_us: Micros,
        clock: Clock,
        *,
        keyring: Keyring | None = None,
        introspection: Introspection | None = None,
    ) -> None:
        """Take a checker per prefix, those without one in the order they are asked, and the table of rule 3.

        `keyring` holds the key sets that whoever composes the house keeps fresh.
        """
        self._pats = pats
        self._jobs = jobs
        self._shapes = tuple(shapes)
        self._strangers = strangers
        self._cache_us = cache_us
        self._clock = clock
        #: By digest, as the other; but each says itself until when: one thing to look at less for every request.
        self._good: Generations[bytes, Resolution] = Generations(_REMEMBERED)
        self._bad: TokenCache[Answer] = TokenCache(_REMEMBERED_BAD)
        self.keyring = keyring or Keyring(clock)
        self._epoch = self.keyring.epoch
        self._seen = self._epoch.number
        self._introspection = introspection
        #: None where nobody is ever asked.
        self.ask: Ask | None = None if introspection is None else self._ask

    @property
    def introspection(self) -> Introspection | None:
        """Whoever is asked about opaque tokens."""
        return self._introspection

    def resolve(self, headers: Headers, address: str, *, preflight: bool) -> Resolution:
        """Return who sent `headers`, whose names are lower case, from `address`. Raises nothing, whatever they hold."""
        presented, token = extract(headers)
        if presented is not _TOKEN:
            return self._strangers[preflight][presented].at(address)
        finding = self._find(token)
        return finding if isinstance(finding, Resolution) else self._strangers[preflight][finding].at(address)

    def _find(self, token: bytes) -> Finding:
        wall = self._clock.wall()
        if token[:4] == _OURS:
            if token.startswith(_PAT):
                return self._pats.check(token, wall)
            if token.startswith(_JOB):
                return self._jobs.check(token, wall)
        if len(token) > MAX_TOKEN:
            return self._judge(token, wall)
        introspection = self._introspection
        if not self._shapes and introspection is None:
            return _NOT_MINE
        digest = _SHA256(token).digest()
        finding = self._shaped(token, digest, wall) if self._shapes else _NOT_MINE
        if finding is _NOT_MINE and introspection is not None and could_be_opaque(token):
            return introspection.known(digest, wall)
        return finding

    def _shaped(self, token: bytes, digest: bytes, wall: Micros) -> Finding:
        if self._seen != self._epoch.number:
            self._seen = self._epoch.number
            self._good.clear()
            self._bad.clear()
        # The young generation first and by hand: this is a request's whole cost of knowing its caller.
        known = self._good.young.get(digest) or self._good.get(digest)
        if known is not None:
            if known.until > wall:
                return known
            self._good.drop(digest)
        return self._bad.get(digest, wall) or self._learn(token, digest, wall)

    def _ask(self, headers: Headers, address: str, resume: Callable[[], None]) -> Callable[[], None] | None:
        """Ask who sent `headers`, where only introspection can know (`Ask` in gateway/ports.py)."""
        presented, token = extract(headers)
        introspection = self._introspection
        if introspection is None or presented is not _TOKEN or len(token) > MAX_TOKEN or not could_be_opaque(token):
            return None
        if token.startswith((_PAT, _JOB)):
            return None
        digest = _SHA256(token).digest()
        if self._shapes and self._shaped(token, digest, self._clock.wall()) is not _NOT_MINE:
            return None
        return introspection.ask(token, digest, address, resume)

    def _learn(self, token: bytes, digest: bytes, wall: Micros) -> Finding:
        finding = self._judge(token, wall)
        if isinstance(finding, Answer):
            self._bad.put(digest, finding, wall + _BAD_FOR)
        else:
            ends = finding.principal.expires_us
            until = wall + self._cache_us
            finding = replace(finding, until=until if ends is None else min(until, ends))
            self._good.put(digest, finding)
        return finding

    def _judge(self, token: bytes, wall: Micros) -> Finding:
        for shape in self._shapes:
            finding = shape.check(token, wall)
            if finding is not _NOT_MINE:
                return finding
        return _NOT_MINE


def stranger_table(*, anonymous: bool, unknown: str, posture: str = "") -> StrangerTable:
    """Return which strangers each finding makes, for `[auth] anonymous` and `unknown`; then the same for preflights.

    `posture` is that of the introspection.

    A caller whose credential is left to the upstream did present one, so `anonymous = false` does not refuse it. A
    browser sends a preflight without the page's credential (Fetch, 3.2.2), so it is never asked for one.
    """
    nameless, preflight = Strangers(Kind.ANONYMOUS), Strangers(Kind.PREFLIGHT)
    invalid, ambiguous = Strangers(Kind.REJECTED, INVALID), Strangers(Kind.REJECTED, AMBIGUOUS)
    required = nameless if anonymous else Strangers(Kind.REJECTED, REQUIRED)
    foreign = (nameless, preflight) if unknown == "anonymous" else (invalid, invalid)
    rows: dict[Presented | Answer, tuple[Strangers, Strangers]] = {
        Presented.NOTHING: (required, preflight),
        Presented.AMBIGUOUS: (ambiguous, ambiguous),
        Presented.FOREIGN: foreign,
        Answer.NOT_MINE: foreign,
        Answer.INVALID: (invalid, invalid),
        Answer.UNAVAILABLE: (Strangers(Kind.REJECTED, UNAVAILABLE, posture),) * 2,
        Answer.UNJUDGED: (Strangers(Kind.ANONYMOUS, posture=posture),) * 2,
    }
    return {finding: row[0] for finding, row in rows.items()}, {finding: row[1] for finding, row in rows.items()}


def build_resolver(settings: Settings, clock: Clock, registry: JobRegistry | None = None) -> CredentialResolver:
    """Return the resolver of one configuration. Raises ConfigError for a secret or a key file that cannot be used.

    A reload builds another one, with the same `registry`: with it go removed tokens, and everything remembered under
    the old rules. Nothing is fetched or asked until somebody runs its `keyring` and `introspection`.
    """
    auth = settings.auth
    roster = Roster(_rules(settings.tenants), auth.max_unlisted_tenants, clock)
    keyring = Keyring(clock)
    users = [_user_issuer(entry, f"auth.jwt[{n}]", keyring) for n, entry in enumerate(auth.jwt)]
    jobs = [_job_issuer(entry, f"auth.job[{n}]", keyring) for n, entry in enumerate(auth.job)]
    issuers = users + jobs
    asked = auth.introspection
    return CredentialResolver(
        pats=Pats(_pats(settings.tenants)),
        jobs=OpaqueJobs(registry, roster),
        shapes=[Jwts(issuers, roster)] if issuers else [],
        strangers=stranger_table(
            anonymous=auth.anonymous, unknown=auth.unknown, posture="" if asked is None else asked.posture
        ),
        cache_us=auth.cache,
        clock=clock,
        keyring=keyring,
        introspection=None if asked is None else Introspection(asked, roster, clock),
    )


def _highest(entry: CredentialEntry) -> Class:
    return min(Class[name.upper()] for name in entry.classes)


def _rules(tenants: Iterable[TenantEntry]) -> Mapping[str, Mapping[str, Rules]]:
    return {
        tenant.id: {entry.id: Rules(_highest(entry), entry.expires) for entry in tenant.credentials}
        for tenant in tenants
    }


def _pats(tenants: Iterable[TenantEntry]) -> Iterator[tuple[bytes, Principal]]:
    for tenant in tenants:
        for entry in tenant.credentials:
            principal = Principal(Kind.USER, tenant.id, entry.id, _highest(entry), expires_us=entry.expires)
            for pat in entry.pat:
                yield bytes.fromhex(pat.removeprefix("sha256:")), principal


def _user_issuer(entry: JwtIssuerEntry, path: str, keyring: Keyring) -> Issuer:
    mapping = UserMapping(glob(entry.tenants), entry.tenant_claim, entry.key_claim)
    return Issuer(entry.issuer, entry.audience, keyring.keys(entry, path), mapping)


def _job_issuer(entry: JobIssuerEntry, path: str, keyring: Keyring) -> Issuer:
    mapping = JobMapping(glob(entry.tenants), entry.tenant_claim, entry.project_claim, entry.job_claim)
    return Issuer(entry.issuer, entry.audience, keyring.keys(entry, path), mapping)
