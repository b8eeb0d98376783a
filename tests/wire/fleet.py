"""Several gateways on one shared store, as one service: started together, asked in turn."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.wire.gateway import Gateway
from tests.wire.load import Tally, at_once, offer
from tests.wire.origin import Origin
from tests.wire.toml import Document

__all__ = ["Fleet", "fleet"]


class Fleet:
    """Gateways that share a store, each a process of its own."""

    def __init__(self, gateways: Sequence[Gateway]) -> None:
        self.gateways = tuple(gateways)

    async def at_once(self, octets: Sequence[bytes]) -> Tally:
        """Send each of `octets` on a connection of its own, going round the gateways, all from one barrier."""
        turns = len(self.gateways)
        return _summed(
            await asyncio.gather(
                *(at_once(one.address, octets[number::turns]) for number, one in enumerate(self.gateways))
            )
        )

    async def offer(
        self, octets: bytes | Callable[[int], bytes], *, rates: Sequence[float], seconds: float, connections: int = 2
    ) -> Tally:
        """Send at these rates, one for each gateway."""
        return _summed(
            await asyncio.gather(
                *(
                    offer(one.address, octets, rate=rate, seconds=seconds, connections=connections)
                    for one, rate in zip(self.gateways, rates, strict=True)
                )
            )
        )

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all."""
        return sum(one.metrics().sum(name, **labels) for one in self.gateways)

    def outcomes(self, tenant: str) -> Counter[str]:
        """Return what became of a tenant's requests, over all."""
        found: Counter[str] = Counter()
        for one in self.gateways:
            for outcome, count in one.metrics().by("outcome", "evenhand_requests_total").items():
                found[outcome] += round(count)
        return found


def _summed(tallies: Sequence[Tally]) -> Tally:
    return Tally(
        [answer for tally in tallies for answer in tally.answers],
        max(tally.elapsed for tally in tallies),
        max(tally.late for tally in tallies),
    )


@contextlib.contextmanager
def fleet(folder: Path, up: Origin | str, config: Document, count: int = 4) -> Iterator[Fleet]:
    """Run `count` gateways in front of `up` for the length of a `with`; those still there at its end must end well."""
    address = up if isinstance(up, str) else up.address
    gateways = []
    for number in range(count):
        place = folder / f"gateway-{number}"
        place.mkdir()
        gateways.append(Gateway(place, address, config))
    try:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(Gateway.start, gateways))
        yield Fleet(gateways)
    except BaseException:
        for one in gateways:
            if one.running:
                one.end(signal.SIGKILL)
        raise
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(Gateway.stop, [one for one in gateways if one.running]))
