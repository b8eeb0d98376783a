"""Case 1: one resolver decides; the identity authenticated is the identity charged, ranked, logged and counted."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

import jwt
import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import Gateway, running, tenant, token
from tests.wire.ledger import balanced
from tests.wire.load import at_once
from tests.wire.origin import Origin
from tests.wire.tokens import ALPHABET
from tests.wire.waiting import until

__all__: list[str] = []

KINDS = ("pat", "jwt", "job", "opaque")
SLOTS = ("bearer", "basic", "private-token", "job-token", "x-api-key")
SECRET = "k" * 32
#: Tokens of registered jobs, by tenant.
JOBS: dict[str, str] = {}
NAMES = [f"{kind}-{slot}" for kind in KINDS for slot in SLOTS]


def issued(name: str) -> str:
    """Return a token that speaks for tenant `name`, of the kind that the name begins with."""
    claims = {"aud": "api", "exp": int(time.time()) + 600}
    match name.split("-", maxsplit=1)[0]:
        case "pat":
            return token(name)
        case "jwt":
            return jwt.encode({**claims, "iss": "id.test", "tenant": name, "sub": "worker"}, SECRET)
        case "opaque":
            return JOBS[name]
        case _:
            return jwt.encode({**claims, "iss": "ci.test", "namespace": name, "project": "p", "job": "7"}, SECRET)


def slotted(slot: str, credential: str) -> bytes:
    """Return a request with `credential` in `slot`."""
    match slot:
        case "bearer":
            field = ("Authorization", f"Bearer {credential}")
        case "basic":
            field = ("Authorization", "Basic " + base64.b64encode(f"me:{credential}".encode()).decode())
        case _:
            field = (slot.title(), credential)
    return request(fields=[field])


def flipped(credential: str, at: int) -> str:
    """Return `credential` with one character replaced by another of its alphabet."""
    other = ALPHABET[(ALPHABET.find(credential[at]) + 1) % len(ALPHABET)]
    return credential[:at] + other + credential[at + 1 :]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway that knows a PAT, an issuer, a CI issuer and jobs, and gives strangers one request."""
    issuer = {"issuer": "id.test", "audience": "api", "algorithms": ["HS256"], "secret": SECRET}
    job = {"issuer": "ci.test", "audience": "api", "algorithms": ["HS256"], "secret": SECRET}
    config = {
        "auth": {
            "anonymous_quota": "1/s burst 1",
            "jwt": [{**issuer, "tenant_claim": "tenant", "key_claim": "sub"}],
            "job": [
                {**job, "tenant_claim": "namespace", "project_claim": "project", "job_claim": "job", "tenants": NAMES}
            ],
        },
        "backstop": {"quota": "1000/s burst 1000"},
        "tenants": [
            {**tenant(name), "credentials": [{"id": "worker", "quota": "10/s burst 20"}]}
            if name.startswith("jwt")
            else tenant(name)
            for name in NAMES
        ],
    }
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        for name in NAMES:
            if name.startswith("opaque"):
                body = json.dumps({"tenant": name, "project": "p", "job": "7", "ttl": "1h"}).encode()
                JOBS[name] = one.ask("/api/jobs", "POST", body).json()["token"]
        yield one


@pytest.mark.parametrize("kind", KINDS)
async def test_identity_proved_is_the_identity_charged(gateway: Gateway, up: Origin, kind: str) -> None:
    """20 at once on a fresh bucket are 20 of that tenant, whatever the kind of token and wherever it stands."""
    async with balanced(gateway, up) as books:
        for slot in SLOTS:
            name = f"{kind}-{slot}"
            tally = await at_once(gateway.address, [slotted(slot, issued(name))] * 20)
            assert tally.statuses == {200: 20}, name
            books.sent(name, 20)
    assert up.by_tenant() == {f"{kind}-{slot}": 20 for slot in SLOTS}
    assert gateway.row("anonymous") is None

    def told() -> list[tuple[str, str]]:
        lines = [line for line in gateway.log_lines() if line.get("tenant", "").startswith(kind)]
        return [(line["outcome"], line["identity"]) for line in lines]

    logged = ("served", "job" if kind in {"job", "opaque"} else "user")
    await until(lambda: len(told()) >= 20 * len(SLOTS), "all are logged")
    assert told() == [logged] * 20 * len(SLOTS)


@pytest.mark.parametrize("kind", KINDS)
async def test_one_flipped_character_charges_nobody(gateway: Gateway, up: Origin, kind: str) -> None:
    """A token with one character changed is 401, and no tenant's books move."""
    async with balanced(gateway, up) as books:
        for slot in SLOTS:
            good = issued(f"{kind}-{slot}")
            for at in (0, len(good) // 2, len(good) - 5):
                answer = await call(gateway.address, slotted(slot, flipped(good, at)))
                assert answer.status == 401, (slot, at, answer)
                assert answer.header("www-authenticate") == 'Bearer error="invalid_token"'
                books.rejected()
    assert up.seen == []
