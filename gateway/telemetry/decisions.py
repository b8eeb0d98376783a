"""The decision log: which requests get a line.

Rules
1. What was not served is logged in full up to ten times a second per (tenant, limit), then counted in one line a
   second; so are refusals in shadow. Served requests are sampled. The counts of `tenants.py` are exact whatever is
   logged.
2. A line is made on the data plane's thread, only for what is logged, and written by another (`sink.py`).
3. Sampling is random, not every n-th: callers that take turns would see the same one logged each time. What is drawn is
   the gap to the next one, which costs the others nothing.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from math import log, log1p
from pathlib import Path
from typing import Final, Literal

from gateway.ports import Decision
from gateway.telemetry.lines import FORMATS, Logged, clip, event_line, what_of
from gateway.telemetry.sink import Sink
from policies.policy import Mode, PolicySet
from policies.units import SECOND, Micros
from policies.verdict import Outcome

__all__ = ["IN_FULL", "DecisionLog"]

#: Lines in full per second, tenant and limit.
IN_FULL: Final = 10
#: Seconds of counted lines, and events, that wait for a slow reader.
_MAX_WAITING: Final = 60

#: A gap that nobody sees the end of.
_FOREVER: Final = 1 << 60
_SERVED: Final = Outcome.SERVED

#: (tenant, outcome, limit, mode)
_Sort = tuple[str, Outcome, str | None, Mode]


class _Count:
    """How many of one sort came."""

    __slots__ = ("limit", "mode", "number", "outcome", "tenant")

    def __init__(self, tenant: str, outcome: Outcome, limit: str | None, mode: Mode) -> None:
        self.tenant = tenant
        self.outcome = outcome
        self.limit = limit
        self.mode = mode
        self.number = 0


class _Second:
    """What came in one second. `last` is the sort that came last: in a flood it comes next as well."""

    __slots__ = ("counts", "last", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.counts: dict[_Sort, _Count] = {}
        self.last: _Count | None = None

    def count(self, tenant: str, outcome: Outcome, limit: str | None, mode: Mode) -> int:
        """Count one, and return how many of its sort there are now."""
        found = self.last
        if (
            found is None
            or found.tenant is not tenant
            or found.limit is not limit
            or found.outcome is not outcome
            or found.mode is not mode
        ):
            sort = (tenant, outcome, limit, mode)
            found = self.counts.get(sort)
            if found is None:
                found = self.counts[sort] = _Count(tenant, outcome, limit, mode)
            self.last = found
        found.number += 1
        return found.number

    def take(self) -> list[_Count]:
        """Return the counts, once."""
        taken, self.counts, self.last = list(self.counts.values()), {}, None
        return taken


class DecisionLog:
    """One log, in one format. `sample` is the part of served requests that is logged."""

    def __init__(
        self,
        target: Path | Literal["stderr"],
        form: str,
        sample: float,
        policies: PolicySet,
        now: Callable[[], Micros],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._draw = draw
        self.sample = sample
        #: Told of every request that gets a line, on the data plane.
        self.exported: Callable[[Logged], None] | None = None
        self.policies = policies
        self._form = FORMATS[form]
        self._events_fit = form == "json"
        self._now = now
        self._second = _Second(0)
        self._finished: deque[_Second] = deque(maxlen=_MAX_WAITING)
        self._events: deque[bytes] = deque(maxlen=_MAX_WAITING)
        self._told_dropped = 0
        self.sink = Sink(target if isinstance(target, Path) else None, self._more)

    @property
    def sample(self) -> float:
        """The part of served requests that is logged."""
        return self._sample

    @sample.setter
    def sample(self, sample: float) -> None:
        self._sample = sample
        self._left = self._gap()

    def _gap(self) -> int:
        """Draw how many served requests get no line before the next one does: as many as if each had a draw."""
        if self._sample >= 1.0:
            return 0
        if self._sample <= 0.0:
            return _FOREVER
        return int(min(_FOREVER, log(1.0 - self._draw()) / log1p(-self._sample)))

    def served(self, decision: Decision, now: Micros) -> None:
        """Log a sample of what was served."""
        if self._left > 0:
            self._left -= 1
            return
        self._left = self._gap()
        if self._sample > 0.0:
            self._put(decision, now, Mode.ENFORCE, self._sample)

    def refused(self, decision: Decision, now: Micros, mode: Mode = Mode.ENFORCE) -> None:
        """Log what was not served, or would not have been."""
        second = self._second
        if now // SECOND != second.number:
            self._finished.append(second)
            second = self._second = _Second(now // SECOND)
        count = second.count(decision.principal.tenant, decision.outcome or _SERVED, what_of(decision), mode)
        if count <= IN_FULL:
            self._put(decision, now, mode, 1.0)

    def event(self, name: str, now: Micros, members: Mapping[str, object]) -> None:
        """Log something that is not one request; from any thread."""
        if self._events_fit:
            self._events.append(event_line(name, now, members))

    def _put(self, decision: Decision, now: Micros, mode: Mode, sample: float) -> None:
        routes = self.policies.routes
        route = routes[decision.route].name if 0 <= decision.route < len(routes) else None
        logged = Logged(decision, now, mode, sample, route)
        self.sink.put(self._form(logged))
        if self.exported is not None:
            self.exported(logged)

    def _more(self) -> Iterator[bytes]:
        """Yield the lines that the writing thread makes itself."""
        now = self._now()
        while self._finished:
            yield from self._counted(self._finished.popleft())
        second = self._second
        # Nobody came after it, so nobody closed it. A second later nobody adds to it any more.
        if second.number < now // SECOND - 1 and second.counts:
            yield from self._counted(second)
        while self._events:
            yield self._events.popleft()
        if self._events_fit and self.sink.dropped > self._told_dropped:
            lost, self._told_dropped = self.sink.dropped - self._told_dropped, self.sink.dropped
            yield event_line("dropped", now, {"count": lost})

    def _counted(self, second: _Second) -> Iterator[bytes]:
        for one in second.take():
            if one.number > IN_FULL and self._events_fit:
                members = {
                    "tenant": clip(one.tenant, 128),
                    "outcome": one.outcome.value,
                    "limit": one.limit,
                    "mode": one.mode.value,
                    "count": one.number,
                    "omitted": one.number - IN_FULL,
                }
                yield event_line("counted", second.number * SECOND, members)
