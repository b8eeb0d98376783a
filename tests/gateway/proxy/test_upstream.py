"""A request goes out as asked for and the response comes back as it was, over TCP, TLS and unix sockets."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.proxy.reach import Told, ask, get, on_both_loops, reaching, sent, until
from tests.wire.origin import Origin, serving
from tests.wire.script import HANG, Answer, Framing


@on_both_loops
async def test_request_is_written_as_asked() -> None:
    """Request line, our Host, the caller's fields in their order; no framing fields where there is no body."""
    with serving() as origin:
        async with reaching(origin) as upstream:
            told = await get(upstream, "/a%2Fb?q=1;2", headers=[(b"Accept", b"*/*"), (b"x-a", b"1"), (b"X-a", b"2")])
        host = origin.address.removeprefix("http://").encode()
        assert origin.seen[0].raw == (
            b"GET /a%2Fb?q=1;2 HTTP/1.1\r\nhost: " + host + b"\r\nAccept: */*\r\nx-a: 1\r\nX-a: 2\r\n\r\n"
        )
        assert (told.sent, told.status, bytes(told.body)) == (1, 200, b"ok")


@pytest.mark.parametrize(
    ("method", "length", "body", "framing"),
    (
        ("POST", 5, b"hello", b"content-length: 5\r\n"),
        ("POST", 0, b"", b"content-length: 0\r\n"),
        ("DELETE", 0, b"", b""),
        ("GET", 2, b"ab", b"content-length: 2\r\n"),
        ("PUT", None, b"abc", b"transfer-encoding: chunked\r\n"),
    ),
)
@on_both_loops
async def test_framing_is_our_own(method: str, length: int | None, body: bytes, framing: bytes) -> None:
    """Content-Length or chunked is written by the pool, never copied (RFC 9112 section 6)."""
    with serving() as origin:
        async with reaching(origin) as upstream:
            told = ask(upstream, method, length=length, body=body, headers=[])
            assert told.call is not None
            told.call.finish()
            assert (await told.end()).status == 200
        head = origin.seen[0].raw.partition(b"\r\nhost: ")[2].partition(b"\r\n")[2]
        assert head == framing + b"\r\n"
        assert bytes(origin.seen[0].body) == body


@on_both_loops
async def test_body_is_sent_in_pieces() -> None:
    """Each piece goes out when it is written, before and after there is a connection, chunked or by length."""
    with serving() as origin:
        async with reaching(origin) as upstream:
            for length in (None, 9):
                told = ask(upstream, "POST", length=length, body=b"one")
                assert told.call is not None
                told.call.write(b"two")
                await sent(told)
                told.call.write(b"")
                told.call.write(b"six")
                told.call.finish()
                assert (await told.end()).status == 200
                assert bytes(origin.seen[-1].body) == b"onetwosix"


@on_both_loops
async def test_body_that_does_not_keep_its_word_is_a_bug() -> None:
    """More or less than announced, or anything after the end, raises: it would be read as another request."""
    with serving() as origin:
        async with reaching(origin) as upstream:
            short = ask(upstream, "POST", length=3, body=b"ab")
            chunked = ask(upstream, "POST", length=None)
            assert short.call is not None
            assert chunked.call is not None
            chunked.call.finish()
            with pytest.raises(ValueError, match="longer"):
                short.call.write(b"cd")
            with pytest.raises(ValueError, match="shorter"):
                short.call.finish()
            with pytest.raises(ValueError, match="ended"):
                chunked.call.write(b"x")
            short.call.cancel()
            await chunked.end()


@on_both_loops
async def test_base_path_and_host() -> None:
    """The path of the address is prefixed but to `*`; Host is the address's unless the caller's is kept."""
    with serving() as origin:
        async with reaching(f"{origin.address}/base/") as upstream:
            await get(upstream, "/x?y")
            await ask(upstream, "OPTIONS", "*").end()
            await get(upstream, "/x", host=b"api.example.com")
        assert [seen.target for seen in origin.seen] == [b"/base/x?y", b"*", b"/base/x"]
        assert origin.seen[2].header("host") == "api.example.com"


@on_both_loops
async def test_interim_responses_come_first() -> None:
    """1xx heads are passed on apart, and are not the response."""
    with serving() as origin:
        origin.then(Answer(interim=((100, ()), (103, (("Link", "</a>"),))), status=201))
        async with reaching(origin) as upstream:
            told = await get(upstream)
        assert (told.interim, told.status, told.kind) == ([100, 103], 201, "done")


@pytest.mark.parametrize(("method", "status"), (("HEAD", 200), ("GET", 204), ("GET", 304), ("HEAD", 404)))
@pytest.mark.parametrize("framing", ("length", "chunked", "close"))
@on_both_loops
async def test_responses_without_body_keep_the_connection(method: str, status: int, framing: Framing) -> None:
    """HEAD, 204 and 304 have no body whatever their fields say (RFC 9110 section 6.4.1); the next call is in step."""
    with serving() as origin:
        origin.on("/", Answer(status=status, body=b"12345", framing=framing))
        async with reaching(origin) as upstream:
            for _ in range(3):
                told = await ask(upstream, method, "/").end()
                assert (told.kind, told.status, bytes(told.body)) == ("done", status, b"")
        assert len(origin.connections) == 1


