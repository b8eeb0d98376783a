"""The water level: how much each unit of weight may have, so that what is handed out is used and nobody idles.

Theory of operation
-------------------
Weighted max-min fairness gives tenant i the smaller of its demand d_i and a * w_i, where the level `a` is the same for
all and solves sum(min(d_i, a * w_i)) = P for what is handed out, P. Demand is estimated per tenant as an average that
decays by 0.3 every 100 ms: a constant of one second was simulated, and lags behind what callers do.

Most tenants are far below their share, and of those only the sum matters: whoever has much left in its share bucket is
counted in one number (`light`). That keeps noise out of the level, too: an estimate of 2/s is really 3.6 just after a
request and 0 before it, so the smaller of that and a * w would be too small on average.

The others would have to be sorted by d_i / w_i, which takes milliseconds that the data plane does not have. Here it is
never done. All demand decays alike, so the *logarithm* of d_i / w_i plus the elapsed time is a number that decay leaves
alone: it changes only when the tenant asks for something. Tenants are kept in cells 3 % wide of that number, a cell
holding how much weight and demand its tenants have together. To fold a request in moves one tenant from one cell to
another; to solve looks at the occupied cells, a few hundred, however many the tenants are.

Rules
1. Demand is folded in at most `SLICE` tenants at a time, so no call here takes longer than a fraction of a millisecond.
2. A tenant is active while its cell lives: 2 s after the last demand in it, when a thousandth of that is left.
3. Demand above what the own limits let through is never folded in: the caller of `want` sees to that.
4. The level is never below an even part for everybody and never infinite. Below P it is the highest d/w plus an equal
   part of what is free.
5. Share buckets count in *virtual time*, the integral of the level, so a changed level settles every bucket at once.
6. A share bucket's burst grows with the level (`deep`) only while there is, or nearly is, more demand than capacity.
"""

from __future__ import annotations

from math import exp, log
from typing import Final

from policies.units import SECOND, Micros

__all__ = ["SLICE", "Cell", "Ratio", "Waterline"]

#: Decay per microsecond: 0.7 is left of an estimate after 100 ms.
DECAY: Final = -log(0.7) / 100_000
#: Most tenants folded in by one call.
SLICE: Final = 128
#: A cell's width, as a logarithm; what is in one cell is treated as one tenant of their mean ratio.
WIDTH: Final = 0.03
#: How long a cell outlives its last demand.
LIFE_US: Final = 2 * SECOND
#: How much of its share a tenant may save up while more is wanted than there is.
DEEP_US: Final = SECOND // 4
#: Most tenants noted as folded in, for whoever wants to know.
SEEN: Final = 128
#: That holds from this part of what is handed out on: at the very edge, demand is now above it and now below.
NEARLY: Final = 0.9


class Cell:
    """Tenants of nearly equal demand per weight; `mass` is their demand in units of the cell's own lower edge."""

    __slots__ = ("count", "index", "mass", "touched", "weight")

    def __init__(self, index: int) -> None:
        self.index = index
        self.count = 0
        self.weight = 0.0
        self.mass = 0.0
        self.touched: Micros = 0


