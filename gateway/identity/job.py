"""CI jobs: a bucket per project, class batch, the parent tenant chosen by the issuer and bounded by the operator.

Rules
1. A job token that is a JWT is verified like any other (`jwt.py`); here its claims become a project and a job.
2. A namespace is chosen by whoever registers it, so an entry speaks only for the tenants it lists.
3. A token with our own job prefix is ours whatever it says: none is issued yet, so none is valid.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gateway.identity.answer import Answer, Finding
from gateway.identity.jwt import Claims
from gateway.identity.roster import Claimed, is_id
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
        """Return the project that `claims` name; the job may be a number, as CI systems count them."""
        tenant, project, job = (claims.get(name) for name in (self.tenant_claim, self.project_claim, self.job_claim))
        if isinstance(job, int) and not isinstance(job, bool):
            job = str(job)
        if not is_id(tenant) or not is_id(project) or not is_id(job) or self.tenants.fullmatch(tenant) is None:
            return None
        return Claimed(Kind.JOB, tenant, project, expires_us, job)


class OpaqueJobs:
    """Tokens with the prefix `evh_job_`; the seam where issued ones will be looked up."""

    __slots__ = ()

    def check(self, _token: bytes, _wall: Micros) -> Finding:
        """Judge a token that starts with `evh_job_`; never NOT_MINE."""
        return Answer.INVALID
