"""Many requests at once, or at a steady pace, over real sockets."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.wire.caller import Caller, Response

__all__ = ["Tally", "at_once", "offer"]


@dataclass(slots=True)
class Tally:
    """What came of a load. `answers` are (seconds after the start when it was sent, response).

    `late` is the most by which one was sent behind its time, where machine, gateway or upstream did not keep up.
    """

    answers: list[tuple[float, Response]] = field(default_factory=list)
    elapsed: float = 0.0
    late: float = 0.0

    @property
    def statuses(self) -> Counter[int]:
        """How many answers had which status; 0 is none at all."""
        return Counter(answer.status for _, answer in self.answers)

    @property
    def admitted(self) -> int:
        """Answers with a 2xx status."""
        return sum(200 <= answer.status < 300 for _, answer in self.answers)

    def limits(self) -> Counter[str]:
        """Return how many were refused by which limit, by the gateway's own field."""
        return Counter(answer.header("evenhand-refused") or "" for _, answer in self.answers if answer.status >= 400)

    def per_second(self) -> list[int]:
        """Return how many were admitted of those sent in each second."""
        found = Counter(int(at) for at, answer in self.answers if 200 <= answer.status < 300)
        return [found[second] for second in range(int(self.elapsed) + 1)]


async def at_once(address: str, octets: Sequence[bytes], *, source: str | None = None, within: float = 60.0) -> Tally:
    """Send each of `octets` on a connection of its own, all released from one barrier."""
    callers = [await Caller.connect(address, source=source) for _ in octets]
    tally, start = Tally(), time.monotonic()

    async def one(caller: Caller, sent: bytes) -> None:
        await caller.send(sent)
        tally.answers.append((0.0, await caller.response(_method(sent), within)))
        await _leave(caller)

    await asyncio.gather(*map(one, callers, octets))
    tally.elapsed = time.monotonic() - start
    return tally


async def offer(
    address: str,
    octets: bytes | Callable[[int], bytes],
    *,
    rate: float,
    seconds: float,
    connections: int = 4,
    source: str | None = None,
) -> Tally:
    """Send `rate` requests a second for `seconds` over kept connections; what is late is sent at once, none is dropped.

    `octets` may be a function of the request's number.
    """
    tally, start = Tally(), time.monotonic()
    numbers = iter(range(round(rate * seconds)))

    async def worker() -> None:
        caller: Caller | None = None
        for number in numbers:
            await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
            sent = octets if isinstance(octets, bytes) else octets(number)
            if caller is None or caller.closed:
                caller = await Caller.connect(address, source=source)
            at = time.monotonic() - start
            tally.late = max(tally.late, at - number / rate)
            await caller.send(sent)
            answer = await caller.response(_method(sent), 60.0)
            tally.answers.append((at, answer))
            if not answer.complete or (answer.header("connection") or "").lower() == "close":
                await _leave(caller)
                caller = None
        if caller is not None:
            await _leave(caller)

    await asyncio.gather(*(worker() for _ in range(connections)))
    tally.elapsed = time.monotonic() - start
    return tally


async def _leave(caller: Caller) -> None:
    caller.close()
    await caller.until_closed()


def _method(octets: bytes) -> str:
    return octets.split(b" ", 1)[0].decode("latin-1")