class Ratio:
    """A tenant as the water level sees it: its weight, what it asked for since the last fold, and its cell."""

    __slots__ = ("asked", "cell", "mass", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        #: Request units wanted since the last fold, within the own limits.
        self.asked = 0.0
        self.cell: Cell | None = None
        self.mass = 0.0

    def leave(self) -> None:
        """Take this tenant's demand out of its cell."""
        if self.cell is not None:
            self.cell.count -= 1
            self.cell.weight -= self.weight
            self.cell.mass -= self.mass
            self.cell = None


class Waterline:
    """The level of one group of tenants, and the demand that it follows from.

    `level` is in request units per microsecond and unit of weight; `virtual(now)` its integral. `demand` is the total
    estimate in units per microsecond at the last solve, `contended` whether it exceeded what was handed out.
    """

    __slots__ = (
        "_cells", "_folded_us", "_light", "_origin_us", "contended", "deep", "demand", "fresh", "least", "level",
        "light", "light_before", "seen", "solved_us", "tenants", "virtual_base", "weight",
    )  # fmt: skip

    def __init__(self, level: float, now: Micros) -> None:
        self.level = level
        self.virtual_base = 0.0
        self.solved_us = now
        self.demand = 0.0
        #: Weight of all tenants there are, active or not, and their number.
        self.weight = 0.0
        self.tenants = 0
        #: Units taken since the last fold by tenants with much left in their share bucket, and before; the estimate.
        self.light = 0.0
        self.light_before = 0.0
        self._light = 0.0
        self.contended = False
        #: What 250 ms of the level are while more is wanted than there is, else 0: units per weight.
        self.deep = 0.0
        #: The level of the whole, where this is a part of it: without contention it is no lower here.
        self.least = 0.0
        #: Tenants with something asked and not folded in yet.
        self.fresh: list[Ratio] = []
        #: Some of those folded in, if somebody wants to know.
        self.seen: set[Ratio] | None = None
        self._cells: dict[int, Cell] = {}
        self._folded_us = now
        # Keeps the logarithms positive, so that int() rounds down; a share below e**-300 of a unit does not occur.
        self._origin_us = now - int(300 / DECAY)

    def virtual(self, now: Micros) -> float:
        """Return the virtual time: request units that one unit of weight was due so far."""
        return self.virtual_base + (now - self.solved_us) * self.level

    def join(self, weight: float) -> None:
        """Count a tenant in."""
        self.tenants += 1
        self.weight += weight

    def part(self, weight: float) -> None:
        """Count a tenant out; with the last one goes what rounding left of the weight."""
        self.tenants -= 1
        self.weight = self.weight - weight if self.tenants else 0.0

    def want(self, ratio: Ratio, cost: float, now: Micros) -> None:
        """Count `cost` units of demand. The hot path of `fairshare` does the same in line."""
        if not ratio.asked:
            if len(self.fresh) >= SLICE:
                self.fold(now)
            self.fresh.append(ratio)
        ratio.asked += cost

    def fold(self, now: Micros) -> None:
        """Bring what was asked since the last fold into the estimates, as if it had come evenly since then."""
        elapsed = now - self._folded_us
        # The integral of the decay over the elapsed time; it tends to DECAY for requests of this very instant.
        pulse = (1 - exp(-DECAY * elapsed)) / elapsed if elapsed > 0 else DECAY
        self._folded_us = max(now, self._folded_us)
        shift = DECAY * (self._folded_us - self._origin_us)
        self._light = self._light * (1.0 - pulse * max(0, elapsed)) + self.light * pulse
        self.light_before += self.light
        self.light = 0.0
        cells = self._cells
        for ratio in self.fresh:
            weight = ratio.weight
            rate = ratio.asked * pulse
            ratio.asked = 0.0
            cell = ratio.cell
            if cell is not None:
                cell.count -= 1
                cell.weight -= weight
                cell.mass -= ratio.mass
                rate += ratio.mass * exp(WIDTH * cell.index - shift)
            mark = log(rate / weight) + shift
            index = int(mark / WIDTH)
            cell = cells.get(index)
            if cell is None:
                cell = cells[index] = Cell(index)
            within = mark - index * WIDTH
            # e**within to 1e-6: the cell is narrow, and a third call of a logarithm is what a fold would cost most.
            ratio.mass = mass = weight * (1 + within + within * within / 2)
            ratio.cell = cell
            cell.count += 1
            cell.weight += weight
            cell.mass += mass
            cell.touched = now
        if self.seen is not None and len(self.seen) < SEEN:
            self.seen.update(self.fresh)
        self.fresh.clear()

    def wanted(self, ratio: Ratio) -> float:
        """Return the estimate of a tenant's demand as of the last fold, in units per microsecond."""
        if ratio.cell is None:
            return 0.0
        return ratio.mass * exp(WIDTH * ratio.cell.index - DECAY * (self._folded_us - self._origin_us))

    def light_wanted(self) -> float:
        """Return the estimate of what those with much left in their share bucket demand together."""
        return self._light

    def reweigh(self, ratio: Ratio, weight: float) -> None:
        """Change a tenant's weight: its demand stays what it is."""
        before = ratio.cell
        if before is None:
            ratio.weight = weight
            return
        mark = log(ratio.mass / weight) + WIDTH * before.index
        ratio.leave()
        ratio.weight = weight
        index = int(mark / WIDTH)
        ratio.mass = weight * exp(mark - index * WIDTH)
        ratio.cell = cell = self._cells.setdefault(index, Cell(index))
        cell.count += 1
        cell.weight += weight
        cell.mass += ratio.mass
        cell.touched = max(cell.touched, before.touched)

    def solve(self, handed_out: float, now: Micros) -> None:
        """Find the level at which `handed_out` units per microsecond are used; settles virtual time first."""
        self.virtual_base += max(now - self.solved_us, 0) * self.level
        self.solved_us = max(now, self.solved_us)
        self.fold(now)
        rows = self.rows(now)
        self.demand = self._light + sum(ratio * weight for ratio, weight in rows)
        self.contended = self.demand > handed_out
        even = handed_out / (self.weight or 1.0)
        if self.contended:
            self.level = max(even, _level(rows, self.demand, handed_out))
        else:
            highest = rows[0][0] if rows else 0.0
            self.level = max(even, self.least, highest + (handed_out - self.demand) / (self.weight or 1.0))
        self.deep = self.level * DEEP_US if self.demand > NEARLY * handed_out else 0.0

    def rows(self, now: Micros) -> list[tuple[float, float]]:
        """Return (demand per weight, weight) of each living cell, highest first; cells without tenants end here."""
        shift = DECAY * (self._folded_us - self._origin_us)
        rows = []
        for index in sorted(self._cells, reverse=True):
            cell = self._cells[index]
            if cell.count and now - cell.touched < LIFE_US:
                rows.append((cell.mass / cell.weight * exp(WIDTH * index - shift), cell.weight))
            else:
                del self._cells[index]
        return rows


def _level(rows: list[tuple[float, float]], demand: float, handed_out: float) -> float:
    """Water-fill rows of (demand per weight, weight), highest first, whose demand exceeds what is handed out."""
    below, above = demand, 0.0
    for ratio, weight in rows:
        if above and handed_out - below >= ratio * above:
            break
        below -= ratio * weight
        above += weight
    return (handed_out - below) / above if above else 0.0
