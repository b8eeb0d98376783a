"""`/api/pause`, `/api/exemptions` and `/api/posture`: made, listed, ended, each with an audit line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from gateway.admin import build_admin
from gateway.admin.acts import MAX_BODY, act_routes
from gateway.stores.acts import Acts
from tests.gateway.admin.served import Served

__all__: list[str] = []

EXEMPTION = """
[[tenants]]
id = "acme"
[[exemptions]]
name = "launch"
match = { tenant = "acme" }
multiplier = 4.0
reason = "launch week"
owner = "sre"
expires = 2099-01-01T00:00:00Z
"""
ROUTES = (
    '[[routes]]\nname = "plain"\npath = "/plain"\n[[routes]]\nname = "exports"\npath = "/exports"\nposture = "closed"\n'
)
BATCH = {"match": {"class": "batch"}, "for": "30m", "reason": "backfill", "owner": "sre"}


class Acting(Served):
    """A served admin listener with acts."""

    def __init__(
        self, folder: Path, more: str = "", *, token: str = "", standing: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(folder, more, token=token)
        self.acts = Acts(folder / "acts.sqlite3", self.clock)
        routes = act_routes(self.acts, lambda: self.policies, self.telemetry, self.clock, lambda: standing)
        self.app = build_admin(
            self.loaded.settings, lambda: self.policies, self.telemetry, self.health, self.clock, more=routes
        )

    async def post(self, path: str, members: object, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Ask for an act."""
        return await self.ask(path, "POST", headers, json.dumps(members))


async def test_pause(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A pause is made, listed and ended; both acts are audited."""
    served = Acting(tmp_path)
    made = await served.post("/api/pause", BATCH)
    assert (made.status_code, made.json()["match"]) == (201, {"class": "batch"})
    id = made.json()["id"]
    assert [row["id"] for row in (await served.ask("/api/pause")).json()["pauses"]] == [id]
    assert (await served.ask(f"/api/pause/{id}", "DELETE")).status_code == 204
    assert (await served.ask(f"/api/pause/{id}", "DELETE")).status_code == 404
    assert (await served.ask("/api/pause")).json() == {"pauses": []}
    told = [json.loads(record.getMessage()) for record in caplog.records if record.name == "evenhand.audit"]
    assert [(line["act"], line["id"], line["owner"]) for line in told] == [("made", id, "sre"), ("ended", id, "sre")]


async def test_exemptions(tmp_path: Path) -> None:
    """Exemptions by act and those of the file are listed together; only acts have an id to end them by."""
    served = Acting(tmp_path, EXEMPTION)
    made = await served.post("/api/exemptions", BATCH | {"match": {"tenant": "acme"}, "multiplier": 2})
    assert made.status_code == 201
    listed = (await served.ask("/api/exemptions")).json()["exemptions"]
    assert [(row["id"], row["name"]) for row in listed] == [(made.json()["id"],) * 2, (None, "launch")]


async def test_faults(tmp_path: Path) -> None:
    """What is wrong is 400 with every fault, too much is 413, a file that cannot be written 503."""
    served = Acting(tmp_path)
    wrong = await served.post("/api/pause", {"match": {}, "for": "never"})
    assert wrong.status_code == 400
    assert "for: " in wrong.json()["detail"]
    assert "match: " in wrong.json()["detail"]
    assert (await served.ask("/api/pause", "POST", body="{")).status_code == 400
    assert (await served.ask("/api/pause", "POST", body=" " * (MAX_BODY + 1))).status_code == 413
    (tmp_path / "acts.sqlite3").mkdir()
    assert (await served.post("/api/pause", BATCH)).status_code == 503


async def test_needs_the_token(tmp_path: Path) -> None:
    """With a token set nobody acts without it, nor from a page of another site."""
    served = Acting(tmp_path, token="correct-horse-battery-staple")
    assert (await served.post("/api/pause", BATCH)).status_code == 401
    bearer = {"authorization": "Bearer correct-horse-battery-staple"}
    assert (await served.post("/api/pause", BATCH, bearer | {"sec-fetch-site": "cross-site"})).status_code == 403
    assert (await served.post("/api/pause", BATCH, bearer)).status_code == 201


async def test_a_lost_end_is_503(tmp_path: Path) -> None:
    """An end that cannot be written down is no end."""
    served = Acting(tmp_path)
    id = (await served.post("/api/pause", BATCH)).json()["id"]
    for file in tmp_path.glob("acts.sqlite3*"):
        file.unlink()
    (tmp_path / "acts.sqlite3").mkdir()
    assert (await served.ask(f"/api/pause/{id}", "DELETE")).status_code == 503
    assert served.acts.of("pause")


async def test_postures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A posture is set, told route by route beside the state of the store, and ended; both are audited."""
    standing = {"up": False, "cause": "timeout", "lost_seconds": 3, "decided": 12}
    served = Acting(tmp_path, ROUTES, standing=standing)
    before = (await served.ask("/api/posture")).json()
    assert before == {
        "posture": "safe-capacity", "routes": {"plain": "safe-capacity", "exports": "closed"}, "store": standing,
        "acts": [],
    }  # fmt: skip
    made = await served.post("/api/posture", {"posture": "deny:20", "for": "1h", "owner": "sre"})
    assert (made.status_code, made.json()["posture"]) == (201, "deny:20")
    id = made.json()["id"]
    await served.post("/api/posture", {"posture": "open", "route": "exports", "for": "1h"})
    served.policies = served.acts.over(served.policies)
    found = (await served.ask("/api/posture")).json()
    assert (found["posture"], found["routes"]) == ("deny:20", {"plain": "deny:20", "exports": "open"})
    assert [act["posture"] for act in found["acts"]] == ["deny:20", "open"]
    assert (await served.ask(f"/api/posture/{id}", "DELETE")).status_code == 204
    wrong = await served.post("/api/posture", {"posture": "ajar", "route": "none"})
    assert wrong.status_code == 400
    told = [json.loads(record.getMessage()) for record in caplog.records if record.name == "evenhand.audit"]
    assert [(line["act"], line["kind"], line["posture"]) for line in told] == [
        ("made", "posture", "deny:20"), ("made", "posture", "open"), ("ended", "posture", "deny:20"),
    ]  # fmt: skip


async def test_no_posture_where_none_decides(tmp_path: Path) -> None:
    """Limits kept in this process are never lost; nobody shall believe that a posture holds."""
    served = Acting(tmp_path)
    refused = await served.post("/api/posture", {"posture": "open", "for": "1h"})
    assert (refused.status_code, refused.json()["title"]) == (409, "Not possible here")
    assert (await served.ask("/api/posture")).json()["store"] is None
