"""The ASGI endpoint without a server: what a server would only show by chance."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.proxy import asgi
from gateway.proxy.asgi import HELD, Proxy
from gateway.proxy.exchange import Exchange
from gateway.proxy.failure import FailureKind
from tests.gateway.proxy.house import A, House, write

LEAVE = {"type": "http.disconnect"}
END = {"type": "http.request", "body": b"", "more_body": False}


def piece(body: bytes, *, more: bool = True) -> dict[str, Any]:
    """Return one message of a request body."""
    return {"type": "http.request", "body": body, "more_body": more}


class Server:
    """An ASGI server made of two queues: what `receive` will give, and what was sent."""

    def __init__(self, house: House, **scope: Any) -> None:
        self.house = house
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.reads = 0
        self.writable = asyncio.Event()
        self.writable.set()
        self.fault: Exception | None = None
        headers = [(b"host", b"a"), (b"authorization", b"Bearer " + A.token.encode())]
        self.scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "raw_path": b"/",
            "query_string": b"",
            "headers": headers + scope.pop("fields", []),
            "client": ("192.0.2.7", 4711),
            "server": ("127.0.0.1", 80),
            "scheme": "http",
            "http_version": "1.1",
        } | scope

    async def receive(self) -> Any:
        self.reads += 1
        message = await self.inbox.get()
        if isinstance(message, BaseException):
            raise message
        return message

    async def send(self, message: Any) -> None:
        await self.writable.wait()
        if self.fault is not None:
            raise self.fault
        self.sent.append(message)

    def start(self) -> asyncio.Task[None]:
        """Run the application."""
        return asyncio.create_task(Proxy(self.house.front)(self.scope, self.receive, self.send))

    async def steps(self, count: int = 10) -> None:
        """Let everything that is ready run."""
        for _ in range(count):
            await asyncio.sleep(0)

    @property
    def body(self) -> bytes:
        """The body sent so far."""
        return b"".join(message.get("body", b"") for message in self.sent)


@pytest.fixture
def house(tmp_path: Path) -> House:
    """Return a gateway whose upstream is scripted."""
    return House(write(tmp_path))


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    """Whatever happened, no task of a request outlives it."""
    yield
    for _ in range(5):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_quick_request_has_no_task_and_reads_nothing(house: House) -> None:
    """Answered within the watch time, the caller is never listened to."""
    server = Server(house)
    task = server.start()
    await server.steps()
    assert len(asyncio.all_tasks()) == 2
    house.call.respond(200, [(b"Content-Length", b"2")], b"ok")
    await task
    assert server.reads == 0
    assert [message["type"] for message in server.sent] == ["http.response.start", "http.response.body"]
    assert server.sent[1] == {"type": "http.response.body", "body": b"ok", "more_body": False}


async def test_a_slow_request_is_watched(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the watch time the caller is seen to leave, and the application returns without a word."""
    monkeypatch.setattr(asgi, "WATCH_AFTER", 0.001)
    server = Server(house)
    server.inbox.put_nowait(END)
    server.inbox.put_nowait(LEAVE)
    await server.start()
    assert (server.sent, house.call.did, house.books.ends) == ([], ["cancel"], [("aborted", 0, "")])