@on_both_loops
async def test_case_085_bodies_pass_undecoded() -> None:
    """Whatever Content-Encoding says, the octets are the upstream's, and so are the fields."""
    packed = gzip.compress(gzip.compress(b"x" * 100_000))
    for coding in ("gzip", "br", "zstd", "gzip, gzip"):
        with serving() as origin:
            fields = (("Content-Encoding", coding), ("X-Mixed-Case", "v"))
            origin.on("/", Answer(body=packed, fields=fields))
            async with reaching(origin) as upstream:
                told = await get(upstream)
            assert bytes(told.body) == packed
            assert [(name.decode(), value.decode()) for name, value in told.headers[:2]] == list(fields)


@on_both_loops
async def test_chunks_arrive_as_they_are_made() -> None:
    """An event stream is passed on event by event: the first one before the second is made."""
    with serving() as origin:
        made: list[int] = []

        def events() -> Iterator[bytes]:
            for number in range(3):
                made.append(number)
                yield b"data: %d\n\n" % number

        origin.then(Answer(body=events, framing="chunked", gap=0.1))
        async with reaching(origin) as upstream:
            told = ask(upstream)
            await until(lambda: told.chunks == 1)
            assert bytes(told.body) == b"data: 0\n\n"
            assert len(made) < 3
            await told.end()
        assert bytes(told.body) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


@on_both_loops
async def test_unix_socket(tmp_path: Path) -> None:
    """`unix:/path` is an address like any other."""
    with serving(Origin(unix=tmp_path / "up.sock")) as origin:
        async with reaching(origin) as upstream:
            assert (await get(upstream)).status == 200
            assert (await get(upstream)).status == 200
        assert len(origin.connections) == 1
        assert origin.seen[0].header("host") == "localhost"


@on_both_loops
async def test_slow_reader_holds_the_upstream_back() -> None:
    """A paused call stops reading: the upstream is held by TCP, and what was read stays small."""
    piece = b"x" * 65_536
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(512):
            sent += len(piece)
            yield piece

    with serving() as origin:
        origin.then(Answer(body=pieces, framing="chunked"))
        async with reaching(origin, idle_timeout="100ms") as upstream:
            told = ask(upstream)
            assert told.call is not None
            await until(lambda: told.chunks > 0)
            told.call.pause()
            read = len(told.body)
            await asyncio.sleep(0.3)
            assert len(told.body) == read
            assert sent < 512 * len(piece)
            told.call.resume()
            assert (await told.end()).kind == "done"
        assert len(told.body) == 512 * len(piece)


@on_both_loops
async def test_slow_upstream_holds_the_writer_back() -> None:
    """`on_writable(False)` before a connection is there, and again when the upstream does not read."""
    with serving() as origin:
        origin.read_gap = 0.2
        async with reaching(origin) as upstream:
            told = ask(upstream, "POST", length=None, body=b"y" * 70_000)
            assert told.call is not None
            assert told.writable == [False]
            total = 70_000
            await until(lambda: told.writable == [False, True])
            while told.writable[-1]:
                assert total < 100_000_000, "the upstream reads nothing and yet everything is taken"
                told.call.write(b"y" * 65_536)
                total += 65_536
                await asyncio.sleep(0)
            origin.read_gap = 0.0
            await until(lambda: told.writable[-1])
            told.call.finish()
            assert (await told.end()).status == 200
        assert origin.seen[0].length == total


@on_both_loops
async def test_response_before_the_request_has_ended() -> None:
    """An early response is passed on; once it is complete the rest of the request is moot, and the socket closes."""
    with serving() as origin:
        origin.then(Answer(status=413, early=True))
        async with reaching(origin) as upstream:
            told = ask(upstream, "POST", length=1_000_000, body=b"z" * 1000)
            await told.end()
            assert (told.status, told.kind) == (413, "done")
            assert told.call is not None
            told.call.write(b"z" * 1000)
            assert upstream.stats().idle == 0
            assert (await get(upstream)).status == 200
        assert len(origin.connections) == 2


@on_both_loops
async def test_receiver_may_use_the_call_from_its_callbacks() -> None:
    """A pause from the head, a cancel from the first octets: nothing more is told."""

    class Quits(Told):
        def on_response(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
            super().on_response(status, headers)
            assert self.call is not None
            self.call.pause()
            self.call.resume()
            if body:
                self.on_data(body)

        def on_data(self, chunk: bytes) -> None:
            super().on_data(chunk)
            assert self.call is not None
            self.call.cancel()
            self.silent = True

    with serving() as origin:
        origin.on("/", Answer(body=lambda: [b"a"] * 50, framing="chunked"))
        origin.on("/hang", HANG)
        async with reaching(origin, max_connections=1) as upstream:
            told = ask(upstream, told=Quits())
            await until(lambda: told.silent)
            assert (await get(upstream)).kind == "done"
