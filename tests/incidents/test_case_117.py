"""Case 117: exemptions are by verified identity, keep counting, and show their volume."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.wire.caller import call, request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once
from tests.wire.origin import Origin
from tests.wire.waiting import until

__all__: list[str] = []

BYPASS = [
    ("Evenhand-Exempt", "true"),
    ("EVENHAND-BYPASS", "1"),
    ("X-RateLimit-Bypass", "1"),
    ("X-Gitlab-Rate-Limit-Bypass", "1"),
    ("Evenhand-Tenant", "e"),
    ("evenhand_tenant", "e"),
    ("Evenhand-Credential", "ci"),
    ("X-Forwarded-For", "127.0.0.1"),
    ("X-Internal", "true"),
    ("Connection", "Evenhand-Tenant, X-RateLimit-Bypass"),
    ("X-RateLimit-Bypass", "2"),
]


def exemption(**changes: Any) -> dict[str, Any]:
    """Return an exemption of tenant e."""
    entry = {
        "name": "launch",
        "match": {"tenant": "e"},
        "multiplier": 4.0,
        "reason": "launch week",
        "owner": "sre@example.com",
        "expires": datetime(2090, 1, 1, tzinfo=UTC),
    }
    return entry | changes


async def test_outsiders_gain_nothing_and_the_exempt_are_counted(tmp_path: Path, up: Origin) -> None:
    """E is served three times its bucket, each request counted as exempt; whoever claims to be is limited as ever."""
    listed = tenants("e", "o", quota="1/h burst 10")
    with running(tmp_path, up, {"tenants": listed, "exemptions": [exemption()]}) as gateway:
        assert gateway.metrics().value("evenhand_exempted_requests_total", exemption="launch") == 0
        async with balanced(gateway, up) as books:
            exempt = await at_once(gateway.address, [request(token=token("e"))] * 30)
            outsider = await at_once(gateway.address, [request(token=token("o"), fields=BYPASS)] * 30)
            nameless = await at_once(gateway.address, [request(fields=BYPASS)] * 30)
            books.sent("e", 30)
            books.sent("o", 30)
            books.sent("anonymous", 30)
        assert exempt.statuses == {200: 30}
        assert outsider.statuses == {200: 10, 429: 20}
        assert nameless.admitted <= 25
        over = await at_once(gateway.address, [request(token=token("e"))] * 30)
        assert over.statuses == {200: 10, 429: 20}, "four times its bucket, no more: there is no bypass"
        assert gateway.metrics().value("evenhand_exempted_requests_total", exemption="launch") == 60
        assert gateway.metrics().by("check", "evenhand_canary_ok") == {"exempt": 1, "forged": 1, "limited": 1}
    assert {seen.header("evenhand-tenant") for seen in up.seen} == {"e", "o", "anonymous"}


async def test_without_its_exemption_it_is_as_limited_as_others(tmp_path: Path, up: Origin) -> None:
    """Removed or ended, the volume stops at once; ended, it is reported until it is taken out."""
    soon = exemption(name="soon", expires=datetime.now(UTC) + timedelta(days=3), match={"tenant": "other-one"})
    ended = exemption(name="ended", expires=datetime(2020, 1, 1, tzinfo=UTC))
    config = {"tenants": tenants("e", "other-one", quota="1/h burst 10"), "exemptions": [ended, soon]}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            tally = await at_once(gateway.address, [request(token=token("e"))] * 30)
            books.sent("e", 30)
        assert tally.statuses == {200: 10, 429: 20}
        assert gateway.metrics().sum("evenhand_exempted_requests_total") == 0
        ready = gateway.ask("/readyz").json()
        told = [warning for warning in ready["warnings"] if "exemption" in warning]
        assert len(told) == 2
        assert told[0] == ("exemption ended of sre@example.com has ended and raises nothing: 2020-01-01T00:00:00Z")
        assert told[1].startswith("exemption soon of sre@example.com ends within a week: ")
        assert ready["counts"]["exemptions"] == {"total": 2, "in_force": 0, "ends_soon": 1, "ended": 1}


async def test_a_failing_canary_is_a_named_warning(tmp_path: Path, up: Origin) -> None:
    """An exemption for a quota that is no higher exempts nobody, which is found within the minute."""
    config = {"tenants": tenants("e"), "exemptions": [exemption(multiplier=1.0)]}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            await call(gateway.address, request(token=token("e")))
            books.sent("e")
        assert gateway.metrics().value("evenhand_canary_ok", check="exempt") == 0
        answer = gateway.ask("/readyz")
        assert answer.status == 200
        assert "the canary exempt does not find what it expects" in answer.json()["warnings"]
        assert {row["tenant"] for row in gateway.fairness()["tenants"]} == {"e"}, "the canary is in no figure"

        def logged() -> list[object]:
            return [line["tenant"] for line in gateway.log_lines() if "outcome" in line and "tenant" in line]

        await until(logged, "the call is in the log")
        assert logged() == ["e"]
