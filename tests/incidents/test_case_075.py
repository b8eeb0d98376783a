"""Case 75: a gateway starts without its store, decides by its postures from the first request on, and finds it."""

from __future__ import annotations

from tests.wire.lost import POSTURES, Lost, refused

__all__: list[str] = []


def test_starting_while_the_store_is_down(losing_store: Lost) -> None:
    """It was ready, said that it was degraded, and counted within 2 s of the store's return; nobody restarted it.

    Every gateway of these cases is started so: see `Lost.begin`. Other kinds of absence at the start are in case 65.
    """
    assert losing_store.first_up == 0
    assert [refused(answer) for answer in losing_store.first][:2] == [False, True]
    assert losing_store.first_decided == len(POSTURES)
    assert "the store answers again" in losing_store.gateway.stderr
