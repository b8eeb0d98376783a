"""Case 85: body octets, Content-Encoding and Content-Length pass unchanged; the gateway never inflates."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator

import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin
from tests.wire.script import Answer

__all__: list[str] = []

PLAIN = b"all work and no play " * 2000
#: A bomb: 10 GB in 10 MB, members of a gzip stream one after the other.
BOMB = gzip.compress(bytes(16 << 20)) * 640

ENCODED = {
    "gzip": ("gzip", gzip.compress(PLAIN)),
    "deflate": ("deflate", zlib.compress(PLAIN)),
    # Whatever these two are made of, a gateway that looked inside would stumble.
    "br": ("br", os.urandom(5000)),
    "zstd": ("zstd", b"\x28\xb5\x2f\xfd" + os.urandom(5000)),
    "twice": ("gzip, gzip", gzip.compress(gzip.compress(PLAIN))),
    "a label that lies": ("gzip", PLAIN),
    "no label": (None, gzip.compress(PLAIN)),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[Gateway]:
    """Run a gateway whose tenant has plenty."""
    with running(tmp_path_factory.mktemp("gateway"), origin, {"tenants": tenants("a", quota="1000/s")}) as one:
        yield one


@pytest.mark.parametrize("accepts", ["gzip, br;q=0.5", "identity", None])
@pytest.mark.parametrize("name", ENCODED)
async def test_encoded_body_passes_as_it_is(gateway: Gateway, up: Origin, name: str, accepts: str | None) -> None:
    """Framed by length and in chunks, with 206 and for HEAD, whatever the caller says it accepts."""
    label, body = ENCODED[name]
    fields = ((("Content-Encoding", label),) if label else ()) + (("ETag", '"x"'), ("Vary", "Accept-Encoding"))
    part = (("Content-Range", f"bytes 0-{len(body) - 1}/99999"),)
    up.on("/length", Answer(fields=fields, body=body))
    up.on("/chunked", Answer(fields=fields, body=body, framing="chunked"))
    up.on("/part", Answer(206, fields=fields + part, body=body))
    asked = [("Accept-Encoding", accepts)] if accepts else []
    async with balanced(gateway, up) as books:
        for method, target in (("GET", "/length"), ("GET", "/chunked"), ("GET", "/part"), ("HEAD", "/length")):
            answer = await call(gateway.address, request(method, target, token=token("a"), fields=asked))
            books.sent("a")
            assert (answer.complete, answer.status) == (True, 206 if target == "/part" else 200)
            assert answer.body == (b"" if method == "HEAD" else body)
            for key, value in fields + (part if target == "/part" else ()):
                assert answer.all(key) == [value]
            assert answer.header("content-encoding") == label
            assert answer.header("content-length") == (None if target == "/chunked" else str(len(body)))
    assert [seen.header("accept-encoding") for seen in up.seen] == [accepts] * 4


async def test_bomb_is_not_inflated(gateway: Gateway, up: Origin) -> None:
    """10 GB in 10 MB pass through, octet by octet the same, and cost less than 10 MB of memory."""
    up.on("/", Answer(fields=(("Content-Encoding", "gzip"),), body=BOMB))
    async with balanced(gateway, up) as books:
        await call(gateway.address, request("HEAD", token=token("a")))
        before = gateway.memory()
        answer = await call(gateway.address, request(token=token("a")))
        grown = gateway.memory() - before
        books.sent("a", 2)
    assert hashlib.sha256(answer.body).digest() == hashlib.sha256(BOMB).digest()
    assert grown < 10 << 20
