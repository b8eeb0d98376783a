"""`POST /api/jobs` and `DELETE /api/jobs/{id}`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from gateway.admin.jobs import MAX_BODY, job_routes
from gateway.clock import Clock
from gateway.identity.jobs import JobRegistry

__all__: list[str] = []

GOOD = {"tenant": "acme", "project": "acme/web", "job": "7", "ttl": "10m"}


@pytest.fixture
def registry(tmp_path: Path) -> JobRegistry:
    """Return an empty registry."""
    return JobRegistry(tmp_path / "e.sqlite3", Clock())


async def ask(registry: JobRegistry, method: str, path: str, body: Any = None) -> httpx.Response:
    """Ask the two endpoints."""
    transport = httpx.ASGITransport(Starlette(routes=[*job_routes(registry)]))
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.request(method, path, content=content)


async def test_a_job_is_registered_and_ended(registry: JobRegistry) -> None:
    """201 with the token, once; 204; then 404."""
    made = await ask(registry, "POST", "/api/jobs", GOOD)
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    told = made.json()
    assert told.keys() == {"id", "token", "tenant", "project", "job", "expires"}
    assert (told["tenant"], told["project"], told["job"]) == ("acme", "acme/web", "7")
    assert told["token"].startswith("evh_job_")
    (job,) = registry.live.values()
    assert job.id == told["id"]
    assert (await ask(registry, "DELETE", f"/api/jobs/{told['id']}")).status_code == 204
    assert registry.live == {}
    assert (await ask(registry, "DELETE", f"/api/jobs/{told['id']}")).status_code == 404


@pytest.mark.parametrize(
    ("ttl", "seconds"), [("90s", 90), (90, 90), ("7d", 604_800), (None, 3600)], ids=["text", "number", "most", "none"]
)
async def test_a_ttl_is_a_duration_or_seconds(registry: JobRegistry, ttl: object, seconds: int) -> None:
    """Left out, it is an hour."""
    before = Clock().wall()
    body = {name: value for name, value in (GOOD | {"ttl": ttl}).items() if value is not None}
    assert (await ask(registry, "POST", "/api/jobs", body)).status_code == 201
    (job,) = registry.live.values()
    assert 0 <= job.expires_us - before - seconds * 1_000_000 < 5_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        [],
        {},
        GOOD | {"tenant": ""},
        GOOD | {"tenant": "rejected"},
        GOOD | {"project": "a\nb"},
        GOOD | {"project": None},
        GOOD | {"job": True},
        GOOD | {"job": "x" * 129},
        GOOD | {"ttl": "soon"},
        GOOD | {"ttl": 0},
        GOOD | {"ttl": True},
        GOOD | {"ttl": "8d"},
        GOOD | {"quota": "1/s"},
    ],
)
async def test_what_is_wrong_is_400_in_a_sentence(registry: JobRegistry, body: Any) -> None:
    """And registers nothing."""
    answer = await ask(registry, "POST", "/api/jobs", body)
    assert answer.status_code == 400
    assert answer.json()["detail"]
    assert registry.live == {}


async def test_a_job_may_be_a_number(registry: JobRegistry) -> None:
    """As CI systems count them."""
    assert (await ask(registry, "POST", "/api/jobs", GOOD | {"job": 8})).json()["job"] == "8"


async def test_the_body_is_bounded(registry: JobRegistry) -> None:
    """A long one is not collected."""
    assert (await ask(registry, "POST", "/api/jobs", b"x" * (MAX_BODY + 1))).status_code == 413


async def test_a_registry_that_cannot_keep_it_is_503(tmp_path: Path) -> None:
    """Then there is no such job."""
    (tmp_path / "e.sqlite3").write_text("no database" * 1000)
    registry = JobRegistry(tmp_path / "e.sqlite3", Clock())
    assert (await ask(registry, "POST", "/api/jobs", GOOD)).status_code == 503
    assert (await ask(registry, "DELETE", "/api/jobs/job-1")).status_code == 503
