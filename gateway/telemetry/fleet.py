"""The fleet: what all instances on one store count, kept as if one process had counted it.

    own counts --Tap--> shown here | waiting --entry--> the store's stream --> every other instance, shown there

An instance is what has one admin listener: a process, or a parent and its workers (which come by pipes, `frames.py`,
so that an instance knows all of itself whatever becomes of the store). Between instances there is one transport, a
stream in the store, because that is what they share already.

Rules
1. Twice a second each instance adds an entry: what it counted since its last one, and its gauges. Whoever reads adds
   each entry once: they are numbered, and one that may or may not have been written is sent again as it was.
2. Ratios are of sums, never means of ratios: what is shared are counts.
3. An instance unheard of for `GONE` is out of gauges and of the list; what it counted stays counted.
4. Without the store the own counts go on being shown, and `local` says that they are alone. What was counted meanwhile
   reaches the others when the store is back.
5. An entry counts as a whole or, where it makes no sense, not at all; the log says so once.
6. One thread, "evenhand-fleet", writes `shown`, and asks the store; a store that does not answer holds up nothing else.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import orjson

from gateway.config.sections import StoreSection
from gateway.errors import GatewayError
from gateway.stores.calls import Spell
from gateway.stores.stream import Entry, Stream
from gateway.telemetry.codebook import Tally
from gateway.telemetry.frames import MOMENTARY, asked
from gateway.telemetry.recorder import Telemetry
from gateway.telemetry.tap import Delta, Tap, fold, pour
from policies.request import Class
from policies.units import SECOND, Micros

__all__ = ["EVERY_SECONDS", "Exchange", "Fleet", "open_fleet"]

_LOG = logging.getLogger("evenhand.fleet")

EVERY_SECONDS = 0.5
GONE: Micros = 4 * SECOND
#: How long numbers of entries are remembered of an instance that is gone, lest an old entry be counted anew.
_REMEMBERED: Micros = 600 * SECOND
#: Tenants in one entry; the others are in the next one.
_TENANTS = 5_000
#: Octets of an entry, unpacked; more of them nobody of us writes.
_LARGEST = 64 * 1024 * 1024
#: Rounds without the store after it has failed: 1 s, and twice as many each time up to 5 s.
_REST = (2, 4, 10)


class Exchange(Protocol):
    """What entries go through. Raises GatewayError when the store does not answer."""

    def trade(self, instance: str, number: int, body: bytes) -> list[Entry]:
        """Add an entry and return those that were added since the last time, by anybody."""
        ...


class _Instance(NamedTuple):
    number: int
    heard_us: Micros
    gauges: Mapping[str, Any]


class Fleet:
    """The fleet as one instance knows it. `name` is this one's; without an `exchange` it is alone."""

    def __init__(self, telemetry: Telemetry, exchange: Exchange | None = None, name: str = "") -> None:
        self.name = name or f"{socket.gethostname()[:64]}-{secrets.token_hex(4)}"
        self._telemetry = telemetry
        self._exchange = exchange
        self._tap = Tap(telemetry.tenants)
        self._waiting: dict[str, dict[tuple[int, int, str], int]] = {}
        self._sending: Entry | None = None
        self._sent = 0
        self._others: dict[str, _Instance] = {}
        self._failures = 0
        self._resting = 0
        self._alone = Spell(_LOG)
        self._puzzled = False
        self.fault = "" if exchange is None else "it was not asked yet"
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def local(self) -> bool:
        """True while the figures are of this instance alone, though there may be others."""
        return bool(self.fault)

    @property
    def scope(self) -> str:
        """What the figures are of: `fleet`, or `local` while nobody else can be heard."""
        return "local" if self.local else "fleet"

    def others(self) -> dict[str, Mapping[str, Any]]:
        """Return the gauges of every other instance that lives, by name; from any thread."""
        now = self._telemetry.now()
        return {name: one.gauges for name, one in self._others.copy().items() if now - one.heard_us < GONE}

    def instances(self) -> list[dict[str, Any]]:
        """Return every instance that lives, this one first."""
        found: list[dict[str, Any]] = [{"instance": self.name, "self": True, **self._gauges()}]
        found += [{"instance": name, "self": False, **gauges} for name, gauges in sorted(self.others().items())]
        return found

    def warnings(self) -> list[str]:
        """Return what an operator should know of now."""
        if not self.local or self._failures == 0:
            return []
        return [f"figures are of this instance alone, since the store does not tell of others: {self.fault}"]

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="evenhand-fleet", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tell the last of it, if the store answers, and end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def turn(self, now: Micros) -> None:
        """Do one round: the thread's, also for tests."""
        shown = self._telemetry.shown
        delta = self._tap.take(now)
        shown.ledger.turn(now)
        pour(delta, shown.ledger, now)
        if self._exchange is None:
            return
        fold(self._waiting, delta)
        if self._resting:
            self._resting -= 1
            return
        try:
            told = self._exchange.trade(*self._entry())
        except GatewayError as error:
            self._failed(str(error))
            return
        self._sending = None
        self.fault, self._failures = "", 0
        self._alone.end("the store tells of others again: figures are of the whole fleet")
        for one in told:
            self._hear(*one, now)
        for name in [name for name, one in self._others.items() if now - one.heard_us > _REMEMBERED]:
            del self._others[name]

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_SECONDS):
            self._guarded()
        # The last of it; a store that is known to be gone is not waited for once more.
        self._resting = int(self.local and self._failures > 0)
        self._guarded()

    def _guarded(self) -> None:
        try:
            self.turn(self._telemetry.now())
        except Exception:  # noqa: BLE001 - a bug in here must not end the view for good
            _LOG.exception("a round of the fleet failed")

    def _failed(self, fault: str) -> None:
        self._alone.begin(f"figures are of this instance alone, as [store] url tells of no others: {fault}")
        self.fault = fault
        self._resting = _REST[min(self._failures, len(_REST) - 1)]
        self._failures += 1

    def _entry(self) -> Entry:
        """Return the entry that is not known to have been written, or else a new one."""
        if self._sending is None:
            counts: Delta = {}
            for tenant in list(self._waiting)[:_TENANTS]:
                counts[tenant] = [(*what, count) for what, count in self._waiting.pop(tenant).items()]
            self._sent += 1
            body = zlib.compress(orjson.dumps({"counts": counts, "gauges": self._gauges()}), 1)
            self._sending = (self.name, self._sent, body)
        return self._sending

    def _hear(self, instance: str, number: int, body: bytes, now: Micros) -> None:
        known = self._others.get(instance)
        if instance == self.name or (known is not None and number <= known.number):
            return
        try:
            counts, gauges = _read(body)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, zlib.error) as error:
            if not self._puzzled:
                self._puzzled = True
                _LOG.warning("what instance %r tells makes no sense (%s); is it of another version?", instance, error)
            return
        self._others[instance] = _Instance(number, now, gauges)
        pour(counts, self._telemetry.shown.ledger, now)

    def _gauges(self) -> dict[str, Any]:
        gauges = self._telemetry.gauges
        found = {name: asked(gauges, name) for name in (*MOMENTARY, "workers") if name != "jwks_age_seconds"}
        return {name: value for name, value in found.items() if value is not None}


def _read(body: bytes) -> tuple[Delta, dict[str, Any]]:
    """Return counts and gauges of an entry; whatever it is, it raises what `_hear` expects, before anything counts."""
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(body, _LARGEST)
    if not unpacking.eof:
        raise ValueError("it does not end")
    said = orjson.loads(text)
    counts: Delta = {}
    for tenant, rows in said["counts"].items():
        counts[tenant] = [(Tally(tally), Class(cls), str(limit), int(count)) for tally, cls, limit, count in rows]
    return counts, dict(said["gauges"].items())


def open_fleet(telemetry: Telemetry, section: StoreSection) -> Fleet:
    """Return the fleet on a shared store; telemetry shows it from now on."""
    fleet = Fleet(telemetry, Stream(section))
    telemetry.scope = lambda: fleet.scope
    telemetry.instances = fleet.instances
    telemetry.gauges.instances = lambda: 1 + len(fleet.others())
    return fleet
