"""Case 37: 0 refuses everything, absent is the documented default, and anything mistyped stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli import run
from tests.wire.caller import call, request
from tests.wire.gateway import running, tenant, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once
from tests.wire.origin import Origin

__all__: list[str] = []


async def test_zero_refuses_and_absent_is_the_default(tmp_path: Path, up: Origin) -> None:
    """A zero quota of a credential, a tenant, a policy; and no `anonymous_quota` at all, which is 5/s burst 20."""
    config = {
        "tenants": [
            tenant("zero-key", quota="0/s"),
            tenant("zero-tenant", entry={"quota": "0/d"}),
            tenant("named"),
        ],
        "routes": [{"name": "closed", "path": "/closed"}],
        "policies": [{"name": "none", "match": {"route": "closed"}, "key": ["tenant"], "quota": "0/min burst 5"}],
    }
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            for name, target, limit in (
                ("zero-key", "/", "key"),
                ("zero-tenant", "/", "tenant"),
                ("named", "/closed", "none"),
            ):
                for _ in range(3):
                    answer = await call(gateway.address, request(target=target, token=token(name)))
                    assert (answer.status, answer.header("retry-after")) == (429, None)
                    assert (answer.json()["limit"], answer.json()["retryable"]) == (limit, False)
                books.sent(name, 3)
            anonymous = await at_once(gateway.address, [request()] * 60)
            books.sent("anonymous", 60)
    assert 20 <= anonymous.admitted <= 30


async def test_a_backstop_of_zero_refuses_everybody(tmp_path: Path, up: Origin) -> None:
    """A service that can serve nothing is asked for nothing."""
    config = {"backstop": {"quota": "0/s"}, "tenants": [tenant("a")]}
    with running(tmp_path, up, config) as gateway:
        async with balanced(gateway, up) as books:
            tally = await at_once(gateway.address, [request(token=token("a"))] * 10)
            books.sent("a", 10)
    assert tally.statuses == {429: 10}


QUOTA = 'expected a quota such as "5/s" or "10/min burst 20", found'


@pytest.mark.parametrize(
    ("written", "told"),
    (
        ('quota = ""', f'backstop.quota: {QUOTA} ""'),
        ('quota = "10 "', f'backstop.quota: {QUOTA} "10 "'),
        ("quota = -1", f"backstop.quota: {QUOTA} -1"),
        ("quota = nan", f"backstop.quota: {QUOTA} nan"),
        ("quota = 1e999", f"backstop.quota: {QUOTA} inf"),
        ("quota = true", f"backstop.quota: {QUOTA} true"),
        ("status = 429", f"backstop.quota: {QUOTA} nothing"),
        ('quota = "10/s"\nstats = 503', 'backstop.stats: unknown key; did you mean "status"?'),
        ('quota = "10/s"\n[store]\nurl = "redis://"', "store.url: expected the host of a Redis"),
    ),
)
def test_a_bad_value_stops_the_start(
    written: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2 and the option named; nothing is served, least of all without a limit."""
    path = tmp_path / "gateway.toml"
    path.write_text(f'[upstream]\nurl = "http://127.0.0.1:9"\n[backstop]\n{written}\n', encoding="utf-8")
    assert run(["serve", "-c", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"{path}: {told}")
