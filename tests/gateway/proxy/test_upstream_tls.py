"""An https upstream is verified: authority, name, validity. And its end is told from its being cut."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from tests.gateway.proxy.certificates import Authority
from tests.gateway.proxy.reach import ask, get, on_both_loops, reaching
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer, Ending


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return an authority of this run."""
    return Authority(tmp_path_factory.mktemp("tls"))


@on_both_loops
async def test_trusted_upstream_is_spoken_to(authority: Authority) -> None:
    """Requests of any size go through TLS, and the connection is used again; SNI is the configured name."""
    context = authority.serve("localhost", "127.0.0.1")
    asked: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    with serving(Origin(tls=context)) as origin:
        origin.on("/big", Answer(body=b"b" * 500_000))
        port = origin.address.rpartition(":")[2]
        async with reaching(f"https://localhost:{port}", ca_file=str(authority.file)) as upstream:
            assert (await get(upstream)).status == 200
            assert len((await get(upstream, "/big")).body) == 500_000
            told = await ask(upstream, "POST", length=300_000, body=b"p" * 300_000).end()
            assert told.status == 200
        assert origin.seen[-1].length == 300_000
        assert asked == ["localhost"]


@pytest.mark.parametrize(
    ("names", "days", "trusted"),
    ((("127.0.0.1",), 1, False), (("other.example",), 1, True), (("127.0.0.1",), -1, True), ((), 1, True)),
)
@on_both_loops
async def test_untrusted_upstream_is_not_spoken_to(
    authority: Authority, tmp_path: Path, names: tuple[str, ...], days: int, trusted: bool
) -> None:
    """Another authority, another name, an expired certificate: 502, nothing sent, nothing logged by the loop."""
    trust = authority if trusted else Authority(tmp_path)
    with serving(Origin(tls=authority.serve(*names, days=days))) as origin:
        async with reaching(origin, ca_file=str(trust.file)) as upstream:
            told = await get(upstream)
            assert told.failure is not None
            assert (told.kind, told.failure.status, told.sent) == ("tls", 502, 0)
            assert "certificate" in told.failure.detail.lower()
        assert not origin.seen


@on_both_loops
async def test_plain_upstream_is_no_tls_upstream(authority: Authority) -> None:
    """TLS to a plain port and plain to a TLS port are told as what they are."""
    with socket.create_server(("127.0.0.1", 0)) as plain:
        async with reaching(f"https://127.0.0.1:{plain.getsockname()[1]}") as upstream:
            told = ask(upstream)
            await asyncio.to_thread(_answer, plain, b"HTTP/1.1 400 Bad Request\r\n\r\n")
            assert (await told.end()).kind == "tls"
    with serving(Origin(tls=authority.serve("127.0.0.1"))) as secure:
        async with reaching(secure.address.replace("https:", "http:")) as upstream:
            assert (await get(upstream)).kind in {"protocol", "reset"}


@on_both_loops
async def test_handshake_that_never_ends_is_a_connect_timeout() -> None:
    """connect_timeout covers the handshake."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with reaching(f"https://127.0.0.1:{silent.getsockname()[1]}", connect_timeout="150ms") as upstream:
            told = await get(upstream)
            assert told.failure is not None
            assert (told.kind, told.failure.status) == ("connect_timeout", 504)


@on_both_loops
async def test_handshake_that_is_cut_is_a_tls_failure() -> None:
    """A peer that closes in the middle of the handshake is no refusal to connect."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with reaching(f"https://127.0.0.1:{server.getsockname()[1]}") as upstream:
            told = ask(upstream)
            await asyncio.to_thread(_answer, server, b"")
            assert (await told.end()).kind == "tls"


@pytest.mark.parametrize(("ending", "kind"), (("close", "done"), ("reset", "reset")))
@on_both_loops
async def test_only_close_notify_ends_a_body_without_length(authority: Authority, ending: Ending, kind: str) -> None:
    """Under TLS a bare FIN can be anyone's; a reset is a reset (RFC 9112 section 9.8)."""
    with serving(Origin(tls=authority.serve("127.0.0.1"))) as origin:
        origin.then(Answer(body=b"so far", framing="close", ending=ending))
        async with reaching(origin, ca_file=str(authority.file)) as upstream:
            told = await get(upstream)
            assert (told.kind, bytes(told.body)) == (kind, b"so far")


@on_both_loops
async def test_bare_fin_under_tls_is_a_truncation(authority: Authority) -> None:
    """The peer's FIN without its close_notify: the response is broken, not complete."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        async with reaching(address, ca_file=str(authority.file)) as upstream:
            told = ask(upstream)
            context = authority.serve("127.0.0.1")
            await asyncio.to_thread(_answer_and_cut, server, context, b"HTTP/1.1 200 OK\r\n\r\nso far")
            assert (await told.end()).kind == "truncated"
            assert bytes(told.body) == b"so far"


def _answer(server: socket.socket, answer: bytes) -> None:
    server.settimeout(5)
    peer, _ = server.accept()
    with peer:
        peer.recv(65_536)
        peer.sendall(answer)


def _answer_and_cut(server: socket.socket, context: ssl.SSLContext, answer: bytes) -> None:
    server.settimeout(5)
    raw, _ = server.accept()
    with context.wrap_socket(raw, server_side=True) as secure:
        secure.recv(65_536)
        secure.sendall(answer)
