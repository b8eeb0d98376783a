"""The shells are one gateway: the same requests in, the same octets upstream, the same answers, the same books."""

from __future__ import annotations

import contextlib
import difflib
import pprint
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.clock import StandingClock
from tests.gateway.proxy.corpus import Case, cases, refused
from tests.gateway.proxy.reach import on_both_loops, until
from tests.gateway.proxy.served import Served
from tests.gateway.proxy.shells import ROWS, Shell, behind
from tests.wire.caller import Caller
from tests.wire.message import Data, Head, WireError, responses
from tests.wire.origin import Origin, serving

__all__: list[str] = []

SHELLS = ROWS["test_same"].shells
#: An id is each request's own.
_ID = re.compile(rb"\b[0-9A-HJKMNP-TV-Z]{26}\b")
#: What a server says of itself, and in which letters, is its own.
_OWN = re.compile(rb"\r\n(?:Connection|Transfer-Encoding):")


class Heard(NamedTuple):
    """One answer: heads that came before its own, its own with all octets, and its body."""

    before: list[bytes]
    head: bytes
    body: bytes
    complete: bool


class Outcome(NamedTuple):
    """What became of a case on either side and in the books."""

    upstream: list[tuple[bytes, bytes, bool]]
    heard: list[Heard]
    books: list[tuple[str, int, str, bool, str]]


def masked(octets: bytes) -> bytes:
    """Return `octets` without what is each request's own."""
    return _ID.sub(b"-", octets)


def told(head: bytes, own: tuple[str, ...]) -> bytes:
    """Return the head of an answer without what is the server's `own`, and each request's."""
    lines = _OWN.sub(lambda name: name[0].lower(), masked(head)).split(b"\r\n")
    return b"\r\n".join(line for line in lines if line.partition(b":")[0].decode("latin-1") not in own)


def heard(raw: bytes, method: str, own: tuple[str, ...]) -> tuple[Heard, bytes]:
    """Return the first answer of what a caller received, and the rest."""
    framer, heads, body, complete = responses(method), [b""], b"", False
    with contextlib.suppress(WireError):
        events = framer.feed(raw)
        while events and not complete:
            for event in events:
                if isinstance(event, Data):
                    body += event.octets
                elif isinstance(event, Head):
                    heads.append(told(event.raw, own))
                else:
                    complete = not heads[-1].startswith(b"HTTP/1.1 1")
            events = framer.feed(b"")
    return Heard([] if "1xx" in own else heads[1:-1], heads[-1], masked(body), complete), bytes(framer.rest)


async def became(gateway: Served, origin: Origin, case: Case) -> Outcome:
    """Send a case and return what became of it."""
    origin.forget()
    origin.on("/", case.script)
    settled = len(gateway.books.settled)
    async with await Caller.connect(gateway.address) as caller:
        await caller.send(case.octets)
        if case.sign == "upstream":
            await until(lambda: bool(origin.seen))
        elif case.sign:
            await until(lambda: b"\r\n\r\n" in caller.raw)
        if case.leaves:
            getattr(caller, case.leaves)()
        else:
            await caller.send(case.more)
            for method in case.methods:
                await caller.response(method)
        await gateway.settled(settled + len(case.methods))
        answers, raw = [], bytes(caller.raw)
    for method in () if case.leaves else case.methods:
        answer, raw = heard(raw, method, case.own)
        answers.append(answer)
    if case.leaves:
        await until(lambda: all(seen.connection.closed for seen in origin.seen))
    return Outcome(
        [(masked(seen.raw), bytes(seen.body), seen.ended is not None) for seen in origin.seen],
        answers,
        [
            (str(one.outcome), one.status, one.limit, one.sent, one.rejection.code if one.rejection else "")
            for one in gateway.books.settled[settled:]
        ],
    )


def differences(found: dict[Shell, Outcome]) -> Iterator[str]:
    """Yield what is not as it is in the lane, line by line."""
    for shell, outcome in found.items():
        for part, here, there in zip(Outcome._fields, found["lane"], outcome, strict=True):
            if here != there:
                before, after = (pprint.pformat(one, width=200).splitlines() for one in (here, there))
                lines = difflib.ndiff(before, after)
                yield "\n".join([f"{part} in {shell}", *(line[:500] for line in lines if line[0] in "-+")])


@on_both_loops
async def test_every_shell_is_the_same_gateway(tmp_path: Path) -> None:
    """Head for head and octet for octet, on either side; but for what a server keeps from its application."""
    differ: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        origin = stack.enter_context(serving())
        for quota, corpus in (("1000000/s burst 1000000", cases()), ("1/h burst 1", refused())):
            gateways: dict[Shell, Served] = {}
            for shell in SHELLS:
                opened = behind(shell, tmp_path, origin, quota=quota, clock=StandingClock())
                gateways[shell] = await stack.enter_async_context(opened)
            for case in corpus:
                shown = {shell: one for shell, one in gateways.items() if shell not in case.hidden}
                found = {shell: await became(one, origin, case) for shell, one in shown.items()}
                differ += [f"{case.name}: {one}" for one in differences(found)]
    assert not differ, "\n".join(differ)
