"""Guesses at the admin token are slow, told, and nobody else's trouble."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.guesses import FREE, FREE_TOGETHER, LONGEST, QUIET, Guesses
from policies.units import SECOND, Micros
from tests.gateway.admin.served import TOKEN, Served
from tests.gateway.telemetry.made import StoppedClock

FORM = {"content-type": "application/x-www-form-urlencoded"}
BEARER = {"authorization": f"Bearer {TOKEN}"}
HERE, THERE = "192.0.2.1", "192.0.2.2"


class Tried:
    """Guesses at a clock that a test moves."""

    def __init__(self) -> None:
        self.clock = StoppedClock()
        self.told: list[tuple[str, Any]] = []
        self.looks = 0
        self.guesses = Guesses(self._is_token, self.clock, lambda name, _, members: self.told.append((name, members)))

    def _is_token(self, presented: str) -> bool:
        self.looks += 1
        return presented == TOKEN

    def guess(self, number: int, address: str = HERE) -> bool | Micros:
        """Return whether a guess was looked at, or how long none is."""
        return self.guesses.wait(address) or self.guesses.fits(f"guess-{number}", address)


def test_each_failure_doubles_the_wait_to_a_bound() -> None:
    """A typing error costs nothing; the sixth waits a quarter of a second, then twice as long, at most `LONGEST`."""
    tried = Tried()
    waits = []
    for number in range(FREE + 8):
        assert tried.guess(number) is False
        waits.append(tried.guesses.wait(HERE))
        tried.clock.at += waits[-1]
    quarter = SECOND // 4
    assert waits[: FREE - 1] == [0] * (FREE - 1)
    assert waits[FREE - 1 :] == [min(quarter << n, LONGEST) for n in range(9)]


def test_an_hour_of_guessing_is_a_few_hundred_looks() -> None:
    """However fast they come, from however many addresses of one /64."""
    tried = Tried()
    for number in range(36_000):
        tried.guess(number, f"2001:db8::{number:x}")
        tried.clock.at += SECOND // 10
    assert tried.looks <= 3600 * SECOND // LONGEST + FREE + 10


def test_many_addresses_are_as_slow_and_the_right_token_goes_on() -> None:
    """Whoever was let in is held by its own failures alone; nor is anybody who has not failed."""
    tried = Tried()
    assert tried.guesses.fits(TOKEN, THERE)
    for number in range(20_000):
        tried.guess(number, f"10.0.{number % 40}.1")
    assert tried.looks <= FREE_TOGETHER + 2
    assert tried.guesses.wait("10.0.1.1") > 0
    assert tried.guesses.wait(THERE) == 0
    assert tried.guesses.wait("198.51.100.9") == 0


def test_once_more_have_failed_than_are_remembered_strangers_wait_too() -> None:
    """State is bounded, and what was forgotten is no way round."""
    tried = Tried()
    assert tried.guesses.fits(TOKEN, THERE)
    for number in range(5000):
        tried.guess(number, f"10.{number >> 8}.{number & 255}.1")
    assert tried.looks <= 1026 + 1
    assert 0 < tried.guesses.wait("198.51.100.9") <= LONGEST
    assert tried.guesses.wait(THERE) == 0
    tried.clock.at += LONGEST
    assert tried.guesses.wait("198.51.100.9") == 0


def test_the_same_wrong_token_again_is_no_new_guess() -> None:
    """A scraper with an old token is told 401 for ever, and holds up nobody behind the same address."""
    tried = Tried()
    for _ in range(1000):
        assert tried.guesses.wait(HERE) == 0
        assert not tried.guesses.fits("the one of last year", HERE)
    assert len(tried.told) == 1


def test_quiet_forgets() -> None:
    """After a minute without a failure an address begins anew."""
    tried = Tried()
    for number in range(FREE):
        tried.guess(number)
    tried.clock.at += QUIET + 1
    assert tried.guess(100) is False
    assert tried.guesses.wait(HERE) == 0


def test_each_is_told_without_what_was_presented(caplog: pytest.LogCaptureFixture) -> None:
    """In the decision log and on stderr: from where, and how many."""
    tried = Tried()
    with caplog.at_level(logging.WARNING, "evenhand.audit"):
        tried.guess(1)
        tried.guess(2)
    assert tried.told == [("act", {"act": "refused token", "by": HERE, "failures": n, "of_all": n}) for n in (1, 2)]
    assert "guess-" not in caplog.text
    assert caplog.text.count("refused token") == 2


@pytest.mark.parametrize("way", ["login", "bearer", "readyz"])
async def test_every_way_to_guess_is_held(tmp_path: Path, way: str) -> None:
    """429 with Retry-After, whatever is presented then; a little later the right token is let in."""
    served = Served(tmp_path, token=TOKEN)
    for number in range(FREE):
        if way == "login":
            answer = await served.ask("/login", "POST", FORM, f"token=guess-{number}")
            assert answer.status_code == 401
        else:
            path = "/metrics" if way == "bearer" else "/readyz"
            await served.ask(path, headers={"authorization": f"Bearer guess-{number}"})
    for answer in (
        await served.ask("/login", "POST", FORM, f"token={TOKEN}"),
        await served.ask("/metrics", headers=BEARER),
    ):
        assert answer.status_code == 429
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"] == "1"
        assert "set-cookie" not in answer.headers
    assert "warnings" not in (await served.ask("/readyz", headers=BEARER)).json()
    served.clock.at += SECOND
    assert (await served.ask("/metrics", headers=BEARER)).status_code == 200
    entered = await served.ask("/login", "POST", FORM, f"token={TOKEN}")
    assert entered.status_code == 303
    cookie = {"cookie": entered.headers["set-cookie"].split(";")[0]}
    for number in range(100, 120):
        await served.ask("/metrics", headers={"authorization": f"Bearer guess-{number}"})
    assert (await served.ask("/metrics", headers=cookie)).status_code == 200, "a session is not held"


@pytest.mark.parametrize(
    ("token", "headers", "full"),
    [
        ("", {}, True),
        ("", {"host": "evil.example.com"}, False),
        (TOKEN, {}, False),
        (TOKEN, {"host": "evil.example.com"}, False),
        (TOKEN, {"authorization": "Bearer wrong"}, False),
        (TOKEN, BEARER, True),
        (TOKEN, BEARER | {"host": "evil.example.com"}, True),
    ],
)
async def test_readiness_tells_its_details_to_those_who_may_know(
    tmp_path: Path, token: str, headers: dict[str, str], *, full: bool
) -> None:
    """Anybody learns whether to send requests here; warnings and counts are for those who may read the rest."""
    answer = await Served(tmp_path, token=token).ask("/readyz", headers=headers)
    assert answer.status_code == 200
    members = answer.json()
    if full:
        assert {"warnings", "counts", "shadow"} <= set(members)
    else:
        names = ("loop", "started", "draining", "store")
        assert members == {"status": "ok", "checks": [{"name": name, "ok": True} for name in names]}
