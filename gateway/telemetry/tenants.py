"""What each tenant got, over the last minutes and hours: the reading side of `slots.py`.

Rules
1. Any thread may ask; a lock puts readers one after another. The data plane never takes it.
2. A report is computed when asked for, and kept for ten times as long as that took, at most for one second: however
   many ask, reading costs a bounded part of one core.
3. Somebody must ask, or call `advance`, every few minutes: it takes the closed slots away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from gateway.clock import Clock
from gateway.telemetry.codebook import Codebook
from gateway.telemetry.columns import Table
from gateway.telemetry.figures import Figures, Report, figures, report
from gateway.telemetry.labels import Labels
from gateway.telemetry.slots import Cells, Ledger, Slot
from gateway.telemetry.windows import WINDOWS, Windows
from policies.units import SECOND, Micros

__all__ = ["Tenants"]

_KEPT = 10


class Tenants:
    """Reports and labelled totals over the counts of a ledger."""

    def __init__(self, ledger: Ledger, top: int, clock: Clock) -> None:
        self.ledger = ledger
        self._codebook = ledger.codebook
        self._clock = clock
        self._lock = threading.Lock()
        self._windows = Windows(self._codebook)
        self._labels = Labels(top)
        self._top = top
        #: Each is told of every slot as it is closed, before anybody forgets it.
        self.followers: list[Callable[[Slot], None]] = []
        self._kept: dict[tuple[str, bool], tuple[Micros, Report]] = {}

    @property
    def codebook(self) -> Codebook:
        """What the codes in slots mean."""
        return self._codebook

    def advance(self, now: Micros) -> None:
        """Take over the slots closed by `now`."""
        with self._lock:
            self._advance(now)

    def report(self, window: str, now: Micros) -> Report:
        """Return one of WINDOWS at `now`, at most a second old. Raises KeyError for any other."""
        with self._lock:
            until, kept = self._kept.get((window, False), (0, None))
            if kept is not None and now < until:
                return kept
            current = self._advance(now)
            began = self._clock.now()
            made = report(window, self._windows.read(window, now, current), self._codebook)
            took = self._clock.now() - began
            self._kept[window, False] = (now + min(SECOND, _KEPT * took), made)
            return made

    def glance(self, window: str, now: Micros) -> Report:
        """Return the same with those tenants alone that have a label."""
        with self._lock:
            until, kept = self._kept.get((window, True), (0, None))
            if kept is not None and now < until:
                return kept
            current = self._advance(now)
            began = self._clock.now()
            table = self._windows.table(window, now, current)
            rows = [self._figures(label, window, now, current) for label in self._labels]
            worst, lowest = table.worst(), table.lowest()
            made = Report(
                window,
                [row for row in rows if row.offered or row.rejected],
                table.aggregate(),
                None if worst is None else self._figures(worst, window, now, current),
                None if lowest is None else self._figures(lowest, window, now, current),
            )
            took = self._clock.now() - began
            self._kept[window, True] = (now + min(SECOND, _KEPT * took), made)
            return made

    def table(self, window: str, now: Micros) -> Table:
        """Return all tenants of one of WINDOWS at `now`, by column. Raises KeyError for any other."""
        with self._lock:
            return self._windows.table(window, now, self._advance(now))

    def rows(self, window: str, now: Micros, tenants: Iterable[str]) -> list[Figures]:
        """Return the figures of a few tenants."""
        with self._lock:
            current = self._advance(now)
            return [self._figures(tenant, window, now, current) for tenant in tenants]

    def _figures(self, tenant: str, window: str, now: Micros, current: Slot) -> Figures:
        return figures(tenant, self._windows.of(tenant, window, now, current), self._codebook)

    def tenant(self, tenant: str, now: Micros) -> dict[str, Figures]:
        """Return one tenant in every window; all zero if nothing was counted of it."""
        with self._lock:
            current = self._advance(now)
            return {window: self._figures(tenant, window, now, current) for window in WINDOWS}

    def totals(self, now: Micros) -> dict[str, Cells]:
        """Return what each `tenant` label has counted since it began, by code."""
        with self._lock:
            return self._labels.totals(self._advance(now))

    def relabel(self, top: int) -> None:
        """Take over a reloaded `top_tenants`, from the next slot on."""
        self._top = top

    def _advance(self, now: Micros) -> Slot:
        """Return the slot being written, everything before it being counted."""
        current = self.ledger.slot
        closed = False
        for slot in self.ledger.take_closed(current.number):
            self._labels.close(slot)
            self._windows.close(slot)
            for take in self.followers:
                take(slot)
            closed = True
        self._windows.expire(now)
        if closed:
            self._labels.limit = self._top
        if closed and self._labels.full:
            # Without the current slot: what is shown of it is decided by the labels it began with.
            self._labels.rank(self._windows.ranks("1h"))
        return current
