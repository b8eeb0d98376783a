"""Case 29 and the skew of several processes, in simulated time: leases keep the rate that one bucket would keep."""

from __future__ import annotations

from random import Random

import pytest

from policies.kernels.gcra import Bucket
from policies.units import SECOND
from tests.policies.buckets import EPOCH, ask
from tests.policies.documents import Step
from tests.policies.kernels.fleet import Bank, Member, run

__all__: list[str] = []

pytestmark = pytest.mark.untraced

SKEWED = (0.9, 0.1 / 3, 0.1 / 3, 0.1 / 3)
EVEN = (0.25,) * 4


class Direct(Member):
    """A process that asks one bucket for every request: what the fleet is measured against."""

    bucket: Bucket

    def request(self, now: int) -> bool:
        """Serve one request, or refuse it."""
        admitted = ask(self.bucket, Step(), now) == 0
        self.admitted += admitted
        return admitted

    def tick(self, now: int) -> None:
        """Nothing to do."""


def _fleet(rate: float, burst: float, parts: tuple[float, ...], seconds: float) -> tuple[list[Member], Bank, float]:
    """Offer 1.5 x rate; return the processes, the bucket, and what one bucket admits of the same requests."""
    bank, bucket = Bank(rate, burst), Bucket(rate / SECOND, burst, EPOCH)
    members = [Member(bank, 1 + index, 1.5 * rate * part) for index, part in enumerate(parts)]
    run(members, seconds, Random(1))
    direct = [Direct(bank, 1 + index, 1.5 * rate * part) for index, part in enumerate(parts)]
    for each in direct:
        each.bucket = bucket
    run(direct, seconds, Random(1))
    return members, bank, sum(each.admitted for each in direct)


@pytest.mark.soak
@pytest.mark.parametrize("parts", [(1.0,), EVEN, SKEWED])
@pytest.mark.parametrize("rate", [0.5, 3.0, 7.0, 10.0, 333.0, 1000.0])
def test_case_029_the_rate_holds(rate: float, parts: tuple[float, ...], soak: bool) -> None:
    """At 1.5 x the rate for 300 s, ticks jittered by 50 ms, as much is admitted as by one bucket, within 1 %."""
    seconds = 300.0 if soak or rate <= 10.0 else 20.0
    members, bank, direct = _fleet(rate, max(1.0, rate), parts, seconds)
    admitted = sum(member.admitted for member in members)
    # What is leased and not yet spent at the end, two ticks of it at most, counts for nothing over minutes.
    assert admitted >= 0.99 * direct - (0.0 if seconds > 100.0 else 0.2 * rate)
    assert admitted <= 1.01 * rate * seconds + bank.burst


@pytest.mark.parametrize("parts", [EVEN, SKEWED])
@pytest.mark.parametrize("rate", [10.0, 100.0, 1000.0])
def test_a_limit_is_one_limit_over_four_processes(rate: float, parts: tuple[float, ...]) -> None:
    """Over 10 s within -3 % and +1 % of the limit, plus burst, and nobody far below the success of the others."""
    members, bank, direct = _fleet(rate, rate, parts, 10.0)
    admitted = sum(member.admitted for member in members)
    assert 0.97 * 10 * rate <= admitted <= 1.01 * 10 * rate + bank.burst
    assert admitted >= 0.97 * direct - 3
    for member in members:
        assert member.admitted >= 0.5 * (member.admitted + member.refused)


def test_an_idle_fleet_holds_nothing() -> None:
    """A second after the last request everything is back in the bucket, and none has a second burst."""
    bank = Bank(100.0, 100.0)
    members = [Member(bank, number, 60.0) for number in range(1, 5)]
    run(members, 5.0, Random(2))
    now = EPOCH + 7 * SECOND
    for member in members:
        member.tick(now)
    assert sum(member.units for member in members) == 0.0
    spent = 0
    for index in range(500):
        spent += members[index % 4].request(now)
    assert spent == 100
