"""Fetching what an operator named: bounded, never led elsewhere, never inside unless that was allowed."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.identity import fetch as fetching
from gateway.identity.fetch import MAX_BYTES, FetchError, Resolve, fetch, is_public
from tests.gateway.proxy.certificates import Authority
from tests.wire.origin import Origin, serving
from tests.wire.script import HANG, Answer
from tests.wire.waiting import SLACK

__all__: list[str] = []

PUBLIC = ("1.1.1.1", "2606:4700::1111", "64:ff9b::101:101", "::ffff:1.1.1.1")
PRIVATE = (
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "255.255.255.255", "::1", "::", "fe80::1", "fd00::1", "ff02::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a00:1", "2002:7f00:1::1", "fe80::1%eth0", "localhost", "",
)  # fmt: skip


def resolving(*addresses: str) -> Resolve:
    """Return a resolver of names that always says this."""

    async def resolve(host: str, port: int) -> list[str]:
        return list(addresses)

    return resolve


@pytest.fixture(scope="module")
def up() -> Iterator[Origin]:
    """Run one server of documents."""
    with serving() as one:
        one.on("/keys", Answer(body=b'{"keys": []}'))
        yield one


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address: str) -> None:
    """Anybody could reach it, whatever form it is written in."""
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(address: str) -> None:
    """Loopback, private, link-local, shared, multicast, unspecified, those inside an IPv6 one, and what is none."""
    assert not is_public(address)


async def test_a_document_is_returned_as_it_is(up: Origin) -> None:
    """One GET, to the address that was looked at, asking for what the name says, with no coding."""
    up.seen.clear()
    url = up.address.replace("127.0.0.1", "keys.example.com") + "/keys?v=1"
    assert await fetch(url, allow_private=True, resolve=resolving("127.0.0.1")) == b'{"keys": []}'
    (seen,) = up.seen
    assert (seen.method, seen.target) == ("GET", b"/keys?v=1")
    assert seen.header("host") == url.split("/")[2]
    assert seen.header("accept-encoding") == "identity"
    assert seen.header("authorization") is None


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("1.1.1.1", "10.0.0.1"), ("::ffff:127.0.0.1",)])
async def test_a_private_address_is_refused_after_resolution(up: Origin, addresses: tuple[str, ...]) -> None:
    """A public name with one private address is refused whole; nothing is connected to."""
    connections = len(up.connections)
    with pytest.raises(FetchError, match="private address"):
        await fetch(up.address + "/keys", allow_private=False, resolve=resolving(*addresses))
    assert len(up.connections) == connections


async def test_a_name_that_changes_its_answer_gains_nothing(up: Origin) -> None:
    """The name is asked once, and the connection goes to what was looked at (DNS rebinding)."""
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.9"]

    url = up.address.replace("127.0.0.1", "rebind.example.com") + "/keys"
    assert await fetch(url, allow_private=True, resolve=rebinding)
    assert asked == ["rebind.example.com"]


async def test_another_address_is_tried_where_one_refuses(up: Origin) -> None:
    """A name may have an address that is down."""
    url = up.address.replace("127.0.0.1", "two.example.com") + "/keys"
    assert await fetch(url, allow_private=True, resolve=resolving("127.0.0.77", "127.0.0.1"))


async def test_the_certificate_is_that_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the connection goes to an address; another name's certificate is refused."""
    authority = Authority(tmp_path)
    monkeypatch.setattr(fetching, "trusted", lambda: ssl.create_default_context(cafile=str(authority.file)))
    with serving(Origin(tls=authority.serve("keys.example.com"))) as up:
        port = up.address.rpartition(":")[2]
        for name in ("keys.example.com", "other.example.com"):
            asked = fetch(f"https://{name}:{port}/", allow_private=True, resolve=resolving("127.0.0.1"))
            if name.startswith("keys"):
                assert await asked == b"ok"
            else:
                with pytest.raises(FetchError, match="cannot be reached"):
                    await asked


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Answer(status=302, fields=(("Location", "/elsewhere"),)), "status 302"),
        (Answer(status=503), "status 503"),
        (Answer(status=204), "status 204"),
        (Answer(fields=(("Content-Encoding", "gzip"),)), "content coding"),
        (Answer(body=b"x" * (MAX_BYTES + 1)), "larger than"),
        (Answer(body=lambda: iter([b"x" * 65536] * 100), framing="chunked"), "larger than"),
        (Answer(cut=60, ending="close", body=b"x" * 1000), "cannot be reached"),
        (Answer(raw=b"nonsense\r\n\r\n", ending="close"), "cannot be reached"),
    ],
)
async def test_what_is_no_plain_answer_is_a_failure(up: Origin, answer: Answer, fault: str) -> None:
    """Nothing is followed, unpacked or collected without end."""
    up.then(answer)
    with pytest.raises(FetchError, match=fault):
        await fetch(up.address + "/keys", allow_private=True)


async def test_the_whole_is_bounded_in_time(up: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that never begins, or never ends, ends all the same."""
    monkeypatch.setattr(fetching, "TIMEOUT_SECONDS", 0.3)
    for answer in (HANG, Answer(body=lambda: iter([b"x"] * 1000), framing="chunked", gap=0.1)):
        up.then(answer)
        began = time.monotonic()
        with pytest.raises(FetchError, match="does not answer within"):
            await fetch(up.address + "/keys", allow_private=True)
        assert time.monotonic() - began < 5 + SLACK


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://nowhere.invalid/", "http://[::1/", "https://a:99999/"])
async def test_what_cannot_be_reached_is_a_failure(url: str) -> None:
    """Whatever went wrong below is one kind of error, in a sentence of ours."""
    with pytest.raises(FetchError):
        await fetch(url, allow_private=True)


async def test_a_name_without_addresses_is_a_failure() -> None:
    """There is nobody to ask."""
    with pytest.raises(FetchError, match="no address"):
        await fetch("http://keys.example.com/", allow_private=True, resolve=resolving())
