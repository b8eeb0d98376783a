"""What can go wrong with an upstream, and what is told of it: before the head a status, after it a broken transfer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.proxy.failure import Failure, FailureKind
from gateway.proxy.response import INTERIM_LIMIT
from tests.gateway.proxy.reach import Told, ask, get, on_both_loops, reaching, sent, until
from tests.wire.origin import serving
from tests.wire.script import HANG, Answer, Ending


@contextlib.contextmanager
def _unused() -> Iterator[str]:
    """Yield an address where nobody listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


@contextlib.contextmanager
def _black_hole() -> Iterator[str]:
    """Yield an address that answers no connection: a listener whose backlog is full drops further ones."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("kind", "status"),
    [(kind, 502) for kind in ("refused", "dns", "tls", "protocol", "reset", "truncated", "idle_timeout")]
    + [(kind, 504) for kind in ("connect_timeout", "first_byte_timeout", "total_timeout")]
    + [(kind, 503) for kind in ("connections", "closed")],
)
def test_every_kind_has_a_status(kind: str, status: int) -> None:
    """What to answer while nothing has been answered."""
    assert Failure(FailureKind(kind), "").status == status
    assert len(FailureKind) == 12


@on_both_loops
async def test_refused(tmp_path: Path) -> None:
    """Nobody listens, or there is no such socket file: 502, nothing sent, no address in what may be shown."""
    with _unused() as nobody:
        absent = f"unix:{tmp_path}/absent.sock"
        for address, why in (
            (nobody, "the upstream refused the connection"),
            (absent, "the upstream's socket is not there"),
        ):
            async with reaching(address) as upstream:
                told = await get(upstream)
                assert told.failure is not None
                assert (told.kind, told.failure.status, told.sent) == ("refused", 502, 0)
                assert told.failure.detail == why
                place = address.removeprefix("http://")
                assert place not in told.failure.detail
                assert told.failure.address == place


@on_both_loops
async def test_connect_timeout() -> None:
    """A peer that never answers: 504 after connect_timeout, nothing sent."""
    with _black_hole() as address:
        async with reaching(address, connect_timeout="200ms") as upstream:
            told = await get(upstream)
            assert (told.kind, told.sent) == ("connect_timeout", 0)


@pytest.mark.parametrize("interim", ((), ((103, ()),)))
@on_both_loops
async def test_first_byte_timeout(interim: tuple[tuple[int, tuple[()]], ...]) -> None:
    """Nothing, an interim response, or half a head: 504, and the connection is not used again."""
    with serving() as origin:
        origin.on("/half", Answer(raw=b"HTTP/1.1 200 OK\r\nContent-", ending="hang"))
        origin.on("/", Answer(interim=interim, raw=b"", ending="hang"))
        async with reaching(origin, first_byte_timeout="150ms") as upstream:
            for target in ("/", "/half"):
                told = await get(upstream, target)
                assert told.failure is not None
                assert (told.kind, told.failure.status, told.sent) == ("first_byte_timeout", 504, 1)
            assert (await get(upstream, first_byte_timeout_us=50_000)).kind == "first_byte_timeout"
        assert len(origin.connections) == 3


@on_both_loops
async def test_interim_responses_do_not_buy_time() -> None:
    """The final head has one deadline, however often the upstream says that it is still there."""
    heads = 30

    async def procrastinate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(heads):
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await asyncio.sleep(0.03)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(procrastinate, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with reaching(f"http://127.0.0.1:{port}", first_byte_timeout="200ms") as upstream:
            told = await get(upstream)
            assert told.kind == "first_byte_timeout"
            assert 0 < len(told.interim) < heads


@on_both_loops
async def test_interim_responses_are_bounded() -> None:
    """No upstream floods a caller with heads that are no answer."""
    with serving() as origin:
        origin.on("/", Answer(raw=b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000, ending="hang"))
        async with reaching(origin) as upstream:
            told = await get(upstream)
            assert (told.kind, len(told.interim)) == ("protocol", INTERIM_LIMIT)


@on_both_loops
async def test_first_byte_waits_for_the_request() -> None:
    """A request body in motion is no silence of the upstream's."""
    with serving() as origin:
        async with reaching(origin, first_byte_timeout="600ms") as upstream:
            told = ask(upstream, "POST", length=6)
            assert told.call is not None
            for _ in range(6):
                await asyncio.sleep(0.15)
                told.call.write(b"x")
            assert (await told.end()).kind == "done"


@on_both_loops
async def test_idle_and_total_timeout() -> None:
    """Between octets of a response idle_timeout runs, over everything total_timeout; both end in a broken response."""
    with serving() as origin:
        origin.on("/stall", Answer(raw=_WHOLE, cut=80, ending="hang"))
        origin.on("/drip", Answer(body=lambda: [b"x"] * 100, framing="chunked", gap=0.05))
        async with reaching(origin, idle_timeout="150ms") as upstream:
            told = await get(upstream, "/stall")
            assert (told.kind, told.status) == ("idle_timeout", 200)
        async with reaching(origin, idle_timeout="400ms", total_timeout="700ms") as upstream:
            told = await get(upstream, "/drip")
            assert (told.kind, told.status) == ("total_timeout", 200)
            assert len(told.body) > 2
            told = ask(upstream, target="/drip")
            assert told.call is not None
            await sent(told)
            told.call.pause()
            assert (await told.end()).kind == "total_timeout"


_WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"b" * 100
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"a\r\n0123456789\r\n" * 10 + b"0\r\n\r\n"


