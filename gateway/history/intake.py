"""From slots to rows: what the meter counted of keys becomes counts, peaks and sealed hours.

Rules
1. Every refusal of a key, by whatever limit, is an event of its peaks; its own are those of its `key` bucket. Of a
   tenant those of single keys are not: they say nothing of what the tenant may.
2. A tenant's second is the sum of its keys' seconds.
3. What an unsealed hour holds is in memory and, slot by slot, in the file: a restart reads it back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from gateway.history.books import Counts
from gateway.history.identity import Identity, tenant_identity
from gateway.history.meter import SLOT_SECONDS, Cell, Slot
from gateway.history.packing import SlotPeak
from gateway.history.peaks import HOUR_SECONDS, SATURATED, KeyPeaks, sealed_before
from policies.policy import Mode, PolicySet
from policies.sizing import effective_key, effective_tenant
from policies.sizing_past import Hour
from policies.units import SECOND
from policies.verdict import OWN_LIMITS, reason_of

__all__ = ["ADMITTED", "OTHERS", "OWN", "Intake", "Ledger", "counts_of"]

#: Tallies of what is counted of a key, as telemetry numbers them.
ADMITTED, OWN, OTHERS = 0, 4, 8

_SEALED = "sealed"


class Ledger(Protocol):
    """What rows are written to: `Books`, or those of a shared store."""

    max_keys: int

    def meta(self, name: str) -> int:
        """Return a number kept by name, 0 if there is none."""
        ...

    def note(self, name: str, value: int) -> None:
        """Keep a number by name."""
        ...

    def key(self, identity: Identity, day: int, *, listed: bool) -> int | None:
        """Return the number of a key, made if there is room."""
        ...

    def counts(self, slot: int, rows: Iterable[tuple[int, Counts]]) -> None:
        """Write what was counted of keys in a slot; again, and it replaces."""
        ...

    def peaks(self, slot: int, rows: Iterable[tuple[int, SlotPeak]]) -> None:
        """Write what a slot contributes to peaks; again, and it replaces."""
        ...

    def slots_since(self, slot: int) -> Iterable[tuple[int, int, SlotPeak]]:
        """Yield (slot, key, contribution to peaks), of each key in order of time."""
        ...

    def seal(self, key: int, hours: Sequence[Hour]) -> None:
        """Keep sealed hours of a key, and what their days have taught so far."""
        ...


class Intake:
    """Feeds the books. `policies` returns those in force."""

    def __init__(self, books: Ledger, policies: Callable[[], PolicySet], now: int) -> None:
        self._books = books
        self._policies = policies
        self._quotas: tuple[PolicySet | None, dict[str, float]] = (None, {})
        self._interval = max(1, policies().sizing.peak_interval_us // SECOND)
        self._peaks: dict[int, KeyPeaks] = {}
        self._sealed = books.meta(_SEALED)
        self._read_back(now)

    def _read_back(self, now: int) -> None:
        """Take up the hours that were not sealed when the last process ended."""
        since = max(self._sealed * HOUR_SECONDS - HOUR_SECONDS, now - 86_400) // SLOT_SECONDS
        for slot, key, peak in self._books.slots_since(since):
            self._add(key, slot, peak)

    def counts(self, slot: Slot) -> None:
        """Write the counts of a slot, closed or not."""
        self._books.counts(slot.number, self._counted(slot))

    def _counted(self, slot: Slot) -> Iterator[tuple[int, Counts]]:
        for cell in slot.cells.copy().values():
            key = self._key(Identity.of(cell.principal), slot, listed=cell.principal.listed)
            if key is not None:
                yield key, counts_of(cell)

    def close(self, slot: Slot) -> None:
        """Write the counts of a closed slot, and let peaks learn of it."""
        self.counts(slot)
        self._books.peaks(slot.number, self._learnt(slot))

    def _learnt(self, slot: Slot) -> Iterator[tuple[int, SlotPeak]]:
        for key, peak in self._contributions(slot):
            self._add(key, slot.number, peak)
            yield key, peak

    def seal(self, now: int) -> None:
        """Seal the hours that are over, and forget keys that fell silent."""
        before = sealed_before(now)
        if before <= self._sealed:
            return
        for key, peaks in list(self._peaks.items()):
            hours = list(peaks.seal(before))
            # An hour sealed by an earlier process is read back only for what it says of the next.
            fresh = [hour for hour in hours if hour.number >= self._sealed]
            if fresh:
                self._books.seal(key, fresh)
            if peaks.empty:
                del self._peaks[key]
        self._sealed = before
        self._books.note(_SEALED, before)

    def _add(self, key: int, slot: int, peak: SlotPeak) -> None:
        peaks = self._peaks.get(key)
        if peaks is None:
            peaks = self._peaks[key] = KeyPeaks(self._interval)
        peaks.add(
            slot * SLOT_SECONDS,
            peak.units,
            peak.second,
            peak.offered,
            refused=peak.limited,
            own=peak.own,
            quota=math.inf,  # whether it was saturated is in `limited` already
        )

    def _key(self, identity: Identity, slot: Slot, *, listed: bool) -> int | None:
        return self._books.key(identity, slot.number // 8640, listed=listed)

    def _contributions(self, slot: Slot) -> Iterable[tuple[int, SlotPeak]]:
        by_tenant: dict[str, list[Cell]] = {}
        for cell in slot.cells.values():
            identity = Identity.of(cell.principal)
            key = self._key(identity, slot, listed=cell.principal.listed)
            if key is not None:
                refused = cell.refused or ()
                yield key, self._peak(identity, [cell], limited=bool(refused), own="key" in refused)
            cells = by_tenant.get(identity.tenant)
            if cells is None:
                by_tenant[identity.tenant] = [cell]
            else:
                cells.append(cell)
        for tenant, cells in by_tenant.items():
            identity = tenant_identity(tenant)
            key = self._key(identity, slot, listed=cells[0].principal.listed)
            if key is not None:
                limits = {limit for cell in cells for limit in cell.refused or ()}
                yield key, self._peak(identity, cells, limited=bool(limits - {"key"}), own="tenant" in limits)

    def _peak(self, identity: Identity, cells: list[Cell], *, limited: bool, own: bool) -> SlotPeak:
        seconds, refused_units = cells[0].units(), cells[0].refused_units
        if len(cells) > 1:
            seconds = [sum(parts) for parts in zip(*(cell.units() for cell in cells), strict=True)]
            refused_units = sum(cell.refused_units for cell in cells)
        units = max(0.0, sum(seconds))
        offered = units + refused_units
        saturated = units > SATURATED * SLOT_SECONDS * self._quota(identity)
        return SlotPeak(units, max(0.0, *seconds), offered, limited or saturated, own or saturated)

    def _quota(self, identity: Identity) -> float:
        """Return the units a second that are enforced on a key or tenant, infinity if none are."""
        policies = self._policies()
        if self._quotas[0] is not policies:
            self._quotas = (policies, {})
        quotas = self._quotas[1]
        if identity.name not in quotas:
            if len(quotas) >= self._books.max_keys:
                quotas.clear()
            quotas[identity.name] = _enforced(policies, identity)
        return quotas[identity.name]


def _enforced(policies: PolicySet, identity: Identity) -> float:
    find = effective_key if identity.credential else effective_tenant
    found = find(policies, identity.principal())
    if found is None or found.mode is not Mode.ENFORCE or policies.mode is not Mode.ENFORCE:
        return math.inf
    return float(found.quota.rate.per_second)


def counts_of(cell: Cell) -> dict[tuple[int, str], int]:
    """Return what was counted of a key, by (tally, limit)."""
    counts = {(ADMITTED, ""): cell.admitted} if cell.admitted > 0 else {}
    for limit, count in (cell.refused or {}).copy().items():
        counts[OWN if reason_of(limit) in OWN_LIMITS else OTHERS, limit] = count
    return counts
