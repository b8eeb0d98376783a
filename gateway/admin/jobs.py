"""`POST /api/jobs`, `DELETE /api/jobs/{id}`: opaque tokens for CI jobs, good while the job lives.

Rules
1. The token is in one answer, once; nobody can ask for it again.
2. What is wrong with a request is 400 with a sentence; a registry that cannot keep the job is 503, and then there is
   none.
3. The body is at most `MAX_BODY` octets.
"""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.answers import json_answer, problem_answer
from gateway.config.values import parse_wait
from gateway.identity.jobs import DEFAULT_TTL, MAX_TTL, JobRegistry, RegistryError
from gateway.identity.roster import is_id
from policies.units import SECOND, Micros

__all__ = ["MAX_BODY", "Jobs", "job_routes"]

MAX_BODY = 8192
_MEMBERS = frozenset({"tenant", "project", "job", "ttl"})


class Jobs:
    """The endpoints over one registry."""

    def __init__(self, registry: JobRegistry) -> None:
        self._registry = registry

    async def register(self, request: Request) -> Response:
        """`POST /api/jobs` with `{"tenant", "project", "job", "ttl"}`: 201 with the token."""
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise HTTPException(413, f"The body is longer than {MAX_BODY} octets.")
        try:
            tenant, project, job, ttl_us = _read(body)
        except ValueError as error:
            return problem_answer(request, 400, "bad-request", str(error))
        try:
            made, token = await run_in_threadpool(self._registry.register, tenant, project, job, ttl_us)
        except RegistryError as error:
            return problem_answer(request, 503, detail=str(error))
        expires = datetime.fromtimestamp(made.expires_us / SECOND, UTC).isoformat(timespec="seconds")
        told = {"id": made.id, "token": token, "tenant": tenant, "project": project, "job": job, "expires": expires}
        return json_answer(told, 201)

    def end(self, request: Request) -> Response:
        """`DELETE /api/jobs/{id}`: 204, the token is good for nothing from now on; 404 where there is no such job."""
        try:
            ended = self._registry.end(request.path_params["id"])
        except RegistryError as error:
            return problem_answer(request, 503, detail=str(error))
        if not ended:
            raise HTTPException(404)
        return Response(status_code=204, headers={"cache-control": "no-store"})


def job_routes(registry: JobRegistry) -> list[Route]:
    """Return the two paths."""
    jobs = Jobs(registry)
    return [
        Route("/api/jobs", jobs.register, methods=["POST"]),
        Route("/api/jobs/{id}", jobs.end, methods=["DELETE"]),
    ]


def _read(body: bytes) -> tuple[str, str, str, Micros]:
    """Return tenant, project, job and time to live. Raises ValueError with one sentence."""
    try:
        members = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError("The body is not JSON.") from error
    if not isinstance(members, dict) or not members.keys() <= _MEMBERS:
        raise ValueError('Expected an object of "tenant", "project", "job" and "ttl", and nothing else.')
    job = members.get("job")
    if isinstance(job, int) and not isinstance(job, bool):
        job = str(job)
    named = (members.get("tenant"), members.get("project"), job)
    for name, value in zip(("tenant", "project", "job"), named, strict=True):
        if not is_id(value):
            raise ValueError(f'"{name}" is no id: 1 to 128 octets without controls, and no reserved word.')
    return str(named[0]), str(named[1]), str(job), _ttl(members.get("ttl", "1h"))


def _ttl(value: object) -> Micros:
    """Read a duration, or a number of seconds as CI systems write a time-out."""
    if isinstance(value, int) and not isinstance(value, bool):
        ttl = value * SECOND
    else:
        try:
            ttl = parse_wait(value)
        except ValueError as error:
            raise ValueError('"ttl" is no duration such as "1h", and no number of seconds.') from error
    if not 0 < ttl <= MAX_TTL:
        raise ValueError(
            f'"ttl" is not between 1 s and {MAX_TTL // SECOND} s; left out, it is {DEFAULT_TTL // SECOND}.'
        )
    return ttl
