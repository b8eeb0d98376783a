"""The numbers in force, and how they are replaced: sized beside the data plane, taken over in small pieces.

Rules
1. Up to `_FEW` keys are sized in this process, in slices with pauses; more of them in another one (`recount.py`), for
   the interpreter that sizes thousands does little else. Where that fails twice, they are sized here after all.
2. Even so each number is read here and the ones before are let go, and both happen a few at a time: what takes
   milliseconds in one piece is milliseconds in which no request is decided.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from gateway.history.packing import readable
from gateway.history.provenance import date_of, read
from gateway.history.recount import Opener, Recount, RecountError
from gateway.history.sizer import Basis, Pasts, Row, resize
from policies.policy import PolicySet, Sized
from policies.sizing import effective_key, effective_tenant

__all__ = ["Numbers"]

_LOG = logging.getLogger("evenhand.history")

_FEW = 500
_SLICE_SECONDS = 0.2
_PAUSE_SECONDS = 0.002
_BREATH = 4
#: Half a millisecond of reading.
_READ_AT_ONCE = 20
_BATCH = 100
#: After a failure, until it is tried again.
_RETRY_SECONDS = 30.0


class Numbers:
    """Those of one process. `apply` takes new ones, from the thread that calls."""

    def __init__(self, policies: Callable[[], PolicySet], apply: Callable[[Mapping[str, Sized]], None]) -> None:
        self._policies = policies
        self._apply = apply
        self._job: Recount | Iterator[Row] | None = None
        self._fresh: dict[str, Sized] = {}
        self._hungry = self._flagged = self._failed = 0
        self._not_before = 0.0
        #: Whether what was begun was not finished.
        self.again = False
        #: The numbers in force, by name.
        self.sized: Mapping[str, Sized] = {}
        #: How many sized keys are held back by their own limit day after day.
        self.starved = 0
        self.fault = ""

    @property
    def running(self) -> bool:
        """True while keys are being sized."""
        return self._job is not None

    @property
    def ready(self) -> bool:
        """False for a while after a failure."""
        return self._job is None and time.monotonic() >= self._not_before

    def begin(self, pasts: Pasts, held: int, opener: Opener | None, today: int) -> None:
        """Begin to size `held` keys, here from `pasts`, or from what `opener` opens elsewhere."""
        basis = Basis.of(self._policies())
        self.again = False
        self._fresh, self._hungry, self._flagged = {}, 0, 0
        if opener is None or held <= _FEW or self._failed > 1:
            self._job = resize(pasts, basis, today)
            return
        try:
            self._job = Recount(opener, basis, today)
        except RecountError as error:
            self._fail(error)

    def step(self, keep: Callable[[list[Row]], None]) -> bool:
        """Size some keys, handing them to `keep`; return whether those were the last."""
        until = time.monotonic() + _SLICE_SECONDS
        while time.monotonic() < until:
            try:
                rows = self._some()
            except RecountError as error:
                self._fail(error)
                return False
            if rows is None:
                self._end()
                return True
            for number, row in enumerate(rows, 1):
                self._take(row)
                if number % _BREATH == 0:
                    time.sleep(_PAUSE_SECONDS)
            keep(rows)
        return False

    def _some(self) -> list[Row] | None:
        job = self._job
        if isinstance(job, Recount):
            return job.rows(_SLICE_SECONDS)
        return None if job is None else list(islice(job, _BREATH)) or None

    def _take(self, row: Row) -> None:
        sized = self._fresh[row.identity.name] = read(row.text)
        self._flagged += sized.flagged
        if sized.starved:
            find = effective_key if row.identity.credential else effective_tenant
            found = find(self._policies(), row.identity.principal())
            own = {"configured", "anonymous", "rejected", "preflight"}
            self._hungry += found is not None and found.provenance not in own

    def _fail(self, error: RecountError) -> None:
        self._failed += 1
        self.fault = f"history: {error}; the numbers of before hold, and it is tried again"
        _LOG.error("%s", self.fault)
        self.put_off()

    def _end(self) -> None:
        self.stop()
        self._failed, self.fault = 0, ""
        self.starved = self._hungry
        self.become(self._fresh)

    def told(self, day: int) -> None:
        """Log what an operator should look at, of the numbers of a day."""
        if self._flagged or self.starved:
            _LOG.warning(
                "sizing of %s: %d keys more than doubled in 30 days, %d are starved; /api/limits lists them",
                *(date_of(day), self._flagged, self.starved),
            )

    def become(self, sized: Mapping[str, Sized]) -> None:
        """Put other numbers in force, and let go of the ones before."""
        gone = list(self.sized.values())
        self.sized = sized
        self._fresh = {}
        self._apply(sized)
        release(gone)

    def put_off(self) -> None:
        """Stop, and be ready to do it again after a while."""
        self._not_before = time.monotonic() + _RETRY_SECONDS
        self.again = True
        self.stop()

    def stop(self) -> None:
        """End what is under way; what is written by then stands."""
        job, self._job = self._job, None
        if isinstance(job, Recount):
            job.close()


def release(gone: list[Sized]) -> None:
    """Let go of numbers a few at a time."""
    while gone:
        del gone[-_BATCH:]
        if gone:
            time.sleep(_PAUSE_SECONDS)


def breathing(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Sized]]:
    """Yield numbers by name as they are read, leaving the interpreter to others in between."""
    for number, row in enumerate(readable("numbers", rows, lambda row: (row[0], read(row[1]))), 1):
        yield row
        if number % _READ_AT_ONCE == 0:
            time.sleep(_PAUSE_SECONDS / 2)
