"""An outage under load: what each posture promises holds, nobody waits for it, and it is over at once."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.wire.faults import FaultProxy
from tests.wire.gateway import running
from tests.wire.lost import POSTURES
from tests.wire.origin import serving
from tests.wire.outage import Figures, configured, suffer
from tests.wire.redis import RedisServer
from tests.wire.script import Answer

__all__: list[str] = []


def check(found: dict[str, Figures]) -> None:
    """Hold every posture to its word."""
    for figures in found.values():
        assert figures.failed == 0, figures
        # Two seconds, and two in which gateway or caller may not have had their turn.
        assert figures.recovery <= 2.0 + 2.0, figures
        # A burst would be 1.5: the whole bucket besides two seconds of rate. Far below 1 too much would be held back.
        assert 0.4 <= figures.afterwards <= 1.2, figures
    opened, closed, denied, safe = (found[posture] for posture in POSTURES)
    assert opened.worst_light == 1.0
    assert opened.over_admitted > 0.5
    assert closed.worst_light <= 0.6
    assert 0.45 <= denied.all_light <= 0.95
    assert safe.worst_light >= 0.99
    assert safe.over_admitted == 0.0


@pytest.mark.soak
async def test_an_outage_under_each_posture(tmp_path: Path, redis_server: RedisServer, soak: bool) -> None:
    """Five seconds of silence, all postures at once; at full size a minute each over two gateways, told as a table."""
    with serving() as up, FaultProxy(redis_server.address) as proxy, contextlib.ExitStack() as started:
        up.on("/", Answer())
        scale = 1 if soak else 2
        config = configured(scale) | {
            # Callers, proxy and gateways share two cores with whatever else runs there.
            "store": {"url": proxy.url, "path": "evenhand.sqlite3", "namespace": "outage", "deadline": "250ms"},
            "backstop": {"quota": "1000/s burst 1000"},
            "telemetry": {"admit_sample": 0.01},
        }
        addresses = []
        for number in range(2 if soak else 1):
            (folder := tmp_path / str(number)).mkdir()
            addresses.append(started.enter_context(running(folder, up, config)).address)
        rows: list[Figures] = []
        for together in ([posture] for posture in POSTURES) if soak else [POSTURES]:
            before, outage, after = (5.0, 60.0, 5.0) if soak else (1.0, 5.0, 6.1)
            gateways = dict.fromkeys(together, addresses)
            rows += await suffer(
                gateways, proxy.freeze, proxy.heal, before=before, outage=outage, after=after, scale=scale
            )
    print("", *(figures.row() for figures in rows), sep="\n")  # noqa: T201 - shown by `make soak PYTEST_ARGS=-s`
    check({figures.posture: figures for figures in rows})