async def test_a_request_that_is_over_needs_no_collector(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watched or not, with a body or without, its memory is free at once."""
    monkeypatch.setattr(asgi, "WATCH_AFTER", 0.0)

    async def once(fields: list[tuple[bytes, bytes]], body: bytes) -> None:
        server = Server(house, method="POST", fields=fields)
        server.inbox.put_nowait(piece(body, more=False))
        task = server.start()
        await asyncio.sleep(0.01)
        house.call.respond(200, [], b"ok")
        await task
        await server.steps()

    gc.collect()
    gc.disable()
    try:
        await once([], b"")
        await once([(b"content-length", b"3")], b"abc")
        house.upstream.calls.clear()
        kinds = (Exchange, asgi._Shell)
        assert not [one for one in gc.get_objects() if isinstance(one, kinds)]
    finally:
        gc.enable()


async def test_a_request_that_is_over_is_not_kept_for_the_watch(house: House) -> None:
    """A busy gateway answers thousands before a watch comes round; none of them stays in memory until then."""
    gc.collect()
    gc.disable()
    try:
        server = Server(house)
        task = server.start()
        await server.steps()
        house.call.respond(200, [], b"ok")
        await task
        del server, task
        house.upstream.calls.clear()
        assert not [one for one in gc.get_objects() if isinstance(one, (Exchange, asgi._Shell))]
    finally:
        gc.enable()


async def test_what_waits_of_a_body_goes_in_one_message(house: House) -> None:
    """In order, and the end with the last of it: a message is a system call to most servers."""
    server = Server(house)
    task = server.start()
    await server.steps()
    call = house.call
    call.receiver.on_response(200, [], b"a")
    call.receiver.on_data(b"b")
    await server.steps()
    for chunk in (b"c", b"d"):
        call.receiver.on_data(chunk)
    call.receiver.on_done()
    await task
    assert [(message["body"], message["more_body"]) for message in server.sent[1:]] == [(b"ab", True), (b"cd", False)]


async def test_a_slow_reader_holds_the_upstream_back(house: House) -> None:
    """At most HELD octets and one read wait; the upstream is paused, and resumed when half is gone."""
    server = Server(house)
    task = server.start()
    await server.steps()
    server.writable.clear()
    call = house.call
    call.receiver.on_response(200, [])
    for _ in range(3):
        call.receiver.on_data(b"x" * (HELD // 2))
        await server.steps()
    assert call.did == ["pause"]
    server.writable.set()
    await server.steps()
    assert call.did == ["pause", "resume"]
    call.receiver.on_done()
    await task
    assert len(server.body) == HELD // 2 * 3
    assert house.books.ends == [("served", 200, "")]


async def test_a_slow_upstream_holds_the_caller_back(house: House) -> None:
    """What is read ahead is bounded; it is passed on in order when the upstream takes it."""
    house.upstream.connects = False
    server = Server(house, method="POST", fields=[(b"transfer-encoding", b"chunked")])
    for number in range(6):
        server.inbox.put_nowait(piece(bytes([number]) * (HELD // 2)))
    server.inbox.put_nowait(piece(b"end", more=False))
    task = server.start()
    await server.steps(30)
    assert server.reads == 2
    call = house.call
    call.receiver.on_sent()
    await server.steps(30)
    assert bytes(call.body) == b"".join(bytes([number]) * (HELD // 2) for number in range(6)) + b"end"
    assert call.did == ["finish"]
    call.respond(200, [])
    await task


async def test_a_caller_leaves_while_its_body_waits(house: House) -> None:
    """A small body is read ahead while there is no connection, so leaving is seen."""
    house.upstream.connects = False
    server = Server(house, method="POST", fields=[(b"content-length", b"3")])
    server.inbox.put_nowait(piece(b"abc", more=False))
    server.inbox.put_nowait(LEAVE)
    await server.start()
    assert (house.call.did, house.books.ends) == (["cancel"], [("aborted", 0, "")])


async def test_a_caller_that_waits_for_permission_is_not_read(house: House) -> None:
    """Asking for the body is what sends the 100, so it is asked for when there is somewhere to write it to."""
    house.upstream.connects = False
    server = Server(house, method="POST", fields=[(b"content-length", b"3"), (b"expect", b"100-continue")])
    task = server.start()
    await server.steps()
    assert server.reads == 0
    house.call.receiver.on_sent()
    server.inbox.put_nowait(piece(b"abc", more=False))
    await server.steps()
    assert (bytes(house.call.body), house.call.did) == (b"abc", ["finish"])
    house.call.respond(200, [])
    await task


async def test_a_broken_transfer_returns_without_completing(house: House) -> None:
    """What came is sent; the server sees an incomplete response and closes the connection."""
    server = Server(house)
    task = server.start()
    await server.steps()
    house.call.receiver.on_response(200, [(b"Content-Length", b"4")])
    house.call.receiver.on_data(b"ab")
    house.call.fail(FailureKind.TRUNCATED)
    await task
    assert server.sent[-1] == {"type": "http.response.body", "body": b"ab", "more_body": True}


async def test_an_answer_before_an_unread_body_lingers(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is out at once; what still comes is read and thrown away, for a while, before the end is told."""
    monkeypatch.setattr(asgi, "LINGER", 0.05)
    server = Server(house, method="POST", fields=[(b"content-length", b"999999999")])
    server.inbox.put_nowait(piece(b"x" * 1000))
    task = server.start()
    await server.steps()
    assert dict(server.sent[0]["headers"])[b"connection"] == b"close"
    assert server.sent[1]["more_body"] is True
    assert server.reads == 2
    await task
    assert server.sent[2] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_lingering_ends_with_the_body(house: House) -> None:
    """Nobody waits once the caller has sent all, or left."""
    for last in (piece(b"x", more=False), LEAVE):
        server = Server(house, method="POST", fields=[(b"content-length", b"999999999")])
        server.inbox.put_nowait(piece(b"x"))
        server.inbox.put_nowait(last)
        await server.start()
        assert len(server.sent) == 3


async def test_too_large_while_it_is_read(tmp_path: Path) -> None:
    """The pump ends with the exchange; lingering reads on in its place."""
    house = House(write(tmp_path, server='max_body_bytes = "1KiB"'))
    server = Server(house, method="POST", fields=[(b"transfer-encoding", b"chunked")])
    for _ in range(3):
        server.inbox.put_nowait(piece(b"x" * 600))
    server.inbox.put_nowait(piece(b"x", more=False))
    await server.start()
    assert (server.sent[0]["status"], len(server.sent)) == (413, 3)
    assert house.books.ends == [("rejected", 413, "")]


async def test_a_cancelled_request_is_settled(house: House) -> None:
    """A server that stops cancels its tasks: the upstream call ends and the books are closed."""
    server = Server(house, method="POST", fields=[(b"content-length", b"3")])
    task = server.start()
    await server.steps()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (house.call.did, house.books.ends) == (["cancel"], [("aborted", 0, "")])


async def test_a_server_that_says_so_when_nobody_listens(house: House) -> None:
    """ASGI 2.4: `send` raises OSError once the caller is gone; that is no error of ours."""
    server = Server(house)
    task = server.start()
    await server.steps()
    server.fault = OSError("gone")
    house.call.receiver.on_response(200, [])
    await task
    assert (house.call.did, house.books.ends) == (["cancel"], [("served", 200, "")])


@pytest.mark.parametrize(("fault", "said"), [(RuntimeError, True), (asyncio.CancelledError, False)])
async def test_a_server_that_cannot_be_read(house: House, caplog: Any, fault: type[BaseException], said: bool) -> None:
    """The request ends rather than wait for ever, once; a fault is logged, and a server that gives up is none."""
    server = Server(house, method="POST", fields=[(b"content-length", b"3")])
    for message in (piece(b"a"), fault()):
        server.inbox.put_nowait(message)
    await asyncio.wait_for(server.start(), 10)
    assert (house.books.ends, house.pipeline.in_flight) == ([("aborted", 0, "")], 0)
    assert ("could not be read on" in caplog.text) is said


async def test_http_2_says_by_the_stream_whether_a_body_follows(house: House) -> None:
    """Nothing chunked goes upstream where there is no body; who was gone before it began is nobody."""
    for first, length in ((END, 0), (piece(b"abc", more=False), None), (piece(b""), None)):
        server = Server(house, http_version="2", method="POST")
        server.inbox.put_nowait(first)
        task = server.start()
        await server.steps()
        assert house.call.length == length
        assert bytes(house.call.body) == first["body"]
        house.call.respond(200, [])
        await task
    server = Server(house, http_version="2")
    server.inbox.put_nowait(LEAVE)
    await server.start()
    assert len(house.books.ends) == 3


@pytest.mark.parametrize(
    ("scope", "target", "peer"),
    [
        ({"raw_path": b"/a%20b", "query_string": b"c"}, b"/a%20b?c", b"192.0.2.7"),
        ({"raw_path": None, "path": "/a b"}, b"/a%20b", b"192.0.2.7"),
        ({"client": None, "server": ("/run/x.sock", None)}, b"/", None),
        ({"client": ("", 0), "server": None}, b"/", None),
        *(({"client": nobody}, b"/", b"unknown") for nobody in (None, ("", 0))),
        ({"raw_path": b"http://a.example.com/x"}, b"/x", b"192.0.2.7"),
    ],
)
async def test_scopes(house: House, scope: dict[str, Any], target: bytes, peer: bytes | None) -> None:
    """A raw path or a decoded one; a socket file, or a peer that was gone before it had an address."""
    server = Server(house, **scope)
    task = server.start()
    await server.steps()
    assert house.call.target == target
    assert house.call.field("x-forwarded-for") == peer
    house.call.respond(200, [])
    await task


async def test_interim_responses_have_no_way_out(house: House) -> None:
    """ASGI knows no 1xx; they are left out."""
    server = Server(house)
    task = server.start()
    await server.steps()
    house.call.receiver.on_interim(103, [])
    house.call.respond(200, [])
    await task
    assert len(server.sent) == 2


@pytest.mark.parametrize(
    ("extensions", "kinds"),
    [
        ({"websocket.http.response": {}}, ["websocket.http.response.start", "websocket.http.response.body"]),
        ({}, ["websocket.close"]),
        (None, ["websocket.close"]),
    ],
)
async def test_websockets(house: House, extensions: Any, kinds: list[str]) -> None:
    """Denied as HTTP where the server can say it, closed where it cannot; counted either way."""
    server = Server(house, type="websocket", scheme="wss", extensions=extensions)
    del server.scope["method"]
    server.inbox.put_nowait({"type": "websocket.connect"})
    await server.start()
    assert [message["type"] for message in server.sent] == kinds
    assert house.books.ends == [("rejected", 501, "")]


async def test_lifespan(house: House) -> None:
    """Nothing is needed at start or stop, and both are confirmed; other kinds of scope are left alone."""
    server = Server(house, type="lifespan")
    server.inbox.put_nowait({"type": "lifespan.startup"})
    server.inbox.put_nowait({"type": "lifespan.shutdown"})
    await server.start()
    assert [message["type"] for message in server.sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    other = Server(house, type="other")
    await other.start()
    assert other.sent == []
