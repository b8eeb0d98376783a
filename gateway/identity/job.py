"""CI jobs: a bucket per project, class batch, the parent tenant chosen by the issuer and bounded by the operator.

Rules
1. A job token that is a JWT is verified like any other (`jwt.py`); here its claims become a project and a job.
2. A namespace is chosen by whoever registers it, so an entry speaks only for the tenants it lists.
3. A token with our own job prefix is ours whatever it says: it is good while the registry (`jobs.py`) has its job, and
   otherwise costs and tells exactly what an unknown PAT does.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from gateway.identity.answer import Answer, Finding, proven
from gateway.identity.cache import Generations
from gateway.identity.jobs import JobRegistry
from gateway.identity.jwt import Claims
from gateway.identity.pat import well_formed
from gateway.identity.roster import Claimed, Roster, is_id
from gateway.ports import Resolution
from policies.request import Kind
from policies.units import Micros

__all__ = ["JobMapping", "OpaqueJobs"]


class JobMapping(NamedTuple):
    """The claims of one `[[auth.job]]`."""

    tenants: re.Pattern[str]
    tenant_claim: str
    project_claim: str
    job_claim: str

    def claimed(self, claims: Claims, expires_us: Micros) -> Claimed | None:
        """Return the project that `claims` name; any of them may be a whole number, as CI systems count."""
        names = (self.tenant_claim, self.project_claim, self.job_claim)
        tenant, project, job = (_text(claims.get(name)) for name in names)
        if not is_id(tenant) or not is_id(project) or not is_id(job) or self.tenants.fullmatch(tenant) is None:
            return None
        return Claimed(Kind.JOB, tenant, project, expires_us, job)


def _text(claim: object) -> object:
    return str(claim) if isinstance(claim, int) and not isinstance(claim, bool) else claim


_REMEMBERED = 32_768


class OpaqueJobs:
    """Tokens with the prefix `evh_job_`, by the jobs of a registry; without one there are none."""

    __slots__ = ("_known", "_registry", "_roster")

    def __init__(self, registry: JobRegistry | None = None, roster: Roster | None = None) -> None:
        self._registry = registry
        self._roster = roster
        self._known: Generations[str, Resolution] = Generations(_REMEMBERED)

    def check(self, token: bytes, wall: Micros) -> Finding:
        """Judge a token that starts with `evh_job_`; never NOT_MINE."""
        if not well_formed(token):
            return Answer.INVALID
        digest = hashlib.sha256(token).digest()
        job = None if self._registry is None else self._registry.live.get(digest)
        if job is None or job.expires_us <= wall or self._roster is None:
            return Answer.INVALID
        known = self._known.get(job.id)
        if known is None:
            claimed = Claimed(Kind.JOB, job.tenant, job.project, job.expires_us, job.job)
            principal = self._roster.principal(claimed, wall)
            if principal is None:
                return Answer.INVALID
            known = proven(principal)
            self._known.put(job.id, known)
        return known
