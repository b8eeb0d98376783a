"""Case 19: an outage of the key endpoint is no outage of authentication, until a stated limit, and is seen."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from tests.gateway.identity.tokens import AUDIENCE, ISSUER, claims, jwk_of, rs256, rsa_key
from tests.wire.caller import Response, call, request
from tests.wire.gateway import Gateway, running, tenants
from tests.wire.ledger import balanced
from tests.wire.origin import Origin, serving
from tests.wire.script import HANG, Answer
from tests.wire.waiting import SLACK

__all__: list[str] = []

STALE_SECONDS = 4


def keys(*kids: str) -> Answer:
    """Return a key set."""
    return Answer(body=json.dumps({"keys": [jwk_of(rsa_key(kid), kid=kid) for kid in kids]}).encode())


def signed(kid: str = "k1", **changes: Any) -> str:
    """Return a token that is good now."""
    now = int(time.time())
    return rs256(claims(exp=now + 600, iat=now, **changes), rsa_key(kid), kid=kid).decode()


def config(issuer: Origin, **entry: Any) -> dict[str, Any]:
    """Return a configuration that trusts the keys at `issuer`."""
    trusted = {
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "jwks_url": f"{issuer.address}/jwks",
        "jwks_stale": f"{STALE_SECONDS}s",
        "allow_private": True,
    }
    listed = [{**tenant, "credentials": [{"id": "sub-1", "quota": "100/s burst 100"}]} for tenant in tenants("acme")]
    return {"auth": {"jwt": [trusted | entry], "rejected_quota": "1000/s burst 1000"}, "tenants": listed}


def age(gateway: Gateway) -> float:
    """Return the gauge."""
    value = gateway.metrics().value("evenhand_jwks_age_seconds", issuer=ISSUER)
    assert value is not None
    return value


async def timed(gateway: Gateway, token: str) -> tuple[Response, float]:
    """Return an answer and how long it took."""
    began = time.monotonic()
    answer = await call(gateway.address, request(token=token))
    return answer, time.monotonic() - began


async def test_the_last_good_keys_serve_until_they_are_stale(tmp_path: Path, up: Origin) -> None:
    """503s, then silence: 2xx until `jwks_stale`, then 401, by a gauge and a warning; no request waits for a fetch."""
    with serving() as issuer:
        issuer.on("/jwks", keys("k1"))
        with running(tmp_path, up, config(issuer)) as gateway:
            async with balanced(gateway, up) as books:
                assert (await timed(gateway, signed()))[0].status == 200, "the first token needs no second try"
                issuer.on("/jwks", Answer(status=503))
                down = time.monotonic()
                statuses: list[tuple[float, int]] = []
                slowest = 0.0
                while not statuses or statuses[-1][1] == 200:
                    if time.monotonic() - down > 1:
                        issuer.on("/jwks", HANG)
                    answer, took = await timed(gateway, signed(jti=str(len(statuses))))
                    statuses.append((time.monotonic() - down, answer.status))
                    slowest = max(slowest, took)
                    assert time.monotonic() - down < 3 * STALE_SECONDS + SLACK, "the keys never went stale"
                    await asyncio.sleep(0.1)
                served = sum(status == 200 for _, status in statuses)
                books.sent("acme", served + 1)
                books.rejected()
                assert statuses[-1][1] == 401
                assert statuses[-1][0] > STALE_SECONDS / 2, "they served for a while first"
                assert slowest < 4.0, "nobody waited for the fetch"
                assert age(gateway) >= STALE_SECONDS
                (warning,) = gateway.ask("/readyz").json()["warnings"]
                assert warning.startswith(f"the key set of issuer {ISSUER} cannot be refreshed: ")
                assert warning.endswith("beyond jwks_stale, so its tokens are refused")
                # A token that was verified while the keys were good does not outlive them either.
                assert (await timed(gateway, signed(jti="0")))[0].status == 401
                books.rejected()
                issuer.on("/jwks", Answer(status=503))
                issuer.cut_all()


async def test_a_new_key_is_found_and_a_withdrawn_one_ends(tmp_path: Path, up: Origin) -> None:
    """An unknown kid asks for one refresh beside the request; what the withdrawn key verified is forgotten."""
    with serving() as issuer:
        issuer.on("/jwks", keys("k1"))
        with running(tmp_path, up, config(issuer, jwks_stale="24h")) as gateway:
            async with balanced(gateway, up) as books:
                old, new = signed("k1"), signed("k2")
                assert (await timed(gateway, old))[0].status == 200
                books.sent("acme")
                issuer.on("/jwks", keys("k2"))
                asked = len(issuer.seen)
                async with asyncio.timeout(30):
                    while (await timed(gateway, new))[0].status != 200:
                        books.rejected()
                        await asyncio.sleep(0.05)
                books.sent("acme")
                assert (await timed(gateway, old))[0].status == 401
                books.rejected()
                for n in range(50):
                    assert (await timed(gateway, signed(f"k{n % 3 + 3}")))[0].status == 401
                    books.rejected()
                assert len(issuer.seen) == asked + 1, "kids that are made up ask for nothing more"
            assert age(gateway) < 30


async def test_a_private_address_is_refused_unless_allowed(tmp_path: Path, up: Origin) -> None:
    """The gateway serves on, says why, and never connects."""
    with serving() as issuer:
        address = issuer.address.replace("http://", "https://")
        entry = {"jwks_url": f"{address}/jwks", "allow_private": False}
        with running(tmp_path, up, config(issuer, **entry)) as gateway:
            async with balanced(gateway, up) as books:
                assert (await timed(gateway, signed()))[0].status == 401
                books.rejected()
            (warning,) = gateway.ask("/readyz").json()["warnings"]
            assert "it is at a private address, and allow_private is not set; there is none yet" in warning
        assert issuer.connections == []
