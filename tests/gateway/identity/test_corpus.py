"""The corpus through the resolver: who each request must be charged to (the gateway as a whole: tests/wire)."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.clock import Clock
from gateway.config import Settings
from gateway.identity.introspection import _Told
from gateway.identity.jobs import JobRegistry
from gateway.identity.resolver import CredentialResolver, build_resolver
from policies.units import SECOND
from tests.gateway.identity.corpus import INTROSPECTED, Row, auth, corpus, listed

__all__: list[str] = []

ADDRESS = "192.0.2.7"
HOUR = 3600 * SECOND


@pytest.fixture
def run(tmp_path: Path) -> tuple[CredentialResolver, list[Row]]:
    """Return a resolver to which everything is known already, and the rows."""
    clock = Clock()
    settings = Settings.model_validate(
        {
            "upstream": {"url": "http://127.0.0.1:9"},
            "backstop": {"quota": "100/s"},
            "auth": auth("http://127.0.0.1:9/"),
            "tenants": listed(past=datetime(2020, 1, 1, tzinfo=UTC)),
        }
    )
    registry = JobRegistry(tmp_path / "e.sqlite3", clock)
    _, job = registry.register("alpha", "alpha/web", "1", HOUR)
    over, ended = registry.register("alpha", "alpha/web", "2", HOUR)
    registry.end(over.id)
    resolver = build_resolver(settings, clock, registry)
    rows = corpus(int(time.time()), job, ended)
    service = resolver.introspection
    assert service is not None
    for token, (tenant, key) in INTROSPECTED.items():
        service._remember(hashlib.sha256(token.encode()).digest(), _Told(True, tenant, key))
    for row in rows:
        for _, value in row.fields:
            digest = hashlib.sha256(value.removeprefix("Bearer ").encode()).digest()
            if service._good.get(digest, clock.wall()) is None:
                service._remember(digest, _Told(active=False))
    return resolver, rows


def test_there_are_enough_rows(run: tuple[CredentialResolver, list[Row]]) -> None:
    """At least 300, all different, of every outcome."""
    _, rows = run
    assert len(rows) >= 300
    assert len({row.name for row in rows}) == len(rows)
    assert {row.status for row in rows} == {200, 400, 401}
    assert {row.who.kind for row in rows} == {"user", "job", "anonymous", "rejected"}


def test_every_row_is_who_it_must_be(run: tuple[CredentialResolver, list[Row]]) -> None:
    """One resolver, one answer; the slot never matters, and asking twice changes nothing."""
    resolver, rows = run
    wrong = []
    for row in [*rows, *reversed(rows)]:
        headers = [(name.lower().encode(), value.strip().encode()) for name, value in row.fields]
        found = resolver.resolve(headers, ADDRESS, preflight=False)
        principal, rejection = found.principal, found.rejection
        status = 200 if rejection is None else rejection.status
        told = (principal.kind.value, principal.tenant, principal.credential, status)
        if told != (row.who.kind, row.who.tenant, row.who.credential or ADDRESS, row.status):
            wrong.append((row.name, told))
        assert found.consumed is (row.who.kind in {"user", "job"}), row.name
    assert wrong == []
