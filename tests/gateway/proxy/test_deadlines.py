"""The wheel: deadlines of many on one timer, met late by a grain at most, and nothing kept alive by it."""

from __future__ import annotations

import asyncio
import gc
import heapq
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from gateway.proxy.deadlines import GRAIN, Deadlines, Due

__all__: list[str] = []


class Standing(asyncio.AbstractEventLoop):
    """A loop whose time stands until a test moves it: how late a machine is has nothing to do with the wheel."""

    def __init__(self) -> None:
        self.at = 1_000.0
        self.errors: list[object] = []
        self._timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self.at

    def get_debug(self) -> bool:
        return False

    def call_later(  # type: ignore[override]  # whatever the callback takes
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self.at + delay, callback, args, self, context)
        heapq.heappush(self._timers, timer)
        return timer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context.get("exception"))

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.at + seconds
        while self._timers and self._timers[0].when() <= end:
            timer = heapq.heappop(self._timers)
            self.at = timer.when()
            timer._run()
        self.at = end


class Late(Due):
    """Something with a deadline; notes when it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[float] = []

    def on_deadline(self, now: float) -> None:
        self.told.append(now)


@pytest.fixture
def loop() -> Standing:
    """Return a loop that stands."""
    return Standing()  # type: ignore[abstract]  # it has all that the wheel asks of one


def test_deadline_is_met_late_by_a_grain_at_most(loop: Standing) -> None:
    """Never early."""
    wheel, dues = Deadlines(loop), [Late() for _ in range(20)]
    wanted = [loop.time() + 0.05 + 0.03 * number for number in range(20)]
    for due, at in zip(dues, wanted, strict=True):
        wheel.set(due, at)
    loop.run(1.3)
    for due, at in zip(dues, wanted, strict=True):
        (told,) = due.told
        assert at <= told <= at + 2 * GRAIN


def test_moving_and_clearing(loop: Standing) -> None:
    """Later, earlier, not at all, and again: each is told once, of its last deadline."""
    wheel, now = Deadlines(loop), loop.time()
    later, earlier, cleared, again, forgotten = (Late() for _ in range(5))
    for due in (later, earlier, cleared, again, forgotten):
        wheel.set(due, now + 0.3)
    wheel.set(later, now + 0.8)
    wheel.set(earlier, now + 0.6)
    wheel.set(earlier, now + 0.05)
    wheel.clear(cleared)
    wheel.clear(again)
    wheel.set(again, now + 0.5)
    wheel.forget(forgotten)
    wheel.forget(forgotten)
    loop.run(1.5)
    assert [len(due.told) for due in (later, earlier, cleared, again, forgotten)] == [1, 1, 0, 1, 0]
    assert later.told[0] >= now + 0.8
    assert earlier.told[0] < now + 0.3 + GRAIN


def test_nothing_is_kept_alive_and_no_timer_runs_for_nobody(loop: Standing) -> None:
    """What is forgotten is gone at once; an empty wheel has no timer."""
    wheel, due = Deadlines(loop), Late()
    wheel.set(due, loop.time() + 60)
    there = weakref.ref(due)
    wheel.forget(due)
    del due
    gc.collect()
    assert there() is None
    loop.run(2 * GRAIN)
    wheel._turn()
    assert wheel._handle is None or wheel._slots


def test_one_may_forget_another_and_set_itself_anew(loop: Standing) -> None:
    """While the wheel turns."""
    wheel, other = Deadlines(loop), Late()

    class Active(Late):
        def on_deadline(self, now: float) -> None:
            super().on_deadline(now)
            wheel.forget(other)
            if len(self.told) < 2:
                wheel.set(self, now + 0.1)

    active = Active()
    wheel.set(other, loop.time() + 5.0)
    wheel.set(active, loop.time() + 0.1)
    loop.run(1.2)
    assert (len(active.told), other.told, other.filed) == (2, [], 0)


def test_what_raises_does_not_stop_the_others(loop: Standing) -> None:
    """The timer goes on; the loop is told of the error."""

    class Broken(Late):
        def on_deadline(self, now: float) -> None:
            raise RuntimeError("broken")

    wheel, broken, other = Deadlines(loop), Broken(), Late()
    wheel.set(broken, loop.time() + 0.05)
    wheel.set(other, loop.time() + 0.7)
    loop.run(1.3)
    assert len(other.told) == 1
    assert [type(error) for error in loop.errors] == [RuntimeError]
    with pytest.raises(RuntimeError):
        broken.on_deadline(0.0)
