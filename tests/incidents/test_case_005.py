"""Case 5: at most one credential decides; ambiguity is refused, never merged."""

from __future__ import annotations

import time
from collections.abc import Iterator

import jwt
import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin

__all__: list[str] = []

SECRET = "k" * 32
A, B = token("a"), token("b")
JWT = jwt.encode({"iss": "id.test", "aud": "api", "exp": int(time.time()) + 600, "tenant": "a", "sub": "w"}, SECRET)

TWO = {
    "two lines": [("Authorization", f"Bearer {A}"), ("Authorization", f"Bearer {B}")],
    "two lines, one empty scheme": [("Authorization", f"Bearer {A}"), ("authorization", f"Basic {B}")],
    "one line, joined": [("Authorization", f"Bearer {A}, Bearer {B}")],
    "one line, joined without a blank": [("Authorization", f"Bearer {A},{B}")],
    "joined in another slot": [("X-API-Key", f"{A}, {B}")],
    "a JWT and a PAT": [("Authorization", f"Bearer {JWT}"), ("Private-Token", B)],
    "two of one tenant": [("Authorization", f"Bearer {JWT}"), ("Job-Token", A)],
    "good, then rubbish": [("Authorization", f"Bearer {A}"), ("X-API-Key", "rubbish")],
    "rubbish, then good": [("X-API-Key", "rubbish"), ("Authorization", f"Bearer {A}")],
    "good beside a scheme we do not read": [("Authorization", "Digest username=x"), ("Private-Token", A)],
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway that knows two tenants and an issuer."""
    issuer = {"issuer": "id.test", "audience": "api", "algorithms": ["HS256"], "secret": SECRET}
    config = {"auth": {"jwt": [issuer]}, "tenants": tenants("a", "b")}
    with running(tmp_path_factory.mktemp("gateway"), origin, config) as one:
        yield one


@pytest.mark.parametrize("fields", TWO.values(), ids=TWO)
async def test_two_credentials_are_refused(gateway: Gateway, up: Origin, fields: list[tuple[str, str]]) -> None:
    """Whichever two, and however they are joined: 400, nobody charged, nothing at the upstream."""
    async with balanced(gateway, up) as books:
        answer = await call(gateway.address, request(fields=fields))
        assert answer.status == 400
        assert answer.json()["type"].endswith("/ambiguous-credentials")
        books.rejected()
    assert up.seen == []


@pytest.mark.parametrize(
    "fields",
    (
        [("Authorization", f"Bearer {A}"), ("Authorization", f"Bearer {A}")],
        [("Authorization", f"bearer  {A}"), ("Private-Token", A), ("X-API-Key", "")],
    ),
)
async def test_the_same_credential_twice_is_one(gateway: Gateway, up: Origin, fields: list[tuple[str, str]]) -> None:
    """Charge and forwarded identity name the same tenant."""
    async with balanced(gateway, up) as books:
        assert (await call(gateway.address, request(fields=fields))).status == 200
        books.sent("a")
    assert [seen.header("evenhand-tenant") for seen in up.seen] == ["a"]
