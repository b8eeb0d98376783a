"""Case 45: a caller may lower its class, never raise it above what its credential permits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import Gateway, running, tenant, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin

__all__: list[str] = []

RAISED = "evenhand_class_raise_attempts_total"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway with a credential that may only be batch, and one that may be both."""
    config = {
        "routes": [{"name": "slow", "path": "/slow", "class": "batch"}],
        "tenants": [
            tenant("bulk", quota="1000/s", classes=["batch"]),
            tenant("both", quota="1000/s", classes=["interactive", "batch"]),
        ],
    }
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


@pytest.mark.parametrize(
    ("fields", "target", "body", "attempts"),
    (
        ([("Evenhand-Class", "interactive")], "/", None, 1),
        ([("EVENHAND-class", "Interactive")], "/", None, 1),
        ([("Evenhand-Class", "interactive"), ("Evenhand-Class", "interactive")], "/", None, 1),
        ([("Evenhand-Class", "batch"), ("Evenhand-Class", "interactive")], "/", None, 1),
        ([("Evenhand-Class", "interactive, batch")], "/", None, 1),
        ([("Evenhand_Class", "interactive"), ("X-Class", "interactive"), ("Priority", "u=0")], "/", None, 0),
        ([], "/?Evenhand-Class=interactive&class=interactive&priority=0", None, 0),
        ([("Content-Type", "application/json")], "/", b'{"class":"interactive","priority":0}', 0),
    ),
)
async def test_batch_only_credential_stays_batch(
    gateway: Gateway, up: Origin, fields: list[tuple[str, str]], target: str, body: bytes | None, attempts: int
) -> None:
    """Whatever it says and wherever it says it: batch in the charge, the log, the metrics and at the upstream."""
    before = gateway.metrics().sum(RAISED, tenant="bulk")
    async with balanced(gateway, up) as books:
        octets = request("POST" if body else "GET", target, token=token("bulk"), fields=fields, body=body)
        assert (await call(gateway.address, octets)).status == 200
        books.sent("bulk")
    assert [seen.all("evenhand-class") for seen in up.seen] == [["batch"]]
    assert not [name for seen in up.seen for name, _ in seen.fields if b"_" in name]
    assert gateway.log_lines()[-1]["class"] == "batch"
    assert gateway.metrics().sum(RAISED, tenant="bulk") - before == attempts
    assert gateway.metrics().sum("evenhand_requests_total", tenant="bulk", **{"class": "interactive"}) == 0


@pytest.mark.parametrize(
    ("asked", "target", "cls"),
    (
        (None, "/", "interactive"),
        ("batch", "/", "batch"),
        ("interactive", "/", "interactive"),
        (None, "/slow", "batch"),
        ("interactive", "/slow", "batch"),
    ),
)
async def test_class_can_only_be_lowered(
    gateway: Gateway, up: Origin, asked: str | None, target: str, cls: str
) -> None:
    """The lowest of the route's, the caller's and the credential's highest."""
    fields = [("Evenhand-Class", asked)] if asked else []
    async with balanced(gateway, up) as books:
        octets = request(target=target, token=token("both"), fields=fields)
        assert (await call(gateway.address, octets)).status == 200
        books.sent("both")
    assert [seen.all("evenhand-class") for seen in up.seen] == [[cls]]
