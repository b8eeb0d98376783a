"""The one resolver: who sent this request. What it answers is what is charged, ranked, logged and counted.

Rules
1. A token's kind is told by its own prefix, then by its shape, never by the slot it came in.
2. Each kind answers NOT_MINE, INVALID or OK (`answer.py`). The first that does not say NOT_MINE is the answer.
3. What proves nothing is looked up in one table: presented or found -> which strangers. There is no other way to be
   anonymous or rejected, so none of them differs from another by what was wrong with a credential.
4. Synchronous, and bounded: at most one hash of at most MAX_TOKEN bytes, and the signatures of the entries that share
   the token's issuer and audience. Answers are remembered by digest: good ones until they expire or for `[auth] cache`,
   others for a few seconds in a memory of their own, so that no flood of bad tokens displaces good ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from gateway.clock import Clock
from gateway.config import Settings
from gateway.config.auth import IssuerEntry, JobIssuerEntry, JwtIssuerEntry
from gateway.config.entries import CredentialEntry, TenantEntry
from gateway.identity.answer import Answer, Finding
from gateway.identity.cache import TokenCache
from gateway.identity.credentials import Presented, extract
from gateway.identity.job import JobMapping, OpaqueJobs
from gateway.identity.jwt import MAX_TOKEN, ClaimMapping, Issuer, Jwts, UserMapping
from gateway.identity.keys import FixedKeys, Keys, keys_of_file, keys_of_secret
from gateway.identity.pat import JOB_PREFIX, PAT_PREFIX, Pats
from gateway.identity.roster import Roster, Rules, glob
from gateway.identity.strangers import Strangers
from gateway.ports import Headers, Rejection, Resolution, Resolver
from policies.request import Class, Kind, Principal
from policies.units import SECOND, Micros

__all__ = [
    "AMBIGUOUS",
    "INVALID",
    "REQUIRED",
    "Checker",
    "CredentialResolver",
    "StrangerTable",
    "build_resolver",
    "stranger_table",
]

_TOKEN = Presented.TOKEN
_OURS = b"evh_"
_PAT = PAT_PREFIX.encode()
_JOB = JOB_PREFIX.encode()

#: Finding -> strangers, without and with a preflight: the index is the truth of "this is a preflight".
StrangerTable: TypeAlias = tuple[Mapping[Presented | Answer, Strangers], Mapping[Presented | Answer, Strangers]]

_REMEMBERED = 32_768
_REMEMBERED_BAD = 4096
#: How long a bad token stays bad unseen: its clock may be ahead of ours, so it can become good.
_BAD_FOR: Micros = 5 * SECOND

REQUIRED = Rejection(401, "credential-required", "This service answers only callers that present a credential.")
INVALID = Rejection(401, "invalid-credential", "The credential that was presented is not valid here.")
AMBIGUOUS = Rejection(400, "ambiguous-credentials", "The request presents more than one credential; send exactly one.")


class Checker(Protocol):
    """One kind of credential."""

    def check(self, token: bytes, wall: Micros) -> Finding:
        """Judge `token` at the wall-clock instant `wall`."""
        ...


class CredentialResolver:
    """Prefixes, then shapes, then strangers."""

    __slots__ = ("_bad", "_cache_us", "_clock", "_good", "_jobs", "_pats", "_shapes", "_strangers")

    def __init__(
        self,
        pats: Pats,
        jobs: OpaqueJobs,
        shapes: Sequence[Checker],
        strangers: StrangerTable,
        cache_us: Micros,
        clock: Clock,
    ) -> None:
        """Take a checker per prefix, those without one in the order they are asked, and the table of rule 3."""
        self._pats = pats
        self._jobs = jobs
        self._shapes = tuple(shapes)
        self._strangers = strangers
        self._cache_us = cache_us
        self._clock = clock
        self._good: TokenCache[Resolution] = TokenCache(_REMEMBERED)
        self._bad: TokenCache[Answer] = TokenCache(_REMEMBERED_BAD)

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
        if not self._shapes:
            return Answer.NOT_MINE
        if len(token) > MAX_TOKEN:
            return self._judge(token, wall)
        digest = hashlib.sha256(token).digest()
        return self._good.get(digest, wall) or self._bad.get(digest, wall) or self._learn(token, digest, wall)

    def _learn(self, token: bytes, digest: bytes, wall: Micros) -> Finding:
        finding = self._judge(token, wall)
        if isinstance(finding, Answer):
            self._bad.put(digest, finding, wall + _BAD_FOR)
        else:
            ends = finding.principal.expires_us
            until = wall + self._cache_us
            self._good.put(digest, finding, until if ends is None else min(until, ends))
        return finding

    def _judge(self, token: bytes, wall: Micros) -> Finding:
        for shape in self._shapes:
            finding = shape.check(token, wall)
            if finding is not Answer.NOT_MINE:
                return finding
        return Answer.NOT_MINE


def stranger_table(*, anonymous: bool, unknown: str) -> StrangerTable:
    """Return which strangers each finding makes, for `[auth] anonymous` and `unknown`; then the same for preflights.

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
    }
    return {finding: row[0] for finding, row in rows.items()}, {finding: row[1] for finding, row in rows.items()}


def build_resolver(settings: Settings, clock: Clock) -> Resolver:
    """Return the resolver of one configuration. Raises ConfigError for a secret or a key set that cannot be used.

    A reload builds another one: with it go removed tokens, and everything remembered under the old rules.
    """
    auth = settings.auth
    roster = Roster(_rules(settings.tenants), auth.max_unlisted_tenants, clock)
    users = [_user_issuer(entry, f"auth.jwt[{n}]") for n, entry in enumerate(auth.jwt)]
    jobs = [_job_issuer(entry, f"auth.job[{n}]") for n, entry in enumerate(auth.job)]
    issuers = users + jobs
    return CredentialResolver(
        pats=Pats(_pats(settings.tenants)),
        jobs=OpaqueJobs(),
        shapes=[Jwts(issuers, roster)] if issuers else [],
        strangers=stranger_table(anonymous=auth.anonymous, unknown=auth.unknown),
        cache_us=auth.cache,
        clock=clock,
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


def _user_issuer(entry: JwtIssuerEntry, path: str) -> Issuer:
    return _issuer(entry, path, UserMapping(glob(entry.tenants), entry.tenant_claim, entry.key_claim))


def _job_issuer(entry: JobIssuerEntry, path: str) -> Issuer:
    return _issuer(
        entry, path, JobMapping(glob(entry.tenants), entry.tenant_claim, entry.project_claim, entry.job_claim)
    )


def _issuer(entry: IssuerEntry, path: str, mapping: ClaimMapping) -> Issuer:
    return Issuer(entry.issuer, entry.audience, _keys(entry, path), mapping)


def _keys(entry: IssuerEntry, path: str) -> Keys:
    """Return the keys of an entry; of a key set at an address, which the configuration warns of for now, none yet."""
    secret = entry.secret.get_secret_value()
    if secret:
        return keys_of_secret(secret, entry.algorithms, f"{path}.secret")
    if entry.jwks_file is not None:
        return keys_of_file(entry.jwks_file, entry.algorithms, f"{path}.jwks_file")
    return FixedKeys({})
