"""The registry of CI jobs whose opaque tokens (`evh_job_...`) are good, with a copy in memory.

Rules
1. A job is registered and ended on the admin listener's threads. What the data plane reads, `live`, is a dict that only
   ever gains or loses whole entries: no lock stands between a request and its decision.
2. It is kept before its token is told, and no longer kept before its end is confirmed: a restart forgets no job and
   revives none. Only the SHA-256 of a token is kept.
3. Another process with the same file or store sees a change within a second or two (`stores/registry.py`).
4. Bounded: `MAX_JOBS` at a time, each at most `MAX_TTL`.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gateway.clock import Clock
from gateway.identity.pat import JOB_PREFIX, mint
from gateway.stores.registry import Entry, RegistryError, open_registry
from policies.units import SECOND, Micros

if TYPE_CHECKING:
    from gateway.stores.calls import Calls

__all__ = ["DEFAULT_TTL", "MAX_JOBS", "MAX_TTL", "Job", "JobRegistry", "RegistryError"]

DEFAULT_TTL: Micros = 3600 * SECOND
#: The longest time-out of a job that CI systems let one set is a month; a week is long for a secret in a log.
MAX_TTL: Micros = 7 * 86_400 * SECOND
MAX_JOBS = 100_000


class Job(NamedTuple):
    """One job that was registered, until `expires_us` of the wall clock."""

    id: str
    tenant: str
    project: str
    job: str
    expires_us: Micros


class JobRegistry:
    """The jobs of one file, which comes into being with the first of them, or of one shared store."""

    def __init__(self, place: Path | Calls, clock: Clock) -> None:
        self._clock = clock
        self.registry = open_registry(place, "jobs", MAX_JOBS, clock)
        self.registry.gained, self.registry.lost = self._gained, self._lost
        #: By the SHA-256 of the token. To be read by anybody, changed by nobody else.
        self.live: dict[bytes, Job] = {}

    def warning(self) -> str | None:
        """Return what an operator should know of now."""
        registry = self.registry
        return f"the registry of jobs at {registry.place} cannot be read: {registry.fault}" if registry.fault else None

    def register(self, tenant: str, project: str, job: str, ttl_us: Micros) -> tuple[Job, str]:
        """Register a job and return it with its token, which is not kept. Raises RegistryError."""
        token = mint(prefix=JOB_PREFIX)
        made = Job(f"job-{secrets.token_hex(8)}", tenant, project, job, self._clock.wall() + min(ttl_us, MAX_TTL))
        digest = hashlib.sha256(token.encode()).hexdigest()
        body = {"digest": digest, "tenant": tenant, "project": project, "job": job}
        self.registry.add(Entry(made.id, body, made.expires_us))
        return made, token

    def end(self, id: str) -> bool:
        """End a job now; return whether there was one. Raises RegistryError."""
        return self.registry.end(id)

    def poll(self) -> None:
        """Take over what other processes changed, and forget what has ended."""
        self.registry.poll()

    def start(self) -> None:
        """Read what there is, and follow it from now on."""
        self.registry.start()

    def stop(self) -> None:
        """Follow no more."""
        self.registry.close()

    def _gained(self, entry: Entry) -> None:
        body = entry.body
        job = Job(entry.id, body["tenant"], body["project"], body["job"], entry.expires_us)
        self.live[bytes.fromhex(body["digest"])] = job

    def _lost(self, entry: Entry) -> None:
        self.live.pop(bytes.fromhex(entry.body["digest"]), None)
