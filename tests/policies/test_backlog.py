"""The book of waits, one sentence at a time, at a rate of 100 units a second unless said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.kernels.backlog import Queue
from policies.policy import ClassRule
from policies.units import SECOND, Micros
from tests.clock import EPOCH
from tests.policies.shares import CLASSES, Ask, drain, service

__all__: list[str] = []

PACE = SECOND / 100


class Book:
    """A queue, and how much was asked of its limit."""

    def __init__(self) -> None:
        self.queue = Queue(EPOCH)
        self.asked = 0.0

    def refuse(self, at: float, count: int = 1, pace: float = PACE) -> Micros:
        """Refuse `count` asks `at` seconds after the beginning; return the last wait."""
        wait = 0
        for _ in range(count):
            self.asked += 1.0
            wait = self.queue.book(0.0, 1.0, pace, self.asked, EPOCH + int(at * SECOND))
        return wait

    def press(self, begin: float, end: float, rate: int) -> list[Micros]:
        """Refuse `rate` asks a second; return the waits."""
        return [self.refuse(begin + step / rate) for step in range(int((end - begin) * rate))]


def test_each_refusal_is_told_a_later_place() -> None:
    """The first waits half a second, each one more as long as the rate takes for it, and nobody more than a minute."""
    book = Book()
    assert [book.refuse(0.0) for _ in range(3)] == [500_000, 510_000, 520_000]
    assert book.refuse(0.0, 9_000) == 60 * SECOND


def test_bookings_that_nobody_kept_are_void() -> None:
    """A wave of a thousand that never comes back is forgotten once its first places are overdue, jitter included."""
    book = Book()
    book.refuse(0.0, 1_000)
    assert book.refuse(1.2) > 9 * SECOND
    book = Book()
    book.refuse(0.0, 1_000)
    assert book.refuse(3.6) == 500_000


def test_bookings_that_are_kept_stand() -> None:
    """While those who were told come back (and are admitted), whoever comes later waits for the rest of them."""
    book = Book()
    book.refuse(0.0, 1_000)
    for second in range(1, 6):
        book.asked += 80.0
        assert book.refuse(second + 0.5) > (8 - second) * SECOND


def test_slow_bookings_are_not_missed_at_a_faster_rate() -> None:
    """Ten booked over ten seconds are ten, though the rate has grown a hundredfold since."""
    book = Book()
    book.refuse(0.0, 10, pace=SECOND)
    book.asked += 2.0
    assert book.refuse(5.0, pace=PACE) > 4 * SECOND


def test_hammered_book_is_short() -> None:
    """A thousand refusals a second where a hundred could return: after five seconds nobody is told more than 6 s."""
    book = Book()
    waits = book.press(0.0, 120.0, 1_000)
    assert max(waits[:5_000]) > 30 * SECOND
    assert max(waits[7_000:]) <= 6 * SECOND


def test_hammering_that_ends_is_forgotten() -> None:
    """Once no more are refused than places come due, the book reaches as far as ever."""
    book = Book()
    book.press(0.0, 10.0, 1_000)
    book.press(10.0, 15.0, 100)
    assert book.refuse(15.0, 2_000) > 20 * SECOND


def test_crowd_that_obeys_is_told_the_truth() -> None:
    """Refused in a second the number that returns after what was told: longer waits have fewer refusals, and stay."""
    book = Book()
    book.press(0.0, 7.0, 1_000)
    waits: list[Micros] = []
    now = 7.0
    for _ in range(60):
        last = book.refuse(now)
        waits = book.press(now, now + 1.0, int(3_000_000_000 / max(last, 2 * SECOND)))
        now += 1.0
    assert max(waits) > 20 * SECOND


def test_pauses_are_no_hammering() -> None:
    """A hundred refusals in an instant, every two seconds, for minutes: no more than can return."""
    book = Book()
    assert max(book.refuse(2.0 * turn, 100) for turn in range(100)) < 2 * SECOND


@pytest.mark.parametrize(("every_us", "most"), [(1_000, 600_000), (200, 600_000), (10_000, 600_000)])
def test_waits_after_hammering_and_silence_are_the_true_ones(every_us: int, most: int) -> None:
    """A client asks as fast as it can for 5 s over 100/s; after 10 s of silence its tenant waits for nobody.

    It was told 47.9 s, and admitted after 4 ms.
    """
    shares = service(100.0)
    for now in range(EPOCH, EPOCH + 5 * SECOND, every_us):
        shares.take(Ask("t0"), now)
    later = EPOCH + 15 * SECOND
    assert drain(shares, Ask("t0"), later) > 20
    refusal = shares.take(Ask("t0"), later)
    assert refusal is not None
    assert refusal.limit == "share"
    assert refusal.wait_us <= most
    assert drain(shares, Ask("t0"), later + 30_000) >= 1


def test_waits_of_a_class_and_of_the_backstop_are_the_true_ones_too() -> None:
    """The books of a class ceiling and of the backstop are held against what happens as well."""
    shares = service(100.0, 100.0, (CLASSES[0], ClassRule(1, 0.25, 0.05, ceiling=0.5)))
    batch = Ask("t0", cls=1)
    for now in range(EPOCH, EPOCH + 5 * SECOND, 1_000):
        shares.take(batch, now)
    later = EPOCH + 15 * SECOND
    drain(shares, batch, later)
    refusal = shares.take(batch, later)
    assert refusal is not None
    assert (refusal.limit, refusal.wait_us < SECOND) == ("class", True)

    shares = service(100.0, 10.0)
    crowd = [Ask(f"t{index}") for index in range(400)]
    limits, longest = set(), 0
    for step in range(4_000):
        refusal = shares.take(crowd[step % 400], EPOCH + step * 1_000)
        if refusal is not None and refusal.limit == "backstop":
            longest = max(longest, refusal.wait_us)
    assert longest > 20 * SECOND
    later = EPOCH + 14 * SECOND
    for ask in (replace(ask, tenant=f"new-{ask.tenant}") for ask in crowd):
        refusal = shares.take(ask, later)
        if refusal is not None:
            limits.add(refusal.limit)
            assert refusal.wait_us < 5 * SECOND
    assert limits == {"backstop"}
