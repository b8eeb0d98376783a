"""The contestants, standing ready before one origin, and the rounds in which they take turns.

Rules
1. A contestant runs on the first processor, origin and client on the second (with fewer than two, all together).
2. In every round all entries of a cell are measured once, each round from another one on. Everybody has been warmed up
   by the same load; where tenants take turns, each has come by twice.
3. Nobody is measured while somebody still clears up after the client before: who was asked, is waited for.
4. A sample in which fewer requests were answered than there are connections is of a machine that did something else; it
   is taken again, twice at most.
5. Who fails is named with the reason and out of the cell; the others go on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from loadtest.peers import client, meter
from loadtest.peers.cells import Cell, Entry, Load
from loadtest.peers.contestants import Contestant, Running, start, start_origin
from loadtest.peers.everything import NARROW, WIDE, authorization
from loadtest.peers.report import Row, Sample

__all__ = ["Ring"]

#: Seconds between two looks at whether a process is idle, the part of a processor that counts as that, looks at most.
_LOOK, _IDLE, _LOOKS = 0.02, 0.05, 50
#: Runs in which each of many tenants has to have come by.
_PATIENCE = 20
_TRIES = 3
#: A few requests of a refused credential are let through by its burst.
_BURST = 20
#: How far apart rounds begin in a file of credentials, so that short ones reach different ones.
_STEP = 3_701


class Ring:
    """All who take part, from construction to `close`."""

    def __init__(self, folder: Path, wanted: Sequence[Contestant]) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        self._mine: int | None = cpus[0] if len(cpus) > 1 else None
        self._others: int | None = cpus[1] if len(cpus) > 1 else None
        self._folder = folder
        self._warm: set[tuple[str, int]] = set()
        self.running: dict[str, Running] = {}
        self.missing: list[str] = []
        self.origin = start_origin(folder / "origin", self._others)
        try:
            for number, contestant in enumerate(wanted):
                if contestant.path() is None:
                    self.missing.append(contestant.name)
                    continue
                self.running[contestant.name] = start(contestant, folder / str(number), self.origin.port, self._mine)
        except RuntimeError:
            self.close()
            raise

    def close(self) -> None:
        """End everything that was started."""
        for one in (*self.running.values(), self.origin):
            one.stop()

    def measured(self, cell: Cell, rounds: int, seconds: float) -> list[Row]:
        """Return what the entries of a cell cost in so many rounds."""
        entries = [entry for entry in cell.entries if entry.contestant in self.running]
        samples: dict[Entry, list[Sample]] = {entry: [] for entry in entries}
        reasons: dict[Entry, str] = {}
        # The round before the first warms up.
        for turn in range(-1, rounds):
            direct = self._direct(entries, seconds) if turn >= 0 else {}
            for entry in (*entries[turn % len(entries) :], *entries[: turn % len(entries)]) if entries else ():
                try:
                    if entry not in reasons and turn < 0:
                        self._warm_up(entry, min(1.0, seconds))
                    elif entry not in reasons:
                        samples[entry].append(self._sample(entry, seconds, direct[entry.load], turn * _STEP))
                except (OSError, RuntimeError) as error:
                    reasons[entry] = f"failed: {error}"
        rows = [
            Row(cell.name, one.name, one.load, () if one in reasons else tuple(found), one.side, reasons.get(one, ""))
            for one, found in samples.items()
        ]
        return rows + [Row(cell.name, name, cell.entries[0].load, (), reason=why) for name, why in cell.absent]

    def _direct(self, entries: Sequence[Entry], seconds: float) -> dict[Load, client.Seen]:
        """Return how soon the origin alone answers each load."""
        loads = dict.fromkeys(one.load for one in entries)
        return {load: self._asked(load, self.origin, seconds * load.stretch) for load in loads}

    def _warm_up(self, entry: Entry, seconds: float) -> None:
        running, load = self.running[entry.contestant], entry.load
        key, sent, asked = (entry.contestant, load.tenants), 0, 0
        while key not in self._warm and sent < 2 * load.tenants:
            sent += self._asked(Load(tenants=load.tenants), running, seconds, sent).requests
            asked += 1
            if asked >= _PATIENCE and sent < 2 * load.tenants:
                raise RuntimeError(f"it answers {sent} requests in {asked * seconds:g} s")
        self._warm.add(key)
        self._asked(load, running, seconds)

    def _sample(self, entry: Entry, seconds: float, direct: client.Seen, begin: int) -> Sample:
        running, load = self.running[entry.contestant], entry.load
        seen, answered, used = self._steady(load, running, seconds, begin)
        wrong = abs(seen.other - seen.requests) if load.refused else seen.other
        return Sample(
            cpu_us=used / answered,
            per_second=answered / seen.seconds,
            p50_added_us=seen.p50_us - direct.p50_us,
            p99_added_us=seen.p99_us - direct.p99_us,
            resident_mb=meter.resident(running.pids) / 1e6,
            mb_per_cpu_second=seen.bytes / max(used, 1.0),
            requests=seen.requests,
            errors=seen.errors + (0 if load.refused and wrong < _BURST else wrong),
        )

    def _steady(self, load: Load, running: Running, seconds: float, begin: int) -> tuple[client.Seen, float, float]:
        """Return what came of a load, how many answers that is, and the processor time that they took."""
        seconds, answered = seconds * load.stretch, 0.0
        for _ in range(_TRIES):
            pids = running.pids
            before = meter.cpu_us(pids)
            seen = self._sent(load, running, seconds, begin)
            used = meter.cpu_us(pids) - before
            _settle(pids)
            answered = seen.bytes / load.octets if load.octets else float(seen.requests)
            if answered >= load.connections:
                return seen, answered, used
        raise RuntimeError(f"{answered:.0f} answers on {load.connections:,} connections in {seconds:g} s")

    def _asked(self, load: Load, running: Running, seconds: float, begin: int = 0) -> client.Seen:
        """Send a load, and wait until it is over at the other end too."""
        seen = self._sent(load, running, seconds, begin)
        _settle(running.pids)
        return seen

    def _sent(self, load: Load, running: Running, seconds: float, begin: int) -> client.Seen:
        if running.process.poll() is not None:
            raise RuntimeError(f"it has ended, with code {running.process.returncode}")
        asked = client.Asked(
            f"http://127.0.0.1:{running.port}{load.path}",
            authorization(0, NARROW if load.refused else WIDE),
            load.connections,
            seconds,
            load.keep_alive,
            self._credentials(load.tenants) if load.tenants else None,
            begin % max(1, load.tenants),
        )
        return client.run(asked, self._others)

    def _credentials(self, tenants: int) -> Path:
        """Return a file with the field of each tenant in a line, which is written when it is first needed."""
        path = self._folder / f"credentials-{tenants}"
        if not path.exists():
            lines = "\n".join(authorization(number) for number in range(tenants))
            path.write_text(lines, encoding="utf-8")
        return path


def _settle(pids: list[int]) -> None:
    before = meter.cpu_us(pids)
    for _ in range(_LOOKS):
        time.sleep(_LOOK)
        now = meter.cpu_us(pids)
        if now - before < _IDLE * _LOOK * 1e6:
            return
        before = now
