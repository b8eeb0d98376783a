"""The connections to one upstream, and the line of calls that wait for one.

Rules
1. A slot of `max_connections` belongs to an attempt until it has become a connection, and to the connection until the
   loop says its socket is closed. Both are kept in a set; there is no counter that could leak.
2. A seat of `concurrency` belongs to a call from when it leaves the line until it ends.
3. Handing over is one synchronous step: what comes free goes to a running call or to the idle, and no task has to wake
   up for it. So a caller that leaves at that moment takes nothing with it.
4. Of one tenant, first come, first served; between tenants, whoever has the fewest seats by weight (`seats`). A
   connection that comes free is given first to the oldest call that is still connecting, which has its seat already;
   the connection it was making serves whoever is next.
5. One timer for all deadlines, running while there is a connection or somebody in the line: a deadline is kept within
   `TICK`, and a call costs no timer of its own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from dataclasses import dataclass, replace

from gateway.proxy.addresses import Addresses, Peer
from gateway.proxy.call import Account, Call, Line
from gateway.proxy.connection import Connection
from gateway.proxy.dial import Dialler, NotConnectedError
from gateway.proxy.failure import Failure, FailureKind
from gateway.proxy.retry import RetryBudget
from gateway.proxy.seats import Seats
from policies.charge import Memo, ShareCharge

__all__ = ["TICK", "Attempt", "Limits", "Pool"]

#: Seconds between two looks at the deadlines.
TICK = 0.05

_TOO_MANY = Failure(FailureKind.CONNECTIONS, "no connection to the upstream came free in time")
_OVER_SHARE = replace(_TOO_MANY, over=True)
_SHUT_DOWN = Failure(FailureKind.CLOSED, "the gateway is stopping or was reconfigured, and waits no longer")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a pool may do; times in seconds, infinite where there is none."""

    connections: int
    seats: int
    connect_timeout: float
    idle_timeout: float
    keepalive_timeout: float
    retry_budget: float


class Attempt:
    """A connection in the making. `call` is who it is for, None once nobody waits for it in particular."""

    __slots__ = ("call", "task")

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call
        self.task: asyncio.Task[None] | None = None


