"""History as the rest of the house sees it: a meter to count with, a thread that writes, numbers that come back.

Rules
1. Nothing of it runs on the data plane but the meter. Everything else is one thread.
2. Every five seconds what was counted is written: kill -9 loses less than the last ten seconds.
3. Where it cannot be kept, that is told loudly, in the log and by /readyz, and the gateway serves on in every case.

`filed.py` keeps it in a file, `shared/keeper.py` in a store that several processes have.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from gateway.clock import Clock
from gateway.history.archive import Archive
from gateway.history.books import Counts
from gateway.history.meter import Meter
from gateway.history.numbers import Numbers
from policies.policy import PolicySet, Sized
from policies.request import key_name
from policies.units import SECOND

__all__ = ["DAILY_SECONDS", "FLUSH_SECONDS", "History", "TenantSlot", "day_of"]

_LOG = logging.getLogger("evenhand.history")

FLUSH_SECONDS = 5
_WAKE_SECONDS = 0.25
#: After midnight UTC: the last hour of the day is sealed half an hour later.
DAILY_SECONDS = 1810
_MAX_WAITING = 360

#: A slot's number, and what was counted of each tenant in it.
TenantSlot = tuple[int, Iterable[tuple[str, Counts]]]


class History(ABC):
    """One for a process. `policies` returns those in force; `apply` takes new numbers, from the writer's thread.

    `tenants_now` returns the slot under way by tenant, None if nothing is in it.
    """

    def __init__(
        self,
        max_keys: int,
        clock: Clock,
        policies: Callable[[], PolicySet],
        apply: Callable[[Mapping[str, Sized]], None],
    ) -> None:
        self.meter = Meter(max_keys)
        self.tenants_now: Callable[[], TenantSlot | None] = lambda: None
        #: Instants (epoch seconds) between which the last crash lost what was counted; (0, 0) if there was none.
        self.lost = (0, 0)
        self._max_keys = max_keys
        self._clock = clock
        self._policies = policies
        self._numbers = Numbers(policies, apply)
        self._inbox: deque[TenantSlot] = deque(maxlen=_MAX_WAITING)
        self._faults: dict[str, str] = {}
        self._failed = ""
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    # What others ask

    @property
    @abstractmethod
    def archive(self) -> Archive:
        """What is written, for whoever asks."""

    def offer(self, slot: TenantSlot) -> None:
        """Take a closed slot of tenants, from any thread."""
        self._inbox.append(slot)

    def recompute(self) -> None:
        """Size every key anew, soon; from any thread."""
        self._wanted.set()

    @property
    def sized(self) -> Mapping[str, Sized]:
        """The numbers in force, by name."""
        return self._numbers.sized

    def warnings(self) -> list[str]:
        """Return what an operator should know, one sentence each; from any thread."""
        found = list(self._faults.copy().values())
        if self._numbers.fault:
            found.append(self._numbers.fault)
        if self.meter.overflowed:
            found.append(f"history: {self.meter.overflowed} requests of keys above [store] max_keys were not counted")
        return found

    def starved(self) -> int:
        """Return how many sized keys are held back by their own limit day after day."""
        return self._numbers.starved

    # Its life

    @abstractmethod
    def open(self) -> Mapping[str, Sized]:
        """Open what it is kept in, whatever has become of that, and return the numbers that it holds."""

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._run, name="evenhand-history", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what is left and close; to be called when nothing is counted any more."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._numbers.stop()
        self._finish()

    @abstractmethod
    def turn(self, now: int) -> None:
        """Do what is due at `now` (epoch seconds): the thread's round, also for tests."""

    @abstractmethod
    def _finish(self) -> None:
        """Write what is left and close."""

    @abstractmethod
    def _undo(self) -> None:
        """Forget what a round that failed was about to write."""

    def _run(self) -> None:
        while not self._stopping.wait(0 if self._numbers.running else _WAKE_SECONDS):
            try:
                self.turn(self._clock.now() // SECOND)
            except Exception as error:  # noqa: BLE001 - a bug in here must not end the history for good
                if repr(error) != self._failed:  # one that stays is told once
                    _LOG.exception("history: a round failed")
                self._failed = repr(error)
                self._undo()
                self._numbers.stop()
                self._faults["round"] = "history: a round of the writer failed; the log says how"

    def _listed(self) -> Iterable[str]:
        for tenant in self._policies().tenants.values():
            yield key_name(tenant=tenant.id)
            yield from (key_name(tenant=tenant.id, credential=name) for name in tenant.credentials)

    def _fault(self, name: str, sentence: str) -> None:
        if self._faults.get(name) != sentence:
            _LOG.error("%s", sentence)
        self._faults[name] = sentence


def day_of(now: int) -> int:
    """Return the day that numbers are made for: it begins when the last hour of the one before is sealed."""
    return (now - DAILY_SECONDS) // 86_400
