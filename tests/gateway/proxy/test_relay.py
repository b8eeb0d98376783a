"""One request and its answer on real sockets: target, fields, framing and problems are the same in every shell."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.proxy.house import A
from tests.gateway.proxy.reach import until
from tests.gateway.proxy.shells import Shell, behind, every_shell
from tests.wire.caller import Caller, call, request
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer

__all__: list[str] = []

JSON = "application/problem+json"
T = A.token


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run the scripted upstream."""
    with serving() as up:
        yield up


TARGETS = [
    "/", "/a/b/", "/%7Euser/%41", "/a%20b+c", "/a%25b", "/x%2Fy%2fz", "/p;v=1/q", "/a?b=c&b=&d=&e;f", "/a?%zz",
    "/a?" + "q" * 4096, "/a?b?c/../d", "/a/../b", "/caf%c3%A9", "/*'()!$&,=:@-._~",
]  # fmt: skip


@every_shell
async def test_case_103_the_target_is_forwarded_byte_for_byte(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """Escapes, their case, order, and empty values arrive as they were sent."""
    async with behind(shell, tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        for target in TARGETS:
            await caller.send(request(target=target, token=T))
            assert (await caller.response()).status == 200, target
    assert [seen.target.decode() for seen in origin.seen] == TARGETS
    assert origin.faults == []


AMBIGUOUS = ("/open/%2e%2e/admin", "/open/..;/admin", "//admin", "/admin%2f..", "/open/%252e%252e/admin")


@every_shell
async def test_case_101_ambiguous_paths_reach_nobody(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """400, the connection stays, and the upstream sees nothing."""
    async with behind(shell, tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        for method, target in itertools.product(("GET", "POST", "OPTIONS"), AMBIGUOUS):
            await caller.send(request(method, target, token=T))
            answer = await caller.response(method)
            assert (answer.status, answer.json()["type"]) == (400, "https://evenhand.dev/problems/ambiguous-path")
    assert origin.seen == []


@every_shell
async def test_who_sent_what_is_ambiguous_is_known(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """By the rules for trusted proxies; so is the path, as far as it can be told."""
    trusting = 'trusted_proxies = ["127.0.0.1"]'
    async with behind(shell, tmp_path, origin, server=trusting) as gateway:
        for target, fields in (("/\\a", [("X-Forwarded-For", "203.0.113.9")]), ("//?token=secret", [])):
            assert (await call(gateway.address, request(target=target, token=T, fields=fields))).status == 400
    seen = [(one.facts.address, one.facts.method, one.facts.path) for one in gateway.books.settled]
    assert seen == [("203.0.113.9", "GET", "/%5Ca"), ("127.0.0.1", "GET", "//")]


LENGTHS = [
    (b"0" * 5000 + b"2", 502, None),
    (b"9" * 19, 502, None),
    (b"2 \t", 200, "2"),
    (b"0002", 200, "0002"),
]


@every_shell
async def test_lengths_of_an_upstream(
    tmp_path: Path, origin: Origin, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    """Very many digits are a fault of the upstream, told as one and no defect of ours; blanks around it end here."""
    async with behind(shell, tmp_path, origin) as gateway:
        for written, status, passed in LENGTHS:
            origin.then(Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: " + written + b"\r\n\r\nhi", ending="close"))
            answer = await call(gateway.address, request(token=T))
            assert answer.status == status, written
            if passed is None:
                assert answer.json()["detail"] == "what the upstream responded with is not HTTP/1.1"
            else:
                assert (answer.header("content-length"), answer.body) == (passed, b"hi")
    assert "Traceback" not in caplog.text


FRAMED = [
    ("HEAD", Answer(declared=5, body=b""), b"", "5"),
    ("GET", Answer(204, body=b""), b"", None),
    ("GET", Answer(framing="chunked", body=b""), b"", None),
    ("GET", Answer(framing="chunked", body=b"abc"), b"abc", None),
    ("GET", Answer(body=b""), b"", "0"),
    ("GET", Answer(framing="close", ending="close", body=b"abc"), b"abc", None),
    ("GET", Answer(interim=((103, (("Link", "</a>"),)),)), b"ok", "2"),
]
NOT_MODIFIED = Answer(304, fields=(("ETag", '"1"'), ("Content-Length", "7")), body=b"")


@every_shell
async def test_framing_of_answers(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """HEAD, 204, 304, empty and endless bodies: each complete, one after the other on one connection."""
    # Servers do not all know that the length of a 304 is of what it would have been, so ASGI's has none.
    framed = [*FRAMED, ("GET", NOT_MODIFIED, b"", "7" if shell == "lane" else None), FRAMED[0]]
    async with behind(shell, tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        for method, answer, body, length in framed:
            origin.then(answer)
            await caller.send(request(method, token=T))
            got = await caller.response(method)
            assert (got.status, got.body, got.header("content-length")) == (answer.status, body, length)
            assert got.complete


@every_shell
async def test_fields_come_once(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """One Date and one Server, the upstream's; cookies apart; Via and RateLimit added."""
    fields = (("Date", "Mon, 30 Nov 2026 00:00:00 GMT"), ("Server", "up"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
    origin.then(Answer(fields=fields))
    async with behind(shell, tmp_path, origin) as gateway:
        answer = await call(gateway.address, request(token=T))
        assert (answer.header("date"), answer.header("server")) == (fields[0][1], "up")
        assert answer.all("set-cookie") == ["a=1", "b=2"]
        assert answer.header("ratelimit-policy") == '"key";q=100000;w=1'
        assert (await call(gateway.address, request(token=T))).header("date")


@every_shell
async def test_trailers_are_no_headers(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """What follows a chunked body is neither credential nor field, once the head was handed over (else: the guard)."""
    octets = request("POST", token=T, chunked=True, body=b"abc", fields=[("Trailer", "x-after")])
    async with behind(shell, tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(octets[:-8])
        await until(lambda: bool(origin.seen))
        await caller.send(octets[-8:-2] + b"X-After: 1\r\nEvenhand-Tenant: bolt\r\n\r\n")
        assert (await caller.response("POST")).status == 200
    (seen,) = origin.seen
    assert (seen.header("x-after"), seen.header("evenhand-tenant")) == (None, "acme")
    assert seen.trailers == []


@every_shell
async def test_whole_request_sent_octet_by_octet_is_the_same(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """However the octets are cut, the request is one, and its body arrives whole."""
    async with behind(shell, tmp_path, origin) as gateway:
        for chunked in (False, True):
            async with await Caller.connect(gateway.address) as caller:
                await caller.send(request("POST", "/x?y", token=T, body=b"12345", chunked=chunked), split=1)
                assert (await caller.response()).status == 200
    assert [(seen.target, bytes(seen.body)) for seen in origin.seen] == [(b"/x?y", b"12345")] * 2


@every_shell
async def test_continue_is_sent_when_there_is_somewhere_to_send_to(
    tmp_path: Path, origin: Origin, shell: Shell
) -> None:
    """Expect ends here: the caller gets its 100, the upstream never sees the field."""
    async with behind(shell, tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        octets = request("POST", token=T, body=b"abc", fields=[("Expect", "100-continue")])
        await caller.send(octets[:-3])
        await until(lambda: caller.raw.endswith(b"\r\n\r\n"))
        assert caller.raw.startswith(b"HTTP/1.1 100 ")
        await caller.send(octets[-3:])
        assert (await caller.response("POST")).status == 200
    (seen,) = origin.seen
    assert (seen.header("expect"), bytes(seen.body)) == (None, b"abc")


FORMS = (("", JSON), ("*/*", JSON), (";q=,\xff", JSON), ("text/html", "text/html"), ("text/markdown", "text/markdown"))
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "DELETE", "PROPFIND")


@every_shell
async def test_case_059_problems_on_the_wire(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """A refusal is a problem in the form asked for, for every method, on a connection that goes on."""
    async with behind(shell, tmp_path, origin, quota="1/min burst 1") as gateway:
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


@every_shell
async def test_an_unreachable_upstream(tmp_path: Path, shell: Shell) -> None:
    """502, on a connection that goes on."""
    nobody = "http://127.0.0.1:9"
    async with behind(shell, tmp_path, nobody) as gateway, await Caller.connect(gateway.address) as caller:
        for _ in range(2):
            await caller.send(request(token=T))
            answer = await caller.response()
            assert (answer.status, answer.json()["status"]) == (502, 502)


@every_shell
async def test_answers_leave_in_order(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """A slow first answer holds the fast ones behind it, bodies and refusals included."""
    origin.on("/1", Answer(body=b"1", delay=0.1))
    origin.on("/2", Answer(body=b"2"))
    octets = request(target="/1", token=T) + request("POST", "/2", token=T, body=b"x" * 1000)
    async with behind(shell, tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(octets + request(token="wrong") + request(target="/2", token=T))
        answers = [await caller.response() for _ in range(4)]
    told = [(answer.status, answer.body[:1]) for answer in answers]
    assert told == [(200, b"1"), (200, b"2"), (401, b"{"), (200, b"2")]


@every_shell
async def test_very_many_requests_at_once_are_answered_in_order(tmp_path: Path, origin: Origin, shell: Shell) -> None:
    """Whatever comes in one read; nobody is answered twice or forgotten."""
    origin.on("/", lambda seen: Answer(body=seen.target))
    async with behind(shell, tmp_path, origin) as gateway, await Caller.connect(gateway.address) as caller:
        await caller.send(b"".join(request(target=f"/{number}", token=T) for number in range(100)))
        for number in range(100):
            assert (await caller.response()).body == b"/%d" % number
    await asyncio.sleep(0)
    assert len(origin.seen) == 100
