"""The ASGI endpoint on real sockets, under both of uvicorn's parsers."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import connect

from tests.gateway.proxy.house import A
from tests.gateway.proxy.served import Served, served
from tests.wire.caller import Caller, call, request
from tests.wire.origin import Origin, serving
from tests.wire.script import HANG, Answer

JSON = "application/problem+json"
T = A.token


@pytest.fixture(params=["httptools", "h11"])
def http(request: pytest.FixtureRequest) -> Any:
    """Return which parser reads requests."""
    return request.param


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


@pytest.fixture
async def gateway(tmp_path: Path, origin: Origin, http: Any) -> AsyncIterator[Served]:
    """Serve a gateway whose key has plenty."""
    async with served(tmp_path, origin, http, quota="100000/s", server='max_body_bytes = "1MiB"') as running:
        yield running


TARGETS = [
    "/", "/a/b/", "/%7Euser/%41", "/a%20b+c", "/a%25b", "/x%2Fy%2fz", "/p;v=1/q", "/a?b=c&b=&d&=e;f", "/a?%zz",
    "/a?" + "q" * 4096, "/a?b?c/../d", "/a/../b", "/caf%c3%A9", "/*'()!$&,=:@-._~",
]  # fmt: skip


async def test_case_103_the_target_is_forwarded_byte_for_byte(gateway: Served) -> None:
    """Escapes, their case, order, and empty values arrive as they were sent."""
    async with await Caller.connect(gateway.address) as caller:
        for target in TARGETS:
            await caller.send(request(target=target, token=T))
            assert (await caller.response()).status == 200, target
    assert [seen.target.decode() for seen in gateway.origin.seen] == TARGETS
    assert gateway.origin.faults == []


AMBIGUOUS = ("/open/%2e%2e/admin", "/open/..;/admin", "//admin", "/admin%2f..", "/open/%252e%252e/admin")


async def test_case_101_ambiguous_paths_reach_nobody(gateway: Served) -> None:
    """400, the connection stays, and the upstream sees nothing."""
    async with await Caller.connect(gateway.address) as caller:
        for method, target in itertools.product(("GET", "POST", "OPTIONS"), AMBIGUOUS):
            await caller.send(request(method, target, token=T))
            answer = await caller.response(method)
            assert (answer.status, answer.json()["type"]) == (400, "https://evenhand.dev/problems/ambiguous-path")
    assert gateway.origin.seen == []


async def test_bodies_both_ways(gateway: Served) -> None:
    """300 KB up and down, framed by length and in chunks, arrive whole; the connection is used again."""
    body = random.Random(1).randbytes(300_000)
    gateway.origin.on(
        "/chunked", Answer(body=lambda: [body[at : at + 9000] for at in range(0, 300_000, 9000)], framing="chunked")
    )
    gateway.origin.on("/length", Answer(body=body))
    async with await Caller.connect(gateway.address) as caller:
        for target in ("/chunked", "/length"):
            for chunked in (False, True):
                await caller.send(request("POST", target, token=T, body=body, chunked=chunked))
                answer = await caller.response("POST")
                assert answer.complete
                assert hashlib.sha256(answer.body).digest() == hashlib.sha256(body).digest()
                seen = gateway.origin.seen[-1]
                assert (seen.length, seen.digest.digest()) == (300_000, hashlib.sha256(body).digest())


FRAMED = [
    ("HEAD", Answer(declared=5, body=b""), b"", "5"),
    ("GET", Answer(204, body=b""), b"", None),
    ("GET", Answer(304, fields=(("ETag", '"1"'), ("Content-Length", "7")), body=b""), b"", None),
    ("GET", Answer(framing="chunked", body=b""), b"", None),
    ("GET", Answer(framing="chunked", body=b"abc"), b"abc", None),
    ("GET", Answer(body=b""), b"", "0"),
    ("GET", Answer(framing="close", ending="close", body=b"abc"), b"abc", None),
    ("GET", Answer(interim=((103, (("Link", "</a>"),)),)), b"ok", "2"),
]


async def test_framing_of_answers(gateway: Served) -> None:
    """HEAD, 204, 304, empty and endless bodies: each complete, one after the other on one connection."""
    async with await Caller.connect(gateway.address) as caller:
        for method, answer, body, length in FRAMED:
            gateway.origin.then(answer)
            await caller.send(request(method, token=T))
            got = await caller.response(method)
            assert (got.status, got.body, got.header("content-length")) == (answer.status, body, length)
            assert got.complete


async def test_fields_come_once(gateway: Served) -> None:
    """One Date and one Server, the upstream's; cookies apart; Via and RateLimit added."""
    fields = (("Date", "Mon, 30 Nov 2026 00:00:00 GMT"), ("Server", "up"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
    gateway.origin.then(Answer(fields=fields))
    answer = await call(gateway.address, request(token=T))
    assert (answer.header("date"), answer.header("server")) == (fields[0][1], "up")
    assert answer.all("set-cookie") == ["a=1", "b=2"]
    assert answer.header("ratelimit-policy") == '"key";q=100000;w=1'
    assert (await call(gateway.address, request(token=T))).header("date")


async def test_trailers_are_no_headers(gateway: Served) -> None:
    """What follows a chunked body is neither credential nor field, once the head was handed over (else: the guard)."""
    octets = request("POST", token=T, chunked=True, body=b"abc", fields=[("Trailer", "x-after")])
    async with await Caller.connect(gateway.address) as caller:
        await caller.send(octets[:-8])
        while not gateway.origin.seen:
            await asyncio.sleep(0.005)
        await caller.send(octets[-8:-2] + b"X-After: 1\r\nEvenhand-Tenant: bolt\r\n\r\n")
        assert (await caller.response("POST")).status == 200
    (seen,) = gateway.origin.seen
    assert (seen.header("x-after"), seen.header("evenhand-tenant")) == (None, "acme")


CUTS: list[tuple[Any, float | None, Any]] = list(
    itertools.product(("length", "chunked"), (0.0, 0.01, 0.5, 0.99, None), ("reset", "close"))
)


async def test_case_083_a_cut_answer_is_never_complete(gateway: Served) -> None:
    """Wherever the upstream dies, the caller sees an error or a broken transfer, and the books its failure."""
    for framing, part, ending in CUTS:
        whole = sum(len(octets) for _wait, octets in Answer(body=b"x" * 50_000, framing=framing).pieces("GET"))
        cut = whole - 1 if part is None else int(whole * part)
        gateway.origin.then(Answer(body=b"x" * 50_000, framing=framing, cut=cut, ending=ending))
        answer = await call(gateway.address, request(token=T))
        whole_answer = (answer.status, answer.complete)
        assert whole_answer in ((502, True), (200, False), (0, False)), (framing, part, ending)
    await gateway.settled(len(CUTS))
    assert {end[0] for end in gateway.books.ends} == {"upstream_error"}


LEAVING = list(itertools.product(("GET", "POST"), ("close", "reset"), (0.0, 0.02, 0.2)))


async def test_case_087_the_upstream_call_ends_with_its_caller(gateway: Served) -> None:
    """Whether waiting for the head or with a body sent: the upstream sees the close soon, the books say aborted."""
    gateway.origin.on("/", HANG)
    for count, (method, how, after) in enumerate(LEAVING, 1):
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request(method, token=T, body=b"abc" if method == "POST" else None))
            while len(gateway.origin.seen) < count:
                await asyncio.sleep(0.002)
            await asyncio.sleep(after)
            getattr(caller, how)()
            await gateway.settled(count, within=1.0)
        async with asyncio.timeout(1):
            while gateway.origin.open:
                await asyncio.sleep(0.005)
    assert gateway.books.ends == [("aborted", 0, "")] * len(LEAVING)


async def test_case_087_a_caller_that_cuts_a_running_response_was_served(gateway: Served) -> None:
    """The upstream call ends at once, and the outcome is the response's own."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 1000

    gateway.origin.on("/", Answer(body=endless, framing="chunked", gap=0.01))
    async with await Caller.connect(gateway.address) as caller:
        await caller.send(request(token=T))
        await caller.head()
    await gateway.settled(1, within=1.0)
    assert gateway.books.ends == [("served", 200, "")]
    async with asyncio.timeout(1):
        while gateway.origin.open:
            await asyncio.sleep(0.005)


async def test_events_stream(gateway: Served) -> None:
    """The first event arrives before the second is made."""

    def events() -> Iterator[bytes]:
        yield b"data: 1\n\n"
        yield b"data: 2\n\n"

    fields = (("Content-Type", "text/event-stream"),)
    gateway.origin.on("/", Answer(fields=fields, body=events, framing="chunked", gap=0.3))
    answer = await call(gateway.address, request(token=T))
    (first, one), (second, two) = answer.parts
    assert (one, two) == (b"data: 1\n\n", b"data: 2\n\n")
    assert second - first > 0.2


async def test_continue_is_sent_when_there_is_somewhere_to_send_to(gateway: Served) -> None:
    """Expect ends here: the caller gets its 100, the upstream never sees the field."""
    async with await Caller.connect(gateway.address) as caller:
        octets = request("POST", token=T, body=b"abc", fields=[("Expect", "100-continue")])
        await caller.send(octets[:-3])
        await asyncio.sleep(0.05)
        assert caller.raw == b"HTTP/1.1 100 Continue\r\n\r\n" or caller.raw.startswith(b"HTTP/1.1 100 ")
        await caller.send(octets[-3:])
        assert (await caller.response("POST")).status == 200
    (seen,) = gateway.origin.seen
    assert (seen.header("expect"), bytes(seen.body)) == (None, b"abc")


async def test_case_115_too_large_by_announcement(gateway: Served) -> None:
    """413 before a body octet was read; the answer is not lost to a reset, and the connection ends."""
    async with await Caller.connect(gateway.address) as caller:
        await caller.send(request("POST", token=T, fields=[("Content-Length", "10000000000")]) + b"x" * 500_000)
        answer = await caller.response("POST")
        assert (answer.status, answer.complete, answer.header("connection")) == (413, True, "close")
    assert gateway.origin.seen == []
    assert gateway.books.ends == [("rejected", 413, "")]


async def test_case_115_too_large_by_count(gateway: Served) -> None:
    """Chunked beyond the limit: 413, the upstream never gets a whole request."""
    async with await Caller.connect(gateway.address) as caller:
        await caller.send(request("POST", token=T, fields=[("Transfer-Encoding", "chunked")]))
        for _ in range(40):
            await caller.send(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
        answer = await caller.response("POST")
        assert (answer.status, answer.header("connection")) == (413, "close")
    assert all(seen.ended is None for seen in gateway.origin.seen)
    assert gateway.books.ends == [("rejected", 413, "")]


FORMS = (("", JSON), ("*/*", JSON), (";q=,\xff", JSON), ("text/html", "text/html"), ("text/markdown", "text/markdown"))
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "DELETE", "PROPFIND")


async def test_case_059_problems_on_the_wire(tmp_path: Path, origin: Origin, http: Any) -> None:
    """A refusal is a problem in the form asked for, for every method, on a connection that goes on."""
    async with served(tmp_path, origin, http, quota="1/min burst 1") as gateway:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(request(token=T))
            assert (await caller.response()).status == 200
            for method, (accept, media) in itertools.product(METHODS, FORMS):
                await caller.send(request(method, token=T, fields=[("Accept", accept)]))
                answer = await caller.response(method)
                assert (answer.status, answer.complete) == (429, True)
                assert (answer.header("content-type") or "").startswith(media)
                assert int(answer.header("retry-after") or 0) >= 1
                assert (len(answer.body) == int(answer.header("content-length") or -1)) is (method != "HEAD")
        octets = request("POST", token=T, fields=[("Expect", "100-continue"), ("Content-Length", "5")])
        answer = await call(gateway.address, octets)
        assert (answer.status, answer.interim, answer.header("connection")) == (429, [], "close")
    assert len(origin.seen) == 1


async def test_an_unreachable_upstream(tmp_path: Path, origin: Origin, http: Any) -> None:
    """502, on a connection that goes on."""
    nobody = "http://127.0.0.1:9"
    async with served(tmp_path, origin, http, url=nobody) as gateway, await Caller.connect(gateway.address) as caller:
        for _ in range(2):
            await caller.send(request(token=T))
            answer = await caller.response()
            assert (answer.status, answer.json()["status"]) == (502, 502)


async def test_many_callers_leave_at_random(gateway: Served) -> None:
    """300 requests, a third cut at random moments, some answers cut by the upstream: every one ends once."""
    before = len(asyncio.all_tasks())
    rng = random.Random(7)
    answers = [Answer(delay=0.01), Answer(body=b"y" * 100_000, framing="chunked"), Answer(cut=30, ending="reset"), HANG]
    gateway.origin.on("/", lambda seen: answers[int(seen.target[1:]) % 4])

    async def one(number: int) -> None:
        async with await Caller.connect(gateway.address) as caller:
            await caller.send(
                request(
                    "POST" if number % 2 else "GET", f"/{number}", token=T, body=b"z" * 3000 if number % 2 else None
                )
            )
            if number % 4 == 3 or rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.05)
                caller.reset() if rng.random() < 0.5 else caller.close()
            else:
                await caller.response()

    for start in range(0, 300, 50):
        await asyncio.gather(*(one(number) for number in range(start, start + 50)))
    await gateway.settled(len({seen.target for seen in gateway.origin.seen}))
    async with asyncio.timeout(3):
        while len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.01)
    ids = [one.request_id for one in gateway.books.settled]
    assert len(ids) == len(set(ids)) <= 300
    assert {end[0] for end in gateway.books.ends} == {"served", "upstream_error", "aborted"}


@pytest.mark.parametrize("ws", ["websockets-sansio", "none"])
async def test_websockets_are_denied_as_http(tmp_path: Path, origin: Origin, http: Any, ws: Any) -> None:
    """501 before the upgrade, counted under whom the credential proved; a bad credential is 401."""
    async with served(tmp_path, origin, http, ws=ws) as gateway:
        for token, status in ((T, 501), ("evh_pat_wrong", 401)):
            with pytest.raises(websockets.InvalidStatus) as denied:
                await connect(f"ws://{gateway.address}/live", additional_headers={"Authorization": f"Bearer {token}"})
            assert denied.value.response.status_code == status
            assert denied.value.response.headers["content-type"] == JSON
        assert gateway.books.ends == [("rejected", 501, ""), ("rejected", 401, "")]
