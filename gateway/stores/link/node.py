"""One server as we see it: a connection, a circuit, and who waits while the first connection is being made.

Rules
1. One connection; pipelined, it carries more than one core of a Redis can answer. It is made by one attempt at a time.
2. A connection counts once the server has taken a write on it: a login that fails, a replica, a full memory, a server
   that is still loading are found out before the first call is (case 61).
3. There is no offline queue. While nothing has failed yet and a connection is being made, calls wait for it, as long as
   they may; known to be down, they are answered at once.
4. With the circuit closed and nobody asking, the probe is sent every half second, so that a loss is seen by itself.

           +-- lost, had held --------+            probe or new connection answers in time
           v                          |          +------------------------------+
    dialling --written--> ready ------+          v                              |
        |                   +--failures, silence--> open --after a pause--> half open
        +--failed---------------------------------^   ^----------failed---------+
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable

from gateway.stores.link.call import Call
from gateway.stores.link.circuit import Circuit
from gateway.stores.link.dial import Place, Terms, connect, probe_words
from gateway.stores.link.faults import DROPPING, STORE_WIDE, ErrorReply, StoreFault, of_reply
from gateway.stores.link.resp import encode
from gateway.stores.link.wire import MOST_OUTSTANDING, Step, Wire, once_read

__all__ = ["Node", "Owner"]

#: Seconds between probes while nobody asks, and how long one may take then.
BEAT = 0.5
BEAT_PATIENCE = 0.25
#: Seconds that a connection must have held for the next to be made without a pause.
HELD = 1.0

_ASKING = encode((b"ASKING",))
_NOBODY = Step(lambda _: None)
_FULL = StoreFault("down", "too many calls wait for the store")
_STOPPED = StoreFault("down", "the link to the store is closed")


class Owner:
    """What a node tells of itself; the link overrides what it wants to know."""

    def changed(self, node: Node) -> None:
        """Learn that `node.up` may have changed."""

    def redirected(self, node: Node, call: Call, reply: ErrorReply) -> bool:
        """Take a call that the node sends elsewhere, and return whether that is what the error means."""
        return False


class Node:
    """A server. `find` returns where it is now; `fault` is the last one while it is not `up`."""

    def __init__(self, owner: Owner, terms: Terms, find: Callable[[], Awaitable[Place]], probe: bytes) -> None:
        self._owner = owner
        self._terms = terms
        self._find = find
        self._name = probe
        self._probe = encode(probe_words(probe))
        self._loop = asyncio.get_running_loop()
        self._circuit = Circuit(terms.deadline, random.random)
        self._wire: Wire | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._attempt: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._waiting: deque[tuple[Call, bool]] = deque()
        self._probing = False
        self._sent = 0
        self._stopped = False
        self.fault = StoreFault("down", "the store has not been reached yet")

    @property
    def up(self) -> bool:
        """True if calls are sent, and answered as far as is known."""
        return not self._circuit.opened and self._wire is not None

    @property
    def opened(self) -> bool:
        """True if the server is known to be down."""
        return self._circuit.opened

    @property
    def wire(self) -> Wire | None:
        """The connection, None if there is none."""
        return self._wire

    @property
    def connections(self) -> int:
        """Sockets held now, one being made included."""
        return (self._wire is not None) + (self._dialling is not None)

    def start(self) -> None:
        """Begin to connect."""
        self._dial()
        self._beat = self._loop.call_later(BEAT, self._on_beat)

    def stop(self) -> None:
        """Close at once; whoever waits is answered."""
        self._stopped = True
        for timer in (self._attempt, self._beat):
            if timer is not None:
                timer.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
        if self._wire is not None:
            self._wire.drop(_STOPPED)
        self._fail_waiting(_STOPPED)

    def probe_with(self, name: bytes) -> None:
        """Probe with the record of that name from now on."""
        self._name = name
        self._probe = encode(probe_words(name))

    async def stopped(self) -> None:
        """Wait for an attempt to be over."""
        if self._dialling is not None:
            await asyncio.wait([self._dialling])

    def submit(self, call: Call, *, asking: bool = False) -> None:
        """Send a call, keep it until the first connection is there, or answer it at once."""
        wire = self._wire
        if self._circuit.opened or self._stopped:
            call.settle(StoreFault("down", f"the store is down: {self.fault.text}"))
        elif wire is None:
            if len(self._waiting) >= MOST_OUTSTANDING:
                call.settle(_FULL)
            else:
                self._waiting.append((call, asking))
        elif wire.full:
            call.settle(_FULL)
        else:
            self._send(wire, call, asking=asking)

    def timed_out(self) -> None:
        """Note a call that was given up."""
        self._note_failure(StoreFault("timeout", "the store did not answer in time"))

    # Calls

    def _send(self, wire: Wire, call: Call, *, asking: bool = False, full: bool = False) -> None:
        if asking:
            wire.send(_ASKING, _NOBODY)
        script = call.script
        if script is not None and script.sha not in wire.scripts:
            wire.scripts.add(script.sha)
            full = True  # as the first on this connection: those behind it will find it there
        self._sent += 1
        wire.send(call.command(full=full), _Reply(self, wire, call, asking=asking, full=full))

    def _answered(self, reply: _Reply, value: object) -> None:
        call = reply.call
        if not isinstance(value, ErrorReply):
            if not call.done:
                self._circuit.succeeded()
            call.settle(value)
            return
        if self._owner.redirected(self, call, value):
            return
        fault = of_reply(value)
        self._terms.tally.note(fault)
        if fault.kind == "noscript" and call.script is not None and not reply.full:
            if not call.done and not reply.wire.closed:
                self._send(reply.wire, call, asking=reply.asking, full=True)
            return
        call.settle(fault)
        if fault.kind in DROPPING:
            reply.wire.drop(fault)
        elif fault.kind in STORE_WIDE:
            self._note_failure(fault)
        else:
            self._circuit.succeeded()

    def _note_failure(self, fault: StoreFault) -> None:
        if self._circuit.failed(self._loop.time()):
            self._opened(fault)

    # The circuit

    def _opened(self, fault: StoreFault, took: float = 0.0) -> None:
        """Stop sending; try again after a pause. It took so many seconds to find out."""
        self._circuit.trip()
        self.fault = fault
        self._fail_waiting(fault)
        if not self._stopped:
            self._schedule(self._circuit.pause(took))
            self._owner.changed(self)

    def _schedule(self, pause: float) -> None:
        """Try again after a pause, or sooner where that was meant already."""
        at = self._loop.time() + pause
        if self._dialling is not None or (self._attempt is not None and self._attempt.when() <= at):
            return
        if self._attempt is not None:
            self._attempt.cancel()
        self._attempt = self._loop.call_at(at, self._try_again)

    def _try_again(self) -> None:
        self._attempt = None
        if self._wire is None:
            self._dial()
        else:
            self._ask_probe(self._wire, self._terms.deadline)

    def _on_beat(self) -> None:
        self._beat = self._loop.call_later(BEAT, self._on_beat)
        wire = self._wire
        if wire is None or self._circuit.opened:
            return
        if self._loop.time() - wire.born >= HELD:
            self._circuit.steady()
        if self._sent == 0:
            self._ask_probe(wire, max(self._terms.deadline, BEAT_PATIENCE))
        self._sent = 0

    def _ask_probe(self, wire: Wire, patience: float) -> None:
        """Send a write that harms nobody; what becomes of it opens or closes the circuit."""
        if self._probing:
            return
        self._probing = True
        slow = StoreFault("timeout", "the store did not answer in time")
        over = False

        def done(reply: object) -> None:
            nonlocal over
            if over:
                return
            over = True
            timer.cancel()
            self._probing = False
            if not wire.closed:
                self._probed(wire, reply)

        timer = self._loop.call_later(patience, once_read, self._loop, done, slow)

        wire.send(self._probe, Step(done))

    def _probed(self, wire: Wire, reply: object) -> None:
        fault = self._terms.wrong(reply)
        if fault is None:
            self._close()
            return
        self._terms.tally.note(fault)
        if fault.kind in DROPPING:
            wire.drop(fault)
        else:
            self._opened(fault)

    def _close(self) -> None:
        was = self._circuit.opened
        self._circuit.close()
        if was:
            self._owner.changed(self)

    # The connection

    def _dial(self) -> None:
        if self._dialling is None and not self._stopped:
            self._dialling = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        began = self._loop.time()
        try:
            made = await connect(self._find, self._terms, self._name, self._lost)
        finally:
            self._dialling = None
        if isinstance(made, StoreFault):
            self._terms.tally.note(made)
            self._opened(made, self._loop.time() - began)
            return
        if made.wire.closed:
            self._opened(StoreFault("reset", "the store closed the connection once it was made"))
            return
        self._wire = made.wire
        if made.took > self._terms.deadline and self._circuit.opened:
            self._schedule(self._circuit.pause())  # it is there, and as slow as before
            return
        self._circuit.close()
        self._owner.changed(self)
        while self._waiting and not made.wire.closed:
            call, asking = self._waiting.popleft()
            if not call.done:
                self._send(made.wire, call, asking=asking)

    def _lost(self, wire: Wire, fault: StoreFault) -> None:
        if wire is not self._wire:
            return  # one that never counted; whoever makes it knows
        self._wire = None
        if self._stopped:
            return
        self._terms.tally.note(fault)
        self.fault = fault
        hung = self._terms.stall if fault.kind == "timeout" else 0.0
        if not self._circuit.opened and not hung and self._loop.time() - wire.born >= HELD:
            self._circuit.steady()
            self._dial()
        else:
            self._opened(fault, hung)

    def _fail_waiting(self, fault: StoreFault) -> None:
        while self._waiting:
            self._waiting.popleft()[0].settle(fault)


class _Reply:
    """Takes the reply of a call on one connection."""

    __slots__ = ("asking", "call", "full", "node", "wire")

    def __init__(self, node: Node, wire: Wire, call: Call, *, asking: bool, full: bool) -> None:
        self.node = node
        self.wire = wire
        self.call = call
        self.asking = asking
        self.full = full

    def replied(self, reply: object) -> None:
        """Hand it to the call, after what it says of the server."""
        self.node._answered(self, reply)  # noqa: SLF001 - one class in two objects

    def lost(self, fault: StoreFault) -> None:
        """Whether it has run is not known: the call fails, and is not sent again."""
        self.call.settle(fault)