class Pool(Line):
    """Keeps the rules above. Everything here runs on one loop."""

    def __init__(
        self, limits: Limits, addresses: Addresses, context: ssl.SSLContext | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._limits = limits
        self._loop = loop
        self._time = loop.time
        self._keepalive = limits.keepalive_timeout
        self._dialler = Dialler(addresses, self._connection, context, loop)
        self._budget = RetryBudget(limits.retry_budget, limits.connections, loop.time())
        self._line: OrderedDict[Call, None] = OrderedDict()
        self._connecting: OrderedDict[Call, Attempt] = OrderedDict()
        self._attempts: set[Attempt] = set()
        self._seats = Seats(limits.seats)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty = asyncio.Event()
        self.addresses = addresses
        self.connections: set[Connection] = set()
        self.idle_timeout = limits.idle_timeout
        self.repeated = 0

    @property
    def connecting(self) -> int:
        """Connections in the making."""
        return len(self._attempts)

    @property
    def waiting(self) -> int:
        """Calls in the line."""
        return len(self._line)

    # What calls ask

    def submit(self, call: Call, share: ShareCharge | None, memo: Memo | None = None) -> None:
        """Carry `call` as soon as there is a connection and a seat of its tenant's, whose account `memo` may know."""
        self._budget.deposit()
        now = self._time()
        account = call.account = self._seats.account(share, now, memo)
        if self._closed:
            self._loop.call_soon(_end, call, _SHUT_DOWN)
        elif self._line or not self._start(call, account, now):
            call.wait_until = min(now + self._limits.connect_timeout, call.total_at)
            self._line[call] = None
            self._seats.wait(account, call)
            self._wake()
            if len(self._line) > 1:
                self._pump()

    def withdraw(self, call: Call) -> None:
        """Forget `call`, which no connection carries."""
        if call in self._line:
            self._leave(call)
            self._pump()
            return
        attempt = self._connecting.pop(call, None)
        if attempt is not None:
            attempt.call = None
            if attempt.task is not None:
                attempt.task.cancel()
            self._seats.give(call.account)
            self._pump()

    # What connections tell

    def released(self, connection: Connection, call: Call) -> None:
        """Take back a connection whose call ended cleanly: it may carry another."""
        connection.peer.load -= 1
        self._seats.give(call.account)
        self._offer(connection)

    def ended(self, connection: Connection, call: Call) -> None:
        """Free the seat of a call that ended its connection; the slot is free after `lost`."""
        connection.peer.load -= 1
        self._seats.give(call.account)

    def repeat(self, connection: Connection, call: Call) -> bool:
        """Take `call`, of which nothing was answered, to a new connection; false if the retry budget is spent."""
        if not self._budget.withdraw(self._time()):
            return False
        self.repeated += 1
        connection.peer.load -= 1
        self.connections.discard(connection)
        call.retried = True
        call.carrier = None
        self._attempt(call, None)
        return True

    def lost(self, connection: Connection) -> None:
        """Free the slot of a closed socket."""
        self.connections.discard(connection)
        if connection in connection.peer.idle:
            connection.peer.idle.remove(connection)
        self._pump()
        self._settle()

    # Handing over

    def _start(self, call: Call, account: Account, now: float) -> bool:
        """Give `call` a connection or begin to make one; false if it must wait for either, or for a seat."""
        if not self._seats.take(account, now):
            return False
        self.addresses.refresh(now)
        peer = self.addresses.choose(now)
        connection = self._idle(peer, call) if peer is not None else None
        if connection is None and len(self._attempts) + len(self.connections) >= self._limits.connections:
            connection = self._any_idle(call)
            if connection is None:
                self._seats.give(account)
                return False
        if connection is None:
            self._attempt(call, peer)
        else:
            self._hand(connection, call, now)
        return True

    def _idle(self, peer: Peer, call: Call) -> Connection | None:
        """Take the connection of `peer` that was used last, so that the others may expire."""
        while peer.idle:
            connection = peer.idle.pop()
            if not connection.closing and (call.idempotent or not connection.readable()):
                return connection
            connection.close()
        return None

    def _any_idle(self, call: Call) -> Connection | None:
        for peer in self.addresses.peers:
            connection = self._idle(peer, call)
            if connection is not None:
                return connection
        return None

    def _hand(self, connection: Connection, call: Call, now: float) -> None:
        connection.peer.load += 1
        connection.carry(call, now)

    def _offer(self, connection: Connection) -> None:
        """Find work for a connection that has none."""
        if self._closed or connection.peer.retired:
            connection.close()
            return
        call = next((call for call in self._connecting if not call.retried), None) if self._connecting else None
        if call is not None:
            self._connecting.pop(call).call = None
            self._hand(connection, call, self._time())
        else:
            connection.deadline = self._time() + self._keepalive
            connection.peer.idle.append(connection)
        if self._line:
            self._pump()

    def _pump(self) -> None:
        """Serve the line as far as there are seats and slots."""
        while self._line:
            now = self._time()
            account = self._seats.first(now)
            if account is None:
                return
            call = account.first()
            # Out of its tenant's line first: what starts may call back, and come here again.
            self._seats.leave(account, call)
            if not self._start(call, account, now):
                self._seats.back(account, call)
                return
            self._line.pop(call, None)

    def _leave(self, call: Call) -> None:
        del self._line[call]
        self._seats.leave(call.account, call)

    # Connecting

    def _attempt(self, call: Call, first: Peer | None) -> None:
        attempt = Attempt(call)
        self._attempts.add(attempt)
        self._connecting[call] = attempt
        until = min(self._time() + self._limits.connect_timeout, call.total_at)
        attempt.task = self._loop.create_task(self._connect(attempt, until, first))
        attempt.task.add_done_callback(lambda _: self._attempt_over(attempt))
        self._wake()

    async def _connect(self, attempt: Attempt, until: float, first: Peer | None) -> None:
        try:
            connection = await self._dialler.connect(until, first)
        except NotConnectedError as error:
            self._not_connected(attempt, error.failure)
        else:
            self._connected(attempt, connection)

    def _connection(self, peer: Peer) -> Connection:
        return Connection(self, peer, self._loop)

    def _connected(self, attempt: Attempt, connection: Connection) -> None:
        self._attempts.discard(attempt)
        if connection.closing:
            self._not_connected(attempt, Failure(FailureKind.RESET, "the upstream closed the connection at once"))
            return
        self.connections.add(connection)
        self._wake()
        call, attempt.call = attempt.call, None
        if call is None:
            self._offer(connection)
        else:
            del self._connecting[call]
            self._hand(connection, call, self._time())

    def _not_connected(self, attempt: Attempt, failure: Failure) -> None:
        self._attempts.discard(attempt)
        call, attempt.call = attempt.call, None
        if call is not None:
            del self._connecting[call]
            self._seats.give(call.account)
            _end(call, failure)
        self._pump()

    def _attempt_over(self, attempt: Attempt) -> None:
        """Free the slot of an attempt that ended in no connection; a cancelled one has kept it till now."""
        self._attempts.discard(attempt)
        if attempt.call is not None:
            self._not_connected(attempt, Failure(FailureKind.REFUSED, "no connection to the upstream"))
        self._pump()
        self._settle()

    # Time

    def _wake(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(TICK, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._time()
        for connection in [each for each in self.connections if each.deadline <= now]:
            connection.expire(now)
        while self._line:
            call = next(iter(self._line))
            if call.wait_until > now:
                break
            within = self._seats.within(call.account)
            self._leave(call)
            _end(call, _TOO_MANY if within else _OVER_SHARE)
        if self.connections or self._line:
            self._wake()

    # The end

    def close(self) -> None:
        """Take no new calls, close what is idle; what runs or waits comes to its own end."""
        self._closed = True
        self.addresses.close()
        for connection in list(self.connections):
            if connection.call is None:
                connection.close()
        self._settle()

    def abort(self) -> None:
        """End everything now."""
        self.close()
        while self._line:
            call = next(iter(self._line))
            self._leave(call)
            _end(call, _SHUT_DOWN)
        for call in list(self._connecting):
            self.withdraw(call)
            _end(call, _SHUT_DOWN)
        for attempt in self._attempts:
            if attempt.task is not None:
                attempt.task.cancel()
        for connection in list(self.connections):
            connection.fail(_SHUT_DOWN.kind, _SHUT_DOWN.detail)

    async def wait_closed(self) -> None:
        """Wait until the last socket is closed."""
        await self._empty.wait()

    def _settle(self) -> None:
        if self._closed and not (self.connections or self._attempts or self._line):
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self.addresses.close()
            self._empty.set()


def _end(call: Call, failure: Failure) -> None:
    if not call.over:
        call.close().on_failed(failure)