@pytest.mark.parametrize("ending", ("close", "reset"))
@pytest.mark.parametrize("whole", (_WHOLE, _CHUNKED))
@on_both_loops
async def test_case_083_cut_responses_are_broken(whole: bytes, ending: Ending) -> None:
    """Cut at 0, 1, 50 and 99 % of the body or before the last chunk: never complete, never more than was sent."""
    head = whole.index(b"\r\n\r\n") + 4
    size = len(whole) - head
    with serving() as origin:
        async with reaching(origin) as upstream:
            for cut in (head, head + 1, head + size // 2, head + size * 99 // 100, len(whole) - 5, len(whole) - 1):
                origin.then(Answer(raw=whole, cut=cut, ending=ending))
                told = await get(upstream)
                assert told.kind in ({"reset"} if ending == "reset" else {"truncated"})
                assert told.status in {200, 0} if ending == "reset" else told.status == 200
            origin.then(Answer(raw=whole))
            assert (await get(upstream)).kind == "done"


@pytest.mark.parametrize(
    ("cut", "ending", "kind"),
    ((0, "close", "reset"), (0, "reset", "reset"), (9, "close", "truncated"), (30, "close", "truncated")),
)
@on_both_loops
async def test_cut_before_the_head_is_complete(cut: int, ending: Ending, kind: str) -> None:
    """No response at all, or half a head: 502 in the hands of the exchange, for nothing was passed on."""
    with serving() as origin:
        origin.then(Answer(raw=_WHOLE, cut=cut, ending=ending))
        async with reaching(origin) as upstream:
            told = await get(upstream)
            assert (told.kind, told.status, told.sent) == (kind, 0, 1)


@pytest.mark.parametrize(("ending", "kind"), (("close", "done"), ("reset", "reset")))
@on_both_loops
async def test_body_that_ends_with_the_connection(ending: Ending, kind: str) -> None:
    """Complete by a FIN alone (RFC 9112 section 6.3), however long; a reset is a cut."""
    with serving() as origin:
        origin.then(Answer(body=b"e" * 500_000, framing="close", ending=ending))
        async with reaching(origin) as upstream:
            told = await get(upstream)
            assert told.kind == kind
            assert ending == "reset" or len(told.body) == 500_000


@on_both_loops
async def test_no_protocol() -> None:
    """What is no HTTP/1.x response is 502 and closes the connection; after the head it breaks the response."""
    broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"
    with serving() as origin:
        origin.then(Answer(raw=b"SSH-2.0-OpenSSH\r\n"), Answer(raw=broken))
        async with reaching(origin) as upstream:
            told = await get(upstream)
            assert (told.kind, told.status) == ("protocol", 0)
            assert told.failure is not None
            assert told.failure.detail == "what the upstream responded with is not HTTP/1.1"
            told = await get(upstream)
            assert (told.kind, told.status, bytes(told.body)) == ("protocol", 200, b"hello")
            assert upstream.stats().idle == 0


@on_both_loops
async def test_octets_nobody_asked_for_close_an_idle_connection() -> None:
    """They would be read as the next response (response splitting)."""
    with serving() as origin:
        origin.then(Answer(raw=_WHOLE + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworse"))
        origin.on("/late", Answer(body=lambda: [b"x", b"HTTP/1.1 200 OK\r\n\r\n"], declared=1, gap=0.05))
        async with reaching(origin) as upstream:
            assert (await get(upstream)).kind == "done"
            assert upstream.stats().idle == 0
            assert bytes((await get(upstream, "/late")).body) == b"x"
            await until(lambda: upstream.stats().idle == 0)
            assert bytes((await get(upstream)).body) == b"ok"


@on_both_loops
async def test_bug_in_a_receiver_ends_its_call_only() -> None:
    """It is told to the loop's exception handler, the call fails, and the pool goes on."""

    class Raises(Told):
        def on_response(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
            raise LookupError("ours")

    heard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, about: heard.append(repr(about.get("exception"))))
    with serving() as origin:
        async with reaching(origin, max_connections=1) as upstream:
            assert (await ask(upstream, told=Raises()).end()).kind == "reset"
            assert (await get(upstream)).kind == "done"
    assert heard == ["LookupError('ours')"]


@on_both_loops
async def test_after_close_nothing_more_is_sent() -> None:
    """`close` lets what runs come to its end and refuses the rest; `abort` ends all at once."""
    with serving() as origin:
        origin.on("/slow", Answer(delay=0.2))
        origin.on("/hang", HANG)
        async with reaching(origin, max_connections=2, connect_timeout="5s") as upstream:
            slow, waiting = ask(upstream, target="/slow"), [ask(upstream, target="/slow") for _ in range(3)]
            await sent(slow)
            upstream.close()
            late = ask(upstream)
            assert not late.over.is_set()
            assert (await late.end()).kind == "closed"
            for told in (slow, *waiting):
                assert (await told.end()).kind == "done"
            await asyncio.wait_for(upstream.wait_closed(), 5)
        async with reaching(origin, max_connections=2) as upstream:
            calls = [ask(upstream, target="/hang") for _ in range(4)]
            await sent(calls[1])
            calls.append(ask(upstream, target="/hang"))
            upstream.abort()
            assert [(await told.end()).kind for told in calls] == ["closed"] * 5
        with _black_hole() as address:
            async with reaching(address) as upstream:
                told = ask(upstream)
                upstream.abort()
                assert (await told.end()).kind == "closed"
