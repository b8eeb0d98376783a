"""A response is read the same however it is cut, and never read as more than it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.call import Receiver
from gateway.proxy.failure import Failure
from gateway.proxy.response import HEAD_LIMIT, HEADERS_LIMIT, INTERIM_LIMIT, Response

_Event = tuple[object, ...]

_RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nX-A: b\r\n\r\nhello world",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: t\r\n\r\n",
    b"HTTP/1.1 100 A\r\nContent-Length: 3\r\n\r\nHTTP/1.1 103 B\r\n\r\nHTTP/1.1 404 \r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 102 \r\n\r\nHTTP/1.1 103 B\r\nLink: x\r\n\r\nHTTP/1.1 404 \r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 103 A\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nHTTP/1.1 204 \r\n\r\n",
    b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1234\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the very end",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 500 \r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    b"nonsense",
)


class _Listener(Receiver):
    """Keeps events, with body octets joined: how they are cut is nobody's promise."""

    def __init__(self) -> None:
        self.events: list[_Event] = []
        self.body = b""

    def on_sent(self) -> None: ...
    def on_writable(self, ready: bool) -> None: ...
    def on_done(self) -> None: ...
    def on_failed(self, failure: Failure) -> None: ...

    def on_interim(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.events.append(("interim", status, tuple(headers)))

    def on_response(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
        self.events.append(("response", status, tuple(headers)))
        self.body += body

    def on_data(self, chunk: bytes) -> None:
        assert chunk
        self.body += chunk


def _read(*pieces: bytes, method: bytes = b"GET") -> tuple[Response, _Listener]:
    """Feed `pieces` as a connection does: nothing more once the response is complete or broken, but for one excess."""
    listener = _Listener()
    response = Response(listener, method)
    for piece in pieces:
        if response.complete or response.fault:
            break
        if piece:
            response.feed(piece)
    return response, listener


def _verdict(response: Response, listener: _Listener) -> _Event:
    broken = bool(response.fault)
    return tuple(listener.events), listener.body, response.status, response.complete, response.until_close, broken


@given(which=st.sampled_from(_RESPONSES), data=st.data())
def test_cuts_change_nothing(which: bytes, data: st.DataObject) -> None:
    """However the octets arrive, head, body and end are the same."""
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(which) - 1, 1)), max_size=12)))
    pieces = [which[start:end] for start, end in zip([0, *cuts], [*cuts, len(which)], strict=True)]
    assert _verdict(*_read(*pieces)) == _verdict(*_read(which))


@pytest.mark.parametrize("which", _RESPONSES)
def test_single_octets_change_nothing(which: bytes) -> None:
    """The worst cut of all: one octet at a time."""
    pieces = [which[index : index + 1] for index in range(len(which))]
    assert _verdict(*_read(*pieces)) == _verdict(*_read(which))


@pytest.mark.parametrize("before", _RESPONSES)
@pytest.mark.parametrize("method", (b"GET", b"HEAD"))
def test_what_came_before_changes_nothing(before: bytes, method: bytes) -> None:
    """A parser that read a response to its end reads the next one as a new parser does; any other is not used again."""
    for which in _RESPONSES:
        for size in (1, len(which)):
            pieces = [which[start : start + size] for start in range(0, len(which), size)]
            response, _ = _read(before)
            if not response.reusable:
                break
            listener = _Listener()
            response.begin(listener, method)
            for piece in pieces:
                if not (response.complete or response.fault):
                    response.feed(piece)
            new, told = _read(*pieces, method=method)
            assert (*_verdict(response, listener), response.keep) == (*_verdict(new, told), new.keep)


