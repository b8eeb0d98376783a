r"""The workers of one instance: started, watched, replaced, told to leave.

    waiting --spawn--> starting --"serving"--> serving --ended--> waiting (longer each time) ...
                           \--ended, and none has ever served--> the instance gives up

Rules
1. A worker is this interpreter, executed anew with two descriptors: its pipe and the listening socket that all share.
   Nothing is forked that has threads.
2. One that ends unasked is replaced: at once if it had served for `STEADY`, else after a wait that doubles up to
   `LONGEST`. One whose loop stands still, or that says nothing, for `STALLED` is killed, and so replaced.
3. If workers end before any has ever served, waiting will not help: after `FAILURES` in a row the instance gives up.
4. A worker that is started runs by the configuration in force, not by whatever the file holds by now.
5. All of it is on the parent's loop.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.admin.health import STALLED
from gateway.config.document import Document
from gateway.telemetry.frames import Frame
from gateway.workers.channel import Channel
from gateway.workers.child import Start
from gateway.workers.spawn import spawned
from policies.units import SECOND

__all__ = ["Crew", "Hand"]

_LOG = logging.getLogger("evenhand.workers")

#: Seconds.
STEADY = 3.0
SHORTEST = 0.25
LONGEST = 30.0
FAILURES = 3
#: What a worker needs beyond `drain_timeout` to answer, settle and end; then it is killed.
_LAST_SECONDS = 8.0
_LOOK_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Hand:
    """One worker process, from its start to its end."""

    number: int
    process: subprocess.Popen[bytes]
    channel: Channel
    heard: float
    served: float = 0.0
    #: By the number of a question: what it answers, "" for having done what it was asked.
    asked: dict[int, asyncio.Future[str]] = field(default_factory=dict)


class Crew:
    """The workers. `framed` is given what each tells, `lost` a worker that is gone, `changed` hears of every change."""

    def __init__(
        self,
        count: int,
        data: socket.socket,
        document: Document,
        framed: Callable[[Hand, Frame], None],
        lost: Callable[[Hand], None],
    ) -> None:
        self.count = count
        self.restarts = 0
        #: How many requests the end of the drain cut short, all workers together.
        self.ended = 0
        #: Why there is no use in going on; empty while there is.
        self.hopeless = ""
        self.changed: Callable[[], None] = _nothing
        self._data = data
        self._document = document
        self._framed = framed
        self._lost = lost
        self._hands: dict[int, Hand] = {}
        self._starting = 0
        self._waits: dict[int, float] = {}
        #: What a worker is told first of all, each a name and what belongs to it.
        self.greeting: Callable[[], Iterable[tuple[str, Any]]] = tuple
        self._asked = 0
        self._failures = 0
        self._ever = False
        self._leaving = False
        self._at_once = False
        self._draining = False
        self._tasks: set[asyncio.Task[None]] = set()

    # How they stand

    @property
    def serving(self) -> int:
        """How many serve."""
        return sum(1 for hand in self._hands.values() if hand.served)

    @property
    def alive(self) -> bool:
        """True while any process is left, or is to be started."""
        return bool(self._hands or self._starting) or not (self._leaving or self.hopeless)

    def check(self) -> tuple[str, str]:
        """Return the check of /readyz: nobody serves."""
        return "workers", "" if self.serving else f"none of {self.count} workers serves"

    def warnings(self) -> list[str]:
        """Return what an operator should know of now."""
        missing = self.count - self.serving
        if not missing or self._leaving or not self._ever:
            return []
        return [f"{missing} of {self.count} workers {'does' if missing == 1 else 'do'} not serve and will be replaced"]

    # Their life

    def start(self) -> None:
        """Start all of them."""
        self._starting = self.count
        for number in range(self.count):
            self._task(self._first(number))
        self._task(self._watch())

    def drain(self) -> None:
        """Let every answer say that its connection closes."""
        self._draining = True
        self._tell("drain", None)

    def leave(self, *, at_once: bool = False, within: float = 0.0) -> None:
        """Let all drain and end; those that have not after `within` seconds, and some, are killed."""
        self._leaving = True
        self._at_once |= at_once
        self._tell("leave", at_once)
        if not at_once:
            self._task(self._insist(within + _LAST_SECONDS))
        self.changed()

    def begin_with(self, document: Document) -> None:
        """Start workers by another configuration from now on."""
        self._document = document

    async def ask(self, name: str, what: Any, within: float) -> list[str]:
        """Let every worker do something; return what went wrong, by worker, after `within` seconds at most."""
        self._asked += 1
        number, waiting = self._asked, {}
        for hand in self._hands.values():
            answer = hand.asked[number] = waiting[hand] = asyncio.get_running_loop().create_future()
            self._send(hand, name, (number, what))
        if waiting:
            await asyncio.wait(waiting.values(), timeout=within)
        for hand, answer in waiting.items():
            del hand.asked[number]
            if not answer.done():
                answer.set_result("it has not answered yet")
        return [f"worker {hand.number}: {fault}" for hand, answer in waiting.items() if (fault := answer.result())]

    # One of them

    async def _first(self, number: int) -> None:
        try:
            await self._spawn(number)
        finally:
            self._starting -= 1

    async def _spawn(self, number: int) -> None:
        process, ours = spawned(self._data)
        channel = Channel(lambda message: self._heard(hand, message), lambda: self._gone(hand))
        hand = self._hands[number] = Hand(number, process, channel, _now())
        await channel.open(ours)
        self._send(hand, "start", Start(number, self.count, self._document))
        for name, what in self.greeting():
            self._send(hand, name, (0, what))
        if self._draining:
            self._send(hand, "drain", None)
        if self._leaving:
            self._send(hand, "leave", self._at_once)

    def _heard(self, hand: Hand, message: bytes) -> None:
        name, what = orjson.loads(message)
        hand.heard = _now()
        match name:
            case "frame":
                self._count(hand, what)
                if what["stalled_us"] > STALLED:
                    self._kill(hand, "its data plane stands still")
            case "serving":
                hand.served = _now()
                self._ever, self._failures = True, 0
                self.changed()
            case "done" if (answer := hand.asked.get(what[0])) is not None and not answer.done():
                answer.set_result(what[1])
            case "over":
                self.ended += what

    def _count(self, hand: Hand, frame: Frame) -> None:
        try:
            self._framed(hand, frame)
        except Exception:  # noqa: BLE001 - a figure that cannot be counted must not cost a worker its pipe
            _LOG.exception("what worker %d told could not be counted", hand.number)

    def _gone(self, hand: Hand) -> None:
        """Hear that the pipe of a worker has closed: it has ended, or is about to."""
        self._task(self._buried(hand))

    async def _buried(self, hand: Hand) -> None:
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                code = await asyncio.to_thread(hand.process.wait, _LAST_SECONDS)
        except (TimeoutError, subprocess.TimeoutExpired):
            hand.process.kill()
            code = await asyncio.to_thread(hand.process.wait)
        self._hands.pop(hand.number, None)
        for answer in hand.asked.values():
            if not answer.done():
                answer.set_result("")  # whoever comes after it begins with all of it
        self._lost(hand)
        if not self._leaving:
            self._replace(hand, code)
        self.changed()

    def _replace(self, hand: Hand, code: int) -> None:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if not hand.served and not self._ever:
            self._failures += 1
            if self._failures >= FAILURES:
                self.hopeless = f"workers end before they serve ({how}): the lines above say why"
                self.leave(at_once=True)
                return
        steady = hand.served and _now() - hand.served >= STEADY
        before = self._waits.get(hand.number, 0.0)
        wait = self._waits[hand.number] = 0.0 if steady else min(LONGEST, max(SHORTEST, 2 * before))
        when = f"in {wait:g} s" if wait else "at once"
        _LOG.warning("worker %d ended (%s) and is replaced %s", hand.number, how, when)
        self._task(self._later(hand.number, wait))

    async def _later(self, number: int, wait: float) -> None:
        await asyncio.sleep(wait)
        if not self._leaving and not self.hopeless:
            self.restarts += 1
            await self._spawn(number)

    def _kill(self, hand: Hand, why: str) -> None:
        if hand.process.poll() is None:
            _LOG.error("worker %d is killed: %s", hand.number, why)
            hand.process.kill()

    # All of them

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for hand in list(self._hands.values()):
                if hand.served and _now() - hand.heard > STALLED / SECOND:
                    self._kill(hand, "it has said nothing for 30 s")

    async def _insist(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for hand in list(self._hands.values()):
            self._kill(hand, "it did not end")

    async def end(self) -> None:
        """End at once whatever is left."""
        for hand in list(self._hands.values()):
            hand.process.kill()
            await asyncio.to_thread(hand.process.wait)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _tell(self, name: str, what: Any) -> None:
        for hand in self._hands.values():
            self._send(hand, name, what)

    @staticmethod
    def _send(hand: Hand, name: str, what: Any) -> None:
        hand.channel.send(pickle.dumps((name, what)))

    def _task(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _nothing() -> None:
    pass


def _now() -> float:
    return asyncio.get_running_loop().time()
