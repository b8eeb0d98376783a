"""Who may be spoken for: the listed tenants with their credentials, and a bounded number of others.

Rules
1. An id is 1 to 128 bytes of UTF-8 without controls and not one of the reserved words, whoever vouches for it.
2. A token's key claim that names a listed credential gets that credential's rules: its classes and its expiry. One
   identity has one bucket and one set of rules, however it is proved.
3. Tenants nobody listed can be minted by whoever can have a token issued, so only `max_unlisted_tenants` of them are
   told apart. Above that, new ones are one tenant, `other`, with one credential, `other`, and share its buckets until
   room is made: a tenant not seen for one to two hours gives its place up. Their token is as good as any, and what it
   proves is kept beside (`Principal.proved`), because an upstream must never serve one tenant as another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeGuard

from gateway.clock import Clock
from gateway.config.values import RESERVED
from policies.request import Class, Kind, Principal
from policies.units import SECOND, Micros

__all__ = ["OTHER", "Claimed", "Roster", "Rules", "glob", "is_id"]

#: The tenant, and the credential, of everybody above `max_unlisted_tenants`.
OTHER = "other"

_MAX_ID_BYTES = 128
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_GENERATION = 3600 * SECOND


def is_id(value: object) -> TypeGuard[str]:
    """Tell whether `value` can be the id of a tenant, a credential or a project (contract, section 3)."""
    if not isinstance(value, str) or not 1 <= len(value) <= _MAX_ID_BYTES or value in RESERVED:
        return False
    try:
        encoded = value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which a parser of JSON may let through
        return False
    return len(encoded) <= _MAX_ID_BYTES and _CONTROL.search(value) is None


def glob(patterns: Iterable[str]) -> re.Pattern[str]:
    """Compile tenant patterns: `*` stands for any characters, everything else for itself."""
    alternatives = (".*".join(map(re.escape, re.sub(r"\*+", "*", pattern).split("*"))) for pattern in patterns)
    return re.compile("|".join(f"(?:{alternative})" for alternative in alternatives) or r"(?!)", re.DOTALL)


class Rules(NamedTuple):
    """What a listed credential may do: the highest class, and until when (wall clock)."""

    highest: Class
    expires_us: Micros | None


class Claimed(NamedTuple):
    """What a verified token says of its holder; `project` is the credential of a job."""

    kind: Kind
    tenant: str
    credential: str
    expires_us: Micros
    job: str | None = None


class Roster:
    """The tenants of one configuration, and those seen beside them."""

    __slots__ = ("_listed", "_unlisted")

    def __init__(self, listed: Mapping[str, Mapping[str, Rules]], max_unlisted: int, clock: Clock) -> None:
        """Take the rules of every listed credential by tenant and id."""
        self._listed = listed
        self._unlisted = _Unlisted(max_unlisted, clock)

    def principal(self, claimed: Claimed, wall: Micros) -> Principal | None:
        """Return whom a verified token proves, or None if what it names is no id or has expired at `wall`."""
        if not (is_id(claimed.tenant) and is_id(claimed.credential)):
            return None
        credentials = self._listed.get(claimed.tenant)
        if credentials is None:
            return self._minted(claimed)
        if claimed.kind is Kind.JOB:
            return _principal(claimed, Class.BATCH, claimed.expires_us)
        rules = credentials.get(claimed.credential, _NO_RULES)
        expires_us = claimed.expires_us if rules.expires_us is None else min(claimed.expires_us, rules.expires_us)
        return _principal(claimed, rules.highest, expires_us) if expires_us > wall else None

    def _minted(self, claimed: Claimed) -> Principal:
        highest = Class.BATCH if claimed.kind is Kind.JOB else Class.INTERACTIVE
        if self._unlisted.known(claimed.tenant):
            return _principal(claimed, highest, claimed.expires_us, listed=False)
        proved = (claimed.tenant, claimed.credential)
        claimed = claimed._replace(tenant=OTHER, credential=OTHER, job=None)
        return replace(_principal(claimed, highest, claimed.expires_us, listed=False), proved=proved)


_NO_RULES = Rules(Class.INTERACTIVE, None)


def _principal(claimed: Claimed, highest: Class, expires_us: Micros, *, listed: bool = True) -> Principal:
    return Principal(claimed.kind, claimed.tenant, claimed.credential, highest, listed, claimed.job, expires_us)


class _Unlisted:
    """At most `limit` names, each kept while it is seen at least once an hour."""

    __slots__ = ("_before", "_clock", "_limit", "_now", "_turn_us")

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._now: set[str] = set()
        self._before: set[str] = set()
        self._turn_us = clock.now() + _GENERATION

    def known(self, tenant: str) -> bool:
        """Tell whether `tenant` has a place of its own, giving it one if there is room."""
        self._turn()
        if tenant in self._now:
            return True
        if tenant in self._before:
            self._before.discard(tenant)
        elif len(self._now) + len(self._before) >= self._limit:
            return False
        self._now.add(tenant)
        return True

    def _turn(self) -> None:
        now = self._clock.now()
        if now < self._turn_us:
            return
        stale = now >= self._turn_us + _GENERATION
        self._before = set() if stale else self._now
        self._now = set()
        self._turn_us = now + _GENERATION
