"""Cases 13, 15 and 17: what a token says of its own verification is never believed.

The full tables of malformed tokens run against the verifier itself (`tests/gateway/identity/test_jwt_attacks.py`); here
a part of them goes over the wire, where the answer, the log and what the upstream saw count.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.gateway.identity.tokens import (
    AUDIENCE,
    ISSUER,
    b64,
    claims,
    ec_key,
    es256,
    hs256,
    jwk_of,
    rs256,
    rsa_key,
    unsigned,
)
from tests.wire.caller import call, request
from tests.wire.gateway import Gateway, running, tenants
from tests.wire.ledger import balanced
from tests.wire.origin import Origin

__all__: list[str] = []

TRUSTED, STRANGER = rsa_key("trusted"), rsa_key("stranger")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway that trusts one RSA key and has patience with failures."""
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "jwks.json").write_text(json.dumps({"keys": [jwk_of(TRUSTED, kid="k1", use="sig")]}))
    issuer = {"issuer": ISSUER, "audience": AUDIENCE, "algorithms": ["RS256"], "jwks_file": "jwks.json"}
    config = {"auth": {"jwt": [issuer], "rejected_quota": "1000/s burst 1000"}, "tenants": tenants("acme")}
    with running(folder, origin, config) as one:
        yield one


def good(**changes: Any) -> dict[str, Any]:
    """Return claims that are good now."""
    now = int(time.time())
    return claims(exp=now + 600, iat=now, **changes)


async def all_refused(gateway: Gateway, up: Origin, tokens: list[bytes]) -> None:
    """Send each token; expect 401 with one body, no charge, and nothing but the count of failures moved."""
    async with balanced(gateway, up) as books:
        bodies = set()
        for token in tokens:
            answer = await call(gateway.address, request(token=token.decode()))
            assert answer.status == 401, (token[:200], answer)
            assert answer.header("www-authenticate") == 'Bearer error="invalid_token"'
            bodies.add(json.dumps({key: value for key, value in answer.json().items() if key != "instance"}))
            books.rejected()
        assert len(bodies) == 1, bodies
    assert up.seen == []


async def test_a_good_token_passes(gateway: Gateway, up: Origin) -> None:
    """Or the cases below would prove nothing."""
    async with balanced(gateway, up) as books:
        assert (await call(gateway.address, request(token=rs256(good(), TRUSTED, kid="k1").decode()))).status == 200
        books.sent("acme")


async def test_case_013_the_token_never_chooses_its_algorithm(gateway: Gateway, up: Origin) -> None:
    """`none` in any case, HMAC over the text of the public key, another key's algorithm, no algorithm, no string."""
    public = TRUSTED.public_key()
    texts = (
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH),
        json.dumps(jwk_of(TRUSTED, kid="k1")).encode(),
    )
    digests = (("HS256", "sha256"), ("HS384", "sha384"), ("HS512", "sha512"))
    none = [unsigned({"alg": alg, "kid": "k1"}, good()) for alg in ("none", "None", "NONE", "nOnE")]
    await all_refused(
        gateway,
        up,
        [signed + signature for signed in none for signature in (b".", b".AAAA")]
        + [hs256(good(), text, digest, alg=alg, kid="k1") for text in texts for alg, digest in digests]
        + [rs256(good(), TRUSTED, kid="k1", alg=alg) for alg in (7, ["RS256"], None, "", "PS256")]
        + [es256(good(), ec_key("stranger"), kid="k1"), unsigned({"kid": "k1"}, good()) + b".AAAA"],
    )


async def test_case_015_critical_headers_that_are_not_understood(gateway: Gateway, up: Origin) -> None:
    """Whatever `crit` holds, and an unencoded payload, under a good signature."""
    crits: tuple[object, ...] = (["x"], [], "exp", ["exp"], ["x", "x"], None)
    header = b64(json.dumps({"alg": "RS256", "kid": "k1", "b64": False, "crit": ["b64"]}).encode())
    raw = header + b"." + json.dumps({"iss": ISSUER}).replace(" ", "").encode() + b".AAAA"
    await all_refused(
        gateway,
        up,
        [rs256(good(), TRUSTED, kid="k1", crit=crit) for crit in crits]
        + [rs256(good(), TRUSTED, kid="k1", b64=False, crit=["b64"]), raw.replace(b",", b"")],
    )


@pytest.fixture
async def trap() -> AsyncIterator[tuple[str, list[object]]]:
    """Listen where a token points to; nobody should come."""
    came: list[object] = []

    async def caught(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer.get_extra_info("peername"))
        writer.close()

    server = await asyncio.start_server(caught, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys", came
    server.close()


async def test_case_017_keys_are_never_chosen_by_the_token(
    gateway: Gateway, up: Origin, trap: tuple[str, list[object]]
) -> None:
    """A kid is an opaque lookup; addresses and keys inside a token are never followed; the log stays short."""
    address, came = trap
    kids: tuple[object, ...] = (None, 0, "../../x", "' OR '1'='1", address, "x" * 15_000)
    inside: tuple[dict[str, Any], ...] = (
        {"jku": address},
        {"x5u": address},
        {"jku": address, "kid": "k1"},
        {"jwk": jwk_of(STRANGER, kid="k1"), "kid": "k1"},
    )
    await all_refused(
        gateway,
        up,
        [rs256(good(), TRUSTED, kid=kid) for kid in kids] + [rs256(good(), STRANGER, **header) for header in inside],
    )
    assert came == []
    log = gateway.log.read_text()
    assert max(map(len, log.splitlines())) < 1500
    for word in ("../../x", "OR '1'", "No such file", address):
        assert word not in log
    assert "Error" not in gateway.stderr
