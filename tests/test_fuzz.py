"""20,000 inputs through every parser that touches a caller's octets (`make fuzz`: a million)."""

from __future__ import annotations

import random

import pytest

from loadtest.fuzz import __main__ as fuzzing
from loadtest.fuzz.__main__ import Broken, fuzz, main
from loadtest.fuzz.mutate import inputs
from loadtest.fuzz.targets import Target

__all__: list[str] = []


def test_no_parser_raises_or_answers_what_it_may_not() -> None:
    """Identity answers 400 or 401 and nothing else; a head also what the contract names. The seed is fixed."""
    found = fuzz(20_000, seed=20_000)
    assert sum(statuses.total() for statuses in found.values()) >= 20_000
    assert found["credentials"].keys() <= {0, 400, 401}
    assert all(statuses.total() >= 1000 for statuses in found.values())
    for name in ("credentials", "tokens", "bearers"):
        assert found[name][401] > 100, f"{name} are rejected: the inputs reach the readers"
        assert found[name][0], f"{name} pass: the inputs are not only noise"


@pytest.mark.parametrize(("status", "told"), [(500, "answered 500 to b'x'"), (None, "raised ValueError")])
def test_a_broken_parser_is_found(
    status: int | None, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The negative control: an exception or a wrong answer ends the run with its input."""

    def parse(_: bytes) -> int:
        if status is None:
            raise ValueError("broken")
        return status

    monkeypatch.setattr(fuzzing, "targets", lambda: (Target("broken", (b"x",), parse, frozenset({0})),))
    with pytest.raises(Broken, match=told):
        fuzz(10, seed=1)
    assert main(["--inputs", "10", "--seed", "1"]) == 1
    assert "seed 1: broken" in capsys.readouterr().out


def test_the_count_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each parser and of all."""
    monkeypatch.setattr(fuzzing, "targets", lambda: (Target("fine", (b"x",), len, frozenset(range(5000))),))
    assert main(["--inputs", "50", "--seed", "1"]) == 0
    assert "50 inputs, no exception" in capsys.readouterr().out


def test_a_seed_makes_the_same_inputs() -> None:
    """A finding can be made again."""
    one, other = (inputs((b"abc", b"x: y"), random.Random(7)) for _ in range(2))
    assert [next(one) for _ in range(500)] == [next(other) for _ in range(500)]
