"""The wheel: deadlines of many on one timer, met late by a grain at most, and nothing kept alive by it."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from gateway.proxy.deadlines import GRAIN, Deadlines, Due

__all__: list[str] = []


class Late(Due):
    """Something with a deadline; notes when it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[float] = []

    def on_deadline(self, now: float) -> None:
        self.told.append(now)


async def test_deadline_is_met_late_by_a_grain_at_most() -> None:
    """Never early."""
    loop = asyncio.get_running_loop()
    wheel, dues = Deadlines(loop), [Late() for _ in range(20)]
    wanted = [loop.time() + 0.05 + 0.03 * number for number in range(20)]
    for due, at in zip(dues, wanted, strict=True):
        wheel.set(due, at)
    await asyncio.sleep(1.3)
    for due, at in zip(dues, wanted, strict=True):
        (told,) = due.told
        assert at <= told <= at + 2 * GRAIN


async def test_moving_and_clearing() -> None:
    """Later, earlier, not at all, and again: each is told once, of its last deadline."""
    loop = asyncio.get_running_loop()
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
    await asyncio.sleep(1.5)
    assert [len(due.told) for due in (later, earlier, cleared, again, forgotten)] == [1, 1, 0, 1, 0]
    assert later.told[0] >= now + 0.8
    assert earlier.told[0] < now + 0.3 + GRAIN


async def test_nothing_is_kept_alive_and_no_timer_runs_for_nobody() -> None:
    """What is forgotten is gone at once; an empty wheel has no timer."""
    wheel, due = Deadlines(asyncio.get_running_loop()), Late()
    wheel.set(due, asyncio.get_running_loop().time() + 60)
    there = weakref.ref(due)
    wheel.forget(due)
    del due
    gc.collect()
    assert there() is None
    await asyncio.sleep(2 * GRAIN)
    wheel._turn()
    assert wheel._handle is None or wheel._slots


async def test_one_may_forget_another_and_set_itself_anew() -> None:
    """While the wheel turns."""
    loop = asyncio.get_running_loop()
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
    await asyncio.sleep(1.2)
    assert (len(active.told), other.told, other.filed) == (2, [], 0)


async def test_what_raises_does_not_stop_the_others() -> None:
    """The timer goes on; the loop is told of the error."""
    loop = asyncio.get_running_loop()
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context.get("exception")))

    class Broken(Late):
        def on_deadline(self, now: float) -> None:
            raise RuntimeError("broken")

    wheel, broken, other = Deadlines(loop), Broken(), Late()
    wheel.set(broken, loop.time() + 0.05)
    wheel.set(other, loop.time() + 0.7)
    await asyncio.sleep(1.3)
    assert len(other.told) == 1
    assert [type(error) for error in errors] == [RuntimeError]
    with pytest.raises(RuntimeError):
        broken.on_deadline(0.0)
