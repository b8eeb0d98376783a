"""Addresses take turns, and one stranger makes no outage."""

from __future__ import annotations

from gateway.identity.turns import Circuit, Turns
from policies.units import SECOND

__all__: list[str] = []


def test_a_newcomer_waits_for_one_of_each_address_at_most() -> None:
    """Seventy addresses with sixteen questions each, and then one with its first."""
    turns: Turns[tuple[str, int]] = Turns(1, 16, 2000, 10 * SECOND)
    for address in range(70):
        for number in range(20):
            assert turns.enter(f"a{address}", (f"a{address}", number), 0)[0] == (number < 16)
    assert turns.enter("new", ("new", 0), 0) == (True, None)
    asked: list[str] = []
    while "new" not in asked:
        what, late = turns.next(0)
        assert what is not None
        assert late == []
        assert turns.next(0) == (None, []), "one at a time"
        turns.done(what[0])
        asked.append(what[0])
    assert len(asked) == 71


def test_when_all_is_full_the_longest_line_makes_room() -> None:
    """Its last place goes to whoever has a shorter one; nobody else loses a place, and nothing grows."""
    turns: Turns[str] = Turns(1, 16, 32, 10 * SECOND)
    for address in ("a", "b"):
        for number in range(16):
            turns.enter(address, f"{address}{number}", 0)
    evicted = [turns.enter(f"n{number}", f"n{number}", 0) for number in range(40)]
    assert evicted[0] == (True, "a15")
    assert sum(entered for entered, _ in evicted) == 30, "until each line is one or two long"
    assert evicted[-1] == (False, None)
    seen = []
    while (what := turns.next(0)[0]) is not None:
        seen.append(what)
        turns.done(what[0] if what[0] in "ab" else what)
    assert len(seen) == 32
    assert turns.enter("a", "again", 0) == (True, None)


def test_who_has_waited_too_long_is_not_asked() -> None:
    """It is told so, and its place is free."""
    turns: Turns[str] = Turns(1, 1, 1, SECOND)
    turns.enter("a", "early", 0)
    assert turns.next(2 * SECOND) == (None, ["early"])
    assert turns.enter("a", "late", 2 * SECOND) == (True, None)
    assert turns.next(2 * SECOND) == ("late", [])


def test_an_outage() -> None:
    """Nobody reached three times, or three addresses in a row; half open, a few of distinct addresses try."""
    for addresses, unreachable, opens in (
        ("aaa", True, True),
        ("a" * 15, False, False),
        ("a" * 16, False, True),
        ("abc", False, True),
    ):
        circuit = Circuit(SECOND)
        for address in addresses:
            assert circuit.lets(address, 0)
            circuit.failed(address, 0, unreachable=unreachable)
        assert circuit.lets("x", 0) is not opens
    circuit = Circuit(SECOND)
    for address in "abc":
        circuit.failed(address, 0, unreachable=False)
    assert [circuit.lets(address, SECOND) for address in "xxyzwv"] == [True, False, True, True, True, False]
    circuit.failed("x", SECOND, unreachable=False)
    assert not circuit.lets("x", SECOND)
    assert circuit.lets("x", 2 * SECOND)
    circuit.answered()
    assert circuit.lets("a", 2 * SECOND)
    assert circuit.lets("a", 2 * SECOND)


def test_probes_that_were_never_asked_keep_nothing_shut() -> None:
    """Their places are free again a little later."""
    circuit = Circuit(SECOND)
    for address in "abc":
        circuit.failed(address, 0, unreachable=False)
    assert all(circuit.lets(address, SECOND) for address in "abcd")
    assert not circuit.lets("e", 2 * SECOND)
    assert circuit.lets("e", 7 * SECOND)


def test_an_answer_between_is_no_row() -> None:
    """Failures with answers between them are those of tokens."""
    circuit = Circuit(SECOND)
    for number in range(99):
        circuit.failed(f"a{number}", 0, unreachable=True)
        circuit.failed(f"b{number}", 0, unreachable=True)
        circuit.answered()
    assert circuit.lets("x", 0)
