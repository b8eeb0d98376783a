"""Case 75: a gateway starts without its store, decides by its postures from the first request on, and finds it."""

from __future__ import annotations

from tests.wire.lost import POSTURES, Lost, refused

__all__: list[str] = []


async def test_starting_while_the_store_is_down(losing_store: Lost) -> None:
    """It is ready, says that it is degraded, and counts within 2 s of the store's return; nobody restarts it."""
    lost = losing_store
    lost.proxy.down()
    lost.gateway.stop()
    lost.gateway.start()
    assert lost.gateway.metrics().value("evenhand_store_up") == 0
    answers = [(await lost.ask(posture))[0] for posture in POSTURES]
    assert [refused(answer) for answer in answers[:2]] == [False, True]
    assert sum(lost.decided().values()) == len(POSTURES)
    await lost.heal(within=2.0)
    await lost.counting(within=2.0)
