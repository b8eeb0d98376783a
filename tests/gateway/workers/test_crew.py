"""Workers that fail in every way, played by a few lines of Python: replaced, asked, given up, killed."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.config.document import Document
from gateway.workers import crew as module
from gateway.workers.channel import Channel, read_first
from gateway.workers.crew import Crew
from tests.wire.waiting import until

__all__: list[str] = []

#: Speaks the protocol of a worker: what it is told, and what it answers, one line each.
PLAYED = """
import json, pickle, socket, struct, sys, time
pipe = socket.socket(fileno=int(sys.argv[1]))
def say(name, what=None):
    said = json.dumps((name, what)).encode()
    pipe.sendall(struct.pack("!I", len(said)) + said)
def heard():
    head = pipe.recv(4, socket.MSG_WAITALL)
    if len(head) < 4: sys.exit(1)
    name, what = pickle.loads(pipe.recv(*struct.unpack("!I", head), socket.MSG_WAITALL))
    return name, what
heard_first = pipe.recv(4, socket.MSG_WAITALL)
pipe.recv(*struct.unpack("!I", heard_first), socket.MSG_WAITALL)
"""
SERVES = "say('serving')\nwhile True:\n    name, what = heard()\n"
OBEYS = (
    SERVES
    + """
    if name == 'leave': say('over', 3); sys.exit(0)
    if name == 'reload': say('done', [what[0], ''])
"""
)


class Stage:
    """A crew whose workers run a script."""

    def __init__(self, count: int = 1) -> None:
        self.script = OBEYS
        self.framed: list[dict[str, Any]] = []
        self.lost = 0
        self.listener = socket.socket()
        self.crew = Crew(
            count, self.listener, Document("x"), lambda _hand, frame: self.framed.append(frame), self._lose
        )

    def _lose(self, _hand: object) -> None:
        self.lost += 1

    def spawned(self, _data: socket.socket) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", PLAYED + self.script, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )
        return process, ours


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """Return a stage; nothing of it is left running."""
    made = Stage()
    monkeypatch.setattr(module, "spawned", made.spawned)
    monkeypatch.setattr(module, "SHORTEST", 0.01)
    yield made
    await made.crew.end()
    made.listener.close()


async def test_worker_serves_and_leaves(stage: Stage) -> None:
    """It is counted once it serves; what its drain cut short is told; then nobody is alive."""
    crew = stage.crew
    crew.start()
    assert crew.check()[1] == "none of 1 workers serves"
    await until(lambda: crew.serving == 1, "it serves", 30)
    assert (crew.check()[1], crew.warnings()) == ("", [])
    crew.drain()
    crew.leave(within=5)
    await until(lambda: not crew.alive, "it has left", 30)
    assert (crew.ended, crew.restarts, stage.lost) == (3, 0, 1)


async def test_killed_worker_is_replaced_with_longer_waits(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits double while workers do not last, and begin anew after one that did."""
    crew = stage.crew
    crew.start()
    for times in range(3):
        await until(lambda: crew.serving == 1, "it serves", 30)
        crew._hands[0].process.kill()
        await until(lambda: crew.restarts > times, "it is replaced", 30)  # noqa: B023 - waited for at once
    await until(lambda: crew.serving == 1, "it serves", 30)
    monkeypatch.setattr(module, "STEADY", 0.0)
    crew._hands[0].process.kill()
    await until(lambda: crew.restarts == 4, "it is replaced", 30)
    waits = [record.getMessage().partition("replaced ")[2] for record in caplog.records if "replaced" in record.msg]
    assert waits == ["in 0.01 s", "in 0.02 s", "in 0.04 s", "at once"]
    assert stage.lost == 4


async def test_crew_that_never_served_gives_up(stage: Stage) -> None:
    """After a few tries; what was wrong they have said themselves."""
    stage.script = "sys.exit(3)"
    stage.crew.start()
    await until(lambda: not stage.crew.alive, "it gives up", 30)
    assert stage.crew.check()[1]
    assert stage.crew.hopeless == "workers end before they serve (exit code 3): the lines above say why"


async def test_frame_that_cannot_be_counted_costs_no_worker(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the worker goes on."""

    def broken(_hand: object, _frame: object) -> None:
        raise KeyError("counts")

    stage.crew._framed = broken
    stage.script = SERVES.replace("say('serving')", "say('frame', {'stalled_us': 0})\nsay('serving')")
    stage.crew.start()
    await until(lambda: stage.crew.serving == 1, "it serves", 30)
    assert "could not be counted" in caplog.text
    assert stage.lost == 0


async def test_all_are_asked_and_faults_are_named(stage: Stage) -> None:
    """Whoever does not answer in time is named as well; who died meanwhile begins with the new one."""
    crew = stage.crew
    crew.start()
    await until(lambda: crew.serving == 1, "it serves", 30)
    assert await crew.ask("reload", "document", 10) == []
    assert await crew.ask("unheard of", None, 0.01) == ["worker 0: it has not answered yet"]
    asked = asyncio.create_task(crew.ask("unheard of", None, 10))
    await asyncio.sleep(0)
    crew._hands[0].process.kill()
    assert await asked == []


async def test_worker_that_stands_still_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that its loop does not turn, or it says nothing any more."""
    stage.script = "say('serving')\nsay('frame', {'stalled_us': 31000000})\ntime.sleep(60)"
    crew = stage.crew
    crew.start()
    await until(lambda: stage.lost == 1, "it was killed", 30)
    monkeypatch.setattr(module, "STALLED", 1)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    crew._task(crew._watch())
    stage.script = "say('serving')\ntime.sleep(60)"
    await until(lambda: stage.lost >= 2, "it was killed", 30)
    assert stage.framed[0] == {"stalled_us": 31_000_000}


async def test_worker_that_does_not_leave_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the drain and what it needs to end."""
    monkeypatch.setattr(module, "_LAST_SECONDS", 0.2)
    stage.script = "say('serving')\ntime.sleep(60)"
    stage.crew.start()
    await until(lambda: stage.crew.serving == 1, "it serves", 30)
    stage.crew.leave(within=0.0)
    await until(lambda: not stage.crew.alive, "it is gone", 30)


async def test_messages_come_whole() -> None:
    """However they are cut, and however long they are; the other side's end is heard of once."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    heard: list[bytes] = []
    ends: list[str] = []
    reader = Channel(heard.append, lambda: ends.append("gone"))
    writer = Channel(heard.append, _nothing)
    await reader.open(ours)
    await writer.open(theirs)
    sent = [b"", b"x" * 3_000_000, b"last"]
    for message in sent:
        writer.send(message)
    assert not writer.idle
    await writer.flushed()
    writer.close()
    await until(lambda: ends == ["gone"], "the end")
    assert heard == sent
    writer.send(b"to nobody")


def test_first_message_is_waited_for() -> None:
    """Before there is a loop; a parent that is gone is no message."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\x00\x00\x00\x02hi\x00")
        assert read_first(ours) == b"hi"
        theirs.close()
        with pytest.raises(EOFError):
            read_first(ours)


def _nothing() -> None:
    pass
