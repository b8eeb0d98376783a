"""`POST /api/reload` where nothing can be reloaded."""

from __future__ import annotations

import os
from pathlib import Path

import httpx

from gateway.app import compose
from gateway.config import load
from tests.gateway.proxy.house import write

__all__: list[str] = []


async def test_a_gateway_without_a_file_says_so(tmp_path: Path) -> None:
    """As docs/asgi.md puts one together: no file is wrong, there is none, and the answer says what to do instead."""
    gateway = compose(load(write(tmp_path), os.environ))
    transport = httpx.ASGITransport(gateway.admin)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post("/api/reload")
    assert (answer.status_code, answer.headers["content-type"]) == (409, "application/problem+json")
    said = answer.json()
    assert said["type"] == "https://evenhand.dev/problems/not-possible"
    assert (said["title"], said.get("errors")) == ("Not possible here", None)
    assert "nothing to reload" in said["detail"]
    assert "restart that program" in said["detail"]
    assert "wrong" not in said["detail"]