def test_a_parser_that_may_not_have_seen_the_end_is_not_used_again() -> None:
    """After HEAD, after a body that passed it by, after one octet too many, and where the connection ends."""
    assert _read(_RESPONSES[0])[0].reusable
    assert _read(_RESPONSES[1])[0].reusable
    assert not _read(_RESPONSES[0], method=b"HEAD")[0].reusable
    assert not _read(_RESPONSES[0][:-1], _RESPONSES[0][-1:])[0].reusable
    assert not _read(_RESPONSES[0] + b"x")[0].reusable
    assert not _read(_RESPONSES[8])[0].reusable
    assert not _read(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")[0].reusable
    assert not _read(b"nonsense")[0].reusable


@given(octets=st.binary(max_size=400), prefix=st.sampled_from((b"", b"HTTP/1.1 200 OK\r\n", *_RESPONSES)))
def test_garbage_never_raises(octets: bytes, prefix: bytes) -> None:
    """Whatever comes, it is a response, a fault or not yet either; the parser's errors stop here."""
    response, _ = _read(prefix + octets)
    assert not (response.fault and response.complete)


@pytest.mark.parametrize(
    ("head", "why"),
    (
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "both framings"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "both framings"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc", "a list of lengths"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc", "a sign"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc", "a sign"),
        (b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nabc", "no length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "a length beyond 64 bits"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: %b3\r\n\r\nabc" % (b"0" * 5000), "more digits than a length has"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: %b3 \r\n\r\nabc" % (b"0" * 5000), "and a blank behind them"),
        (b"HTTP/1.1 103 A\r\nContent-Length: %b3\r\n\r\n" % (b"0" * 5000), "the same in an interim response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabc", "a space before the colon"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc", "a coding we cannot undo"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "a coding we cannot undo"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "twice chunked"),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "RFC 9112 section 6.1"),
        (b"HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n", "no such status"),
        (b"HTTP/1.1 600 High\r\nContent-Length: 0\r\n\r\n", "no such status"),
        (b"HTTP/1.1 999 High\r\nContent-Length: 0\r\n\r\n", "no such status"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "nobody asked"),
        (b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "not this version"),
        (b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n", "not this version"),
        (b"RTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "another protocol that llhttp reads"),
        (b"RTSP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "another protocol that llhttp reads"),
        (b"ICE/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "another protocol that llhttp reads"),
        (b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "a line in front of the head"),
        (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "bare LF"),
        (b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "obs-fold"),
        (b"HTTP/1.1 200 OK\r\nX\0: a\r\n\r\n", "NUL in a name"),
        (b"HTTP/1.1 200 OK\r\nX: a\0\r\n\r\n", "NUL in a value"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "another protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "a TLS alert"),
    ),
)
def test_what_two_readers_could_read_differently_is_a_fault(head: bytes, why: str) -> None:
    """None of these is guessed at, and nothing of them reaches the caller."""
    response, listener = _read(head)
    assert response.fault, why
    assert not response.complete
    assert (listener.events, listener.body) == ([], b"")


@pytest.mark.parametrize(
    ("method", "octets", "keep"),
    (
        (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", True),
        (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\na", False),
        (b"GET", b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", False),
        (b"GET", b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive\r\n\r\na", True),
        (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", False),
        (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\na", False),
        (b"GET", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nabc", False),
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", True),
        (b"HEAD", b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HEAD", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", False),
        (b"HEAD", b"HTTP/1.0 200 OK\r\n\r\n", False),
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", False),
        (b"HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", True),
    ),
)
def test_only_a_clean_end_keeps_the_connection(method: bytes, octets: bytes, keep: bool) -> None:
    """Keep-alive allowed, and not one octet beyond the response: it would be read as the next caller's."""
    response, listener = _read(octets, method=method)
    assert (response.complete, response.keep) == (True, keep)
    assert len(listener.events) == 1
    assert len(listener.body) <= 1


def test_blanks_around_a_length_are_no_part_of_it() -> None:
    """RFC 9112 section 5.1; the caller is told the number alone."""
    response, listener = _read(b"HTTP/1.1 200 OK\r\nX: a\r\ncontent-length:\t 2 \t\r\n\r\nhi")
    assert listener.events == [("response", 200, ((b"X", b"a"), (b"content-length", b"2")))]
    assert (response.complete, response.keep, listener.body) == (True, True, b"hi")


@pytest.mark.parametrize("length", (70_000, 5))
def test_octets_beyond_an_announced_length_are_not_the_callers(length: int) -> None:
    """Neither in the read that ends the body nor while the parser is left out."""
    body = b"b" * length
    response, listener = _read(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length, body[:3], body[3:] + b"more")
    assert (response.complete, response.keep, listener.body) == (True, False, body)


def _fields(count: int, size: int) -> bytes:
    return b"".join(b"x-%d: %b\r\n" % (number, b"v" * size) for number in range(count))


@pytest.mark.parametrize(
    ("octets", "fault"),
    (
        (b"HTTP/1.1 200 OK\r\n" + _fields(HEADERS_LIMIT - 1, 10) + b"content-length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\n" + _fields(HEADERS_LIMIT, 10) + b"content-length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\n" + _fields(1, HEAD_LIMIT - 100) + b"content-length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\n" + _fields(1, HEAD_LIMIT) + b"content-length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99000\r\n\r\n" + b"b" * 99_000, False),
        (b"HTTP/1.1 200 OK\r\nx: " + b"v" * HEAD_LIMIT, True),
    ),
)
def test_heads_are_bounded(octets: bytes, fault: bool) -> None:
    """64 KiB and 100 fields in one read; in small ones the bound holds as well, head finished or not."""
    assert bool(_read(octets)[0].fault) is fault
    pieces = [octets[start : start + 1000] for start in range(0, len(octets), 1000)]
    assert bool(_read(*pieces)[0].fault) is fault


@pytest.mark.parametrize("octets", (b"0\r\nt: " + b"v" * HEAD_LIMIT, b"5;" + b"e" * HEAD_LIMIT))
def test_trailers_and_chunk_extensions_are_bounded(octets: bytes) -> None:
    """An upstream that sends no body in a chunked response does not fill our memory."""
    pieces = [octets[start : start + 1000] for start in range(0, len(octets), 1000)]
    assert _read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *pieces, b"v" * 1000)[0].fault


_FRAMINGS = (b"Content-Length: %d\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n")


@pytest.mark.parametrize("status", (100, 102, 103, 104, 150, 199))
@pytest.mark.parametrize("framing", (*_FRAMINGS, b""))
def test_an_interim_response_has_no_body(status: int, framing: bytes) -> None:
    """RFC 9110 section 15.2: octets between two heads would reach the caller as a response that nobody gave."""
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    framing = framing % len(forged) if b"%" in framing else framing
    body = forged if framing else b"Z" * 9
    if b"chunked" in framing:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(forged), forged)
    interim = b"HTTP/1.1 %d X\r\n%b\r\n" % (status, framing)
    octets = interim + body + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nreal"
    for pieces in ([octets], [interim, octets[len(interim) :]], [octets[at : at + 1] for at in range(len(octets))]):
        response, listener = _read(*pieces)
        assert response.fault
        assert (response.status, listener.body) == (0, b"")
        assert listener.events == ([] if framing else [("interim", status, ())])


@pytest.mark.parametrize("line", (b"RTSP/1.1 200 OK", b"ICE/1.1 200 OK", b"RTSP/1.1 103 Hint", b"\r\nHTTP/1.1 200 OK"))
@given(cuts=st.sets(st.integers(1, 120), max_size=12))
def test_another_protocol_behind_an_interim_response(line: bytes, cuts: set[int]) -> None:
    """Every head says HTTP with its first octets, however it is cut; nothing of one that does not is passed on."""
    first = b"HTTP/1.1 103 Hint\r\nLink: a\r\n\r\n"
    octets = first + line + b"\r\nX: HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    for places in (sorted(cut for cut in cuts if cut < len(octets)), range(1, len(octets))):
        pieces = [octets[start:end] for start, end in zip([0, *places], [*places, len(octets)], strict=True)]
        response, listener = _read(*pieces)
        assert response.fault
        assert listener.events == [("interim", 103, ((b"Link", b"a"),))]


def test_interim_responses_are_counted() -> None:
    """However many there are in a read; one beyond the bound is a fault."""
    one, last = b"HTTP/1.1 103 X\r\n\r\n", b"HTTP/1.1 204 \r\n\r\n"
    response, listener = _read(one * INTERIM_LIMIT + last)
    assert (response.complete, len(listener.events)) == (True, INTERIM_LIMIT + 1)
    for pieces in ([one * 1000], [one] * 1000):
        response, listener = _read(*pieces)
        assert response.fault == "the upstream sent too many interim responses"
        assert len(listener.events) == INTERIM_LIMIT


def test_what_a_receiver_raises_comes_out() -> None:
    """It is a bug of ours and must not be mistaken for a fault of the upstream's."""

    class Raises(_Listener):
        def on_response(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
            raise LookupError("ours")

    with pytest.raises(LookupError, match="ours"):
        Response(Raises(), b"GET").feed(_RESPONSES[0])
