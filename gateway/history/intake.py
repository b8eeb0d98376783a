"""From slots to rows: what the meter counted of keys becomes counts, peaks and sealed hours.

Rules
1. Every refusal of a key, by whatever limit, is an event of its peaks; its own are those of its `key` bucket. Of a
   tenant those of single keys are not: they say nothing of what the tenant may.
2. A tenant's second is the sum of its keys' seconds.
3. What an unsealed hour holds is in memory and, slot by slot, in the file: a restart reads it back.
4. Of ten thousand keys some hundred rows are made at a time, in a fraction of a millisecond; then the data plane has
   the interpreter for a while.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from gateway.history.books import Counts
from gateway.history.identity import TENANT, Identity, tenant_identity
from gateway.history.meter import SLOT_SECONDS, Cell, Slot
from gateway.history.packing import Packed, SlotPeak, Taught, pack_count, pack_peak
from gateway.history.peaks import HOUR_SECONDS, SATURATED, KeyPeaks, sealed_before
from policies.native import mypyc_attr
from policies.policy import Mode, PolicySet
from policies.request import Principal
from policies.sizing import effective_key, effective_tenant
from policies.sizing_past import Hour
from policies.units import SECOND
from policies.verdict import OWN_LIMITS, reason_of

__all__ = ["ADMITTED", "OTHERS", "OWN", "Intake", "Ledger", "counts_of"]

#: Tallies of what is counted of a key, as telemetry numbers them.
ADMITTED: Final = 0
OWN: Final = 4
OTHERS: Final = 8

_SEALED = "sealed"
#: Rows that are made and handed over together: a third of a millisecond, and as long again to write them.
_AT_ONCE: Final = 240
#: Keys whose hours are sealed at once.
_SEALS: Final = 20
#: How long others have the interpreter in between: longer than it was held.
_PAUSE_SECONDS: Final = 0.001
_DAY_SLOTS: Final = 8640
_NOBODY: Final = -1
_ENOUGH: Final = SATURATED * SLOT_SECONDS


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

    def meaning(self, tally: int, limit: str) -> int:
        """Return the number of what is counted."""
        ...

    def counts(self, slot: int, rows: Sequence[Packed]) -> None:
        """Write what was counted in a slot; again, and it replaces."""
        ...

    def peaks(self, slot: int, rows: Sequence[Packed]) -> None:
        """Write what a slot contributes to peaks; again, and it replaces."""
        ...

    def both(self, slot: int, rows: Sequence[Taught]) -> None:
        """Write counts and contributions to peaks; again, and they replace."""
        ...

    def slots_since(self, slot: int) -> Iterable[tuple[int, int, SlotPeak]]:
        """Yield (slot, key, contribution to peaks), of each key in order of time."""
        ...

    def seal(self, key: int, hours: Sequence[Hour]) -> None:
        """Keep sealed hours of a key, and what their days have taught so far."""
        ...


@mypyc_attr(acyclic=True)
class _Known:
    """What is remembered of a key or tenant: one look finds what would else be one in each of four tables."""

    __slots__ = ("cell", "day", "identity", "more", "number", "peaks", "quota", "tenant", "terms")

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        #: Of a key: its tenant.
        self.tenant: _Known | None = None
        #: As the books number it, on the day when they were last asked.
        self.number = _NOBODY
        self.day = _NOBODY
        #: Units a second that are enforced, under the policies of this number.
        self.quota = math.inf
        self.terms = 0
        self.peaks: KeyPeaks | None = None
        #: Of a tenant: its keys in the slot that is being closed.
        self.cell: Cell | None = None
        self.more: list[Cell] | None = None


class Intake:
    """Feeds the books. `policies` returns those in force."""

    def __init__(self, books: Ledger, policies: Callable[[], PolicySet], now: int) -> None:
        self._books = books
        self._policies = policies
        self._seen = policies()
        #: How many policies there were.
        self._terms = 1
        self._interval = max(1, self._seen.sizing.peak_interval_us // SECOND)
        self._peaks: dict[int, KeyPeaks] = {}
        #: By name, those of the books.
        self._keys: dict[str, _Known] = {}
        self._tenants: dict[str, _Known] = {}
        #: Tenants that have no number yet: of one slot.
        self._strange: dict[str, _Known] = {}
        self._meanings: dict[tuple[int, str], int] = {}
        self._sealed = books.meta(_SEALED)
        self._read_back(now)

    def _read_back(self, now: int) -> None:
        """Take up the hours that were not sealed when the last process ended."""
        since = max(self._sealed * HOUR_SECONDS - HOUR_SECONDS, now - 86_400) // SLOT_SECONDS
        for slot, key, peak in self._books.slots_since(since):
            peaks = self._peaks_of(key)
            self._add(peaks, slot, peak.units, peak.second, peak.offered, limited=peak.limited, own=peak.own)

    def counts(self, slot: Slot) -> None:
        """Write the counts of keys in a slot, closed or not."""
        day = slot.number // _DAY_SLOTS
        rows: list[Packed] = []
        for cell in list(slot.cells.values()):
            known = self._key(cell.principal)
            if self._numbered(known, day, listed=cell.principal.listed):
                rows.append((known.number, self._packed(cell)))
                if len(rows) == _AT_ONCE:
                    self._books.counts(slot.number, rows)
                    rows = []
                    time.sleep(_PAUSE_SECONDS)
        self._books.counts(slot.number, rows)
        self._strange = {}

    def tenants(self, slot: int, counted: Iterable[tuple[str, Counts]]) -> None:
        """Write the counts of tenants in a slot, closed or not."""
        day, listed = slot // _DAY_SLOTS, self._policies().tenants
        rows: list[Packed] = []
        for name, counts in counted:
            known = self._tenant(name)
            if self._numbered(known, day, listed=name in listed):
                rows.append((known.number, self._pack(counts)))
                if len(rows) == _AT_ONCE:
                    self._books.counts(slot, rows)
                    rows = []
                    time.sleep(_PAUSE_SECONDS)
        self._books.counts(slot, rows)
        self._strange = {}

    def close(self, slot: Slot) -> None:
        """Write the counts of a closed slot, and let peaks learn of it."""
        policies = self._policies()
        if policies is not self._seen:
            self._seen = policies
            self._terms += 1
        tenants: list[_Known] = []
        try:
            self._close_keys(slot, tenants)
            self._close_tenants(slot.number, tenants)
        finally:
            for tenant in tenants:
                tenant.cell = tenant.more = None
            self._strange = {}

    def _close_keys(self, slot: Slot, tenants: list[_Known]) -> None:
        """Close the keys of a slot, and add their tenants, who have their cells."""
        number, day = slot.number, slot.number // _DAY_SLOTS
        rows: list[Taught] = []
        for cell in slot.cells.values():
            known = self._key(cell.principal)
            if self._numbered(known, day, listed=cell.principal.listed):
                refused = cell.refused
                peak = self._learn(
                    known, number, cell.units(), cell.refused_units,
                    limited=bool(refused), own=refused is not None and "key" in refused,
                )  # fmt: skip
                rows.append((known.number, self._packed(cell), peak))
            tenant = known.tenant
            if tenant is None or tenant.number == _NOBODY:
                tenant = known.tenant = self._tenant(cell.principal.tenant)
            if tenant.cell is None:
                tenant.cell = cell
                tenants.append(tenant)
            elif tenant.more is None:
                tenant.more = [cell]
            else:
                tenant.more.append(cell)
            if len(rows) == _AT_ONCE:
                self._books.both(number, rows)
                rows = []
                time.sleep(_PAUSE_SECONDS)
        self._books.both(number, rows)

    def _close_tenants(self, number: int, tenants: list[_Known]) -> None:
        day = number // _DAY_SLOTS
        rows: list[Packed] = []
        for tenant in tenants:
            first = tenant.cell
            if first is None or not self._numbered(tenant, day, listed=first.principal.listed):
                continue
            units, refused_units = first.units(), first.refused_units
            limited, own = _by_tenant(first)
            for cell in tenant.more or ():
                units = [one + other for one, other in zip(units, cell.units(), strict=True)]
                refused_units += cell.refused_units
                by = _by_tenant(cell)
                limited, own = limited or by[0], own or by[1]
            rows.append((tenant.number, self._learn(tenant, number, units, refused_units, limited=limited, own=own)))
            if len(rows) == _AT_ONCE:
                self._books.peaks(number, rows)
                rows = []
                time.sleep(_PAUSE_SECONDS)
        self._books.peaks(number, rows)

    def seal(self, now: int) -> None:
        """Seal the hours that are over, and forget keys that fell silent."""
        before = sealed_before(now)
        if before <= self._sealed:
            return
        silent = False
        for number, (key, peaks) in enumerate(list(self._peaks.items()), 1):
            # An hour sealed by an earlier process is read back only for what it says of the next.
            fresh = [hour for hour in peaks.seal(before) if hour.number >= self._sealed]
            if fresh:
                self._books.seal(key, fresh)
            if peaks.empty:
                del self._peaks[key]
                silent = True
            if number % _SEALS == 0:
                time.sleep(_PAUSE_SECONDS)
        if silent:
            # Whoever comes back is looked up anew, lest it teach peaks that nobody seals.
            self._keys, self._tenants = {}, {}
        self._sealed = before
        self._books.note(_SEALED, before)

    def _key(self, principal: Principal) -> _Known:
        known = self._keys.get(principal.name)
        return _Known(Identity.of(principal)) if known is None else known

    def _tenant(self, name: str) -> _Known:
        known = self._tenants.get(name) or self._strange.get(name)
        if known is None:
            known = self._strange[name] = _Known(tenant_identity(name))
        return known

    def _numbered(self, known: _Known, day: int, *, listed: bool) -> bool:
        """Return whether the books know it, or have room for it."""
        if known.day >= day:
            return True
        number = self._books.key(known.identity, day, listed=listed)
        if number is None:
            return False
        if number != known.number:
            known.number, known.peaks = number, None
        known.day = day
        if known.identity.kind == TENANT:
            self._tenants[known.identity.tenant] = known
        else:
            self._keys[known.identity.name] = known
        return True

    def _learn(
        self, known: _Known, slot: int, seconds: list[float], refused: float, *, limited: bool, own: bool
    ) -> bytes:
        """Let the peaks of a key or tenant learn of a slot, by the seconds of it; returns that packed."""
        units = best = 0.0
        for second in seconds:
            units += second
            best = max(best, second)
        units = max(0.0, units)
        offered = units + refused
        if known.terms != self._terms:
            known.quota, known.terms = _enforced(self._seen, known.identity), self._terms
        if units > _ENOUGH * known.quota:
            limited = own = True
        peaks = known.peaks
        if peaks is None:
            peaks = known.peaks = self._peaks_of(known.number)
        self._add(peaks, slot, units, best, offered, limited=limited, own=own)
        return pack_peak(units, best, offered, limited=limited, own=own)

    def _peaks_of(self, key: int) -> KeyPeaks:
        peaks = self._peaks.get(key)
        if peaks is None:
            peaks = self._peaks[key] = KeyPeaks(self._interval)
        return peaks

    @staticmethod
    def _add(
        peaks: KeyPeaks, slot: int, units: float, second: float, offered: float, *, limited: bool, own: bool
    ) -> None:
        # Whether it was saturated is in `limited` already, so there is no quota.
        peaks.add(slot * SLOT_SECONDS, units, second, offered, refused=limited, own=own, quota=math.inf)

    def _packed(self, cell: Cell) -> bytes:
        """Write what was counted of a key."""
        if cell.refused is None:
            return pack_count(self._meaning((ADMITTED, "")), cell.admitted) if cell.admitted > 0 else b""
        return self._pack(counts_of(cell))

    def _pack(self, counts: Counts) -> bytes:
        return b"".join([pack_count(self._meaning(what), count) for what, count in counts.items()])

    def _meaning(self, what: tuple[int, str]) -> int:
        found = self._meanings.get(what)
        if found is None:
            found = self._meanings[what] = self._books.meaning(*what)
        return found


def _by_tenant(cell: Cell) -> tuple[bool, bool]:
    """Return whether any limit but the key's own refused something of a key, and whether its tenant's did."""
    refused = cell.refused
    if refused is None:
        return False, False
    return any(limit != "key" for limit in refused), "tenant" in refused


def _enforced(policies: PolicySet, identity: Identity) -> float:
    """Return the units a second that are enforced on a key or tenant, infinity if none are."""
    find = effective_key if identity.credential else effective_tenant
    found = find(policies, identity.principal())
    if found is None or found.mode is not Mode.ENFORCE or policies.mode is not Mode.ENFORCE:
        return math.inf
    return float(found.quota.rate.per_second)


def counts_of(cell: Cell) -> dict[tuple[int, str], int]:
    """Return what was counted of a key, by (tally, limit)."""
    counts: dict[tuple[int, str], int] = {(ADMITTED, ""): cell.admitted} if cell.admitted > 0 else {}
    for limit, count in (cell.refused or {}).copy().items():
        counts[OWN if reason_of(limit) in OWN_LIMITS else OTHERS, limit] = count
    return counts
