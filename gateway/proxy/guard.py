"""The wire, guarded: the deadlines, the order of answers and the closing of an edge server, on top of `framing`.

What a request becomes is a subclass's `Turn`, one for each head. One turn is under way at a time.

    received --> queue --begin--> under way --finished--> the next one, or rest, or LINGER --> closed

Rules
1. The head has `header_timeout`, counted from its first octet (a new connection's from its start); each further 16 KiB
   of a body, or its end, `body_timeout`, which stands still while we do not read; an idle connection
   `keepalive_timeout`. A request under way has no deadline here, the upstream's are; but a caller that takes nothing of
   its answer for `STALL_US` is gone.
2. When we close, our sending side closes first, and what still arrives is discarded for at most 2 s: an answer is not
   lost to a reset. Whatever is not taken or acknowledged by then is cut.
3. Every fault is answered with a problem and counted, behind the answers still owed. A socket above
   `max_connections_per_address`, or one too many of all (`crowd`), is closed unanswered and counted.
4. Half a close is no goodbye: a caller that closes its sending side still gets its answers (`farewell`).
5. Answers leave in the order of their requests. Reading pauses while `AHEAD` requests wait, while what waits of bodies
   is more than `HELD`, and, between requests, while the caller does not take its answers: so does answering.
6. A caller that leaves is noticed although nothing is read from it: a reset within a second.
7. Whoever was refused last is heard behind those who were not (`rear`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from gateway.ports import Rejection
from gateway.proxy.ends import close_by_reset, hung_up
from gateway.proxy.farewell import LOOK_US, Parting
from gateway.proxy.framing import BODY, HEAD, IDLE, LINGER, OPAQUE, WORK
from gateway.proxy.turn import Limits, Post, Turn
from policies.units import SECOND, Micros

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

__all__ = ["AHEAD", "HELD", "LAST_CALL_US", "LINGER_US", "STALL_US", "Guard", "Limits", "Post", "Turn"]

#: Requests read ahead of the one being answered.
AHEAD: Final = 16
#: Octets of request bodies that wait on one connection.
HELD: Final = 64 * 1024
#: How long an answered caller may still send before the connection is cut.
LINGER_US: Final = 2 * SECOND
#: How long an idle connection stays open once the server stops: for a request that is already on its way.
LAST_CALL_US: Final = SECOND // 2
#: How long a caller may take nothing of an answer that waits for it (nginx's send_timeout).
STALL_US: Final = 60 * SECOND

_SLOW_HEAD: Final = Rejection(408, "request-timeout", "The head of the request took too long to arrive.")
_SLOW_BODY: Final = Rejection(408, "request-timeout", "The body of the request took too long to arrive.")


class Guard(Parting):
    """One connection of a listener."""

    def __init__(
        self,
        post: Post,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(post, config, server_state, app_state, _loop)
        self._deadlines, self.rear = post.on_loop(self.loop)
        self._turn: Turn | None = None
        self._queue: list[Turn] = []
        #: What the caller had not taken when it was last looked at.
        self._untaken = 0
        self._stalled_at = 0.0
        #: Whether reading will go on by itself, and whether it rests for others' sake alone.
        self._going = self._yielding = False

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, unless there are enough of them."""
        super().connection_made(transport)
        if self._entered or self.enter(self.peer):
            self._within(self.post.limits.header_timeout_us)
        else:
            self.post.turned_away(self.peer)
            self._state = LINGER
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; whatever is under way learns that its caller is gone."""
        self.detach()
        self.post.leave(self)
        self.leave()

    def detach(self) -> None:
        """Let go of the socket: it is closed, or another protocol's from here on."""
        self._deadlines.forget(self)
        self.connections.discard(self)
        self.parser = None  # type: ignore[assignment] # or each would keep the other until the collector comes

    def surrender(self) -> bytes:
        """Let go of the socket, which is another protocol's now; return what came for it."""
        self.resume_reading()
        self.post.crowd.doubled(self)
        self.detach()
        self._state = LINGER
        self._turn = None
        return self._opaque

    def leave(self) -> None:
        """End everything: the caller is gone."""
        turn, self._turn = self._turn, None
        self._receiving = None
        self._queue.clear()
        self._unfed = b""
        self._state = LINGER
        if turn is not None:
            turn.gone()

    def shutdown(self) -> None:
        """Answer what is under way or on its way, and take nothing more: the server stops."""
        if self._state is IDLE and self._turn is None and not self._queue:
            self._within(LAST_CALL_US)

    def stop(self) -> bool:
        """End now what is under way, with an answer where none has begun; False if nothing was."""
        turn = self._turn
        self._queue.clear()
        if turn is None:
            self.close()
            return False
        turn.stop()
        return True

    def pause_writing(self) -> None:
        """Hold the answer back: the caller reads slowly."""
        super().pause_writing()
        if self._turn is not None:
            self._turn.writable(False)
        self._untaken = self.transport.get_write_buffer_size()
        self._stalled_at = self.loop.time() + STALL_US / SECOND
        self.regulate()
        if self._state is not BODY:
            self._within(STALL_US)

    def resume_writing(self) -> None:
        """Go on: the caller has caught up."""
        super().resume_writing()
        self._stalled_at = 0.0
        if self._turn is not None:
            self._turn.writable(True)
        self.advance()
        self.rest()

    # Deadlines

    def _within(self, timeout_us: Micros) -> None:
        self._deadlines.within(self, timeout_us)

    def on_deadline(self, now: float) -> None:
        """End what is late, with an answer where somebody waits for one."""
        if self._state is LINGER:
            self._cut()
        elif self.transport.is_closing():
            pass
        elif self._is_gone(now):
            self.leave()
            self.transport.abort()
        elif self.read_paused or self._going or self.half_closed or (self._stalled_at and self._state is not BODY):
            self._within(LOOK_US)
        elif self._state is HEAD:
            # What never began is not told that it was too slow.
            self.refuse(_SLOW_HEAD)
        elif self._state is BODY and self._receiving is not None:
            self._turn_back(_SLOW_BODY)
        elif self._turn is None and not self._queue:
            self.close()

    def _is_gone(self, now: float) -> bool:
        """Return whether the caller takes nothing any more, or has hung up while nothing is read."""
        if self._stalled_at:
            untaken = self.transport.get_write_buffer_size()
            if untaken != self._untaken:
                self._untaken = untaken
                self._stalled_at = now + STALL_US / SECOND
            elif now >= self._stalled_at:
                return True
        return self.read_paused and hung_up(self.transport)

    def _cut(self) -> None:
        """Cut a lingering connection, unless the caller is still taking its answer."""
        waiting = self.transport.get_write_buffer_size()
        if waiting and waiting != self._untaken:
            self._untaken = waiting
            self._within(LINGER_US)
        else:
            self.transport.abort()

    # Turns

    def received(self) -> None:
        """Keep the time, and begin what came (framing, rule 1)."""
        if self._fresh and self._state is not IDLE:
            self._expect()
        if self._begun:
            if self._queue:
                self._queue += self._begun
                self._begun.clear()
            else:
                self._queue, self._begun = self._begun, self._queue
            self.advance()

    def advance(self) -> None:
        """Begin the next request if none is under way; answer a fault once all before it are answered."""
        while self._turn is None and self._queue and not (self.write_paused or self._going or self._state is LINGER):
            turn = self._turn = self._queue.pop(0)
            turn.begin()
        if self._turn is None and not self._queue and self._fault is not None:
            self._answer(self._fault)
        self.regulate()

    def finished(self, turn: Turn, *, keep_alive: bool) -> None:
        """Take note that the answer of `turn` was written whole."""
        if turn is not self._turn:
            return
        self._turn = None
        if not self.served:
            self.prove()
        if not keep_alive:
            self._queue.clear()
            self._linger()
        elif self._queue or self._fault is not None:
            # Not now: whoever calls has yet to settle the request that is over.
            if not (self.refused and self.stands_behind()):
                self.loop.call_soon(self.advance)
        elif self.half_closed and not self._ending:
            self.close()
        else:
            self.rest()

    def broken(self, turn: Turn, *, reset: bool) -> None:
        """Break the connection off, so that the caller sees that the answer is not whole (RFC 9112 section 8).

        `reset` where the end of the connection would be taken for the end of the answer.
        """
        if turn is self._turn:
            self._turn = None
        self._queue.clear()
        self._state = LINGER
        if reset:
            close_by_reset(self.transport)
        self.transport.abort()

    def pending(self, turn: Turn) -> bool:
        """Return whether more of the body of `turn` is to come."""
        return turn is self._receiving

    def regulate(self) -> None:
        """Read on, or not (rule 5)."""
        clear = self._receiving is None and not self._queue and not self._unfed and self._state is not OPAQUE
        if clear and not (self.read_paused or self.write_paused or self._work > WORK):
            return  # as nearly always: nothing waits, and what comes is read
        if self._state is LINGER or self.transport.is_closing():
            return
        receiving = self._receiving
        held = sum([turn.held for turn in self._queue if turn is not receiving]) if self._queue else 0
        held += receiving.held if receiving is not None else 0
        full = held > HELD or len(self._queue) >= AHEAD or self._state is OPAQUE
        full |= self.write_paused and receiving is None
        if full or self._unfed or self._work > WORK:
            reads = self._yielding or not self.read_paused
            if full and reads:
                self._within(LOOK_US)
            self._yielding = reads and not full
            self.pause_reading()
            if not (full or self._going):
                # Not now: whoever calls may be in the middle of what came before, and others wait.
                self._going = True
                self.loop.call_soon(self.on_turn)
        elif self.read_paused:
            self.resume_reading()
            if not self._yielding:
                self._expect()

    def on_turn(self) -> None:
        """Take what was received before more is read, if there is still room."""
        self._going = False
        if len(self._queue) < AHEAD:
            self.refill()
        self.advance()
        if self._ending and not self._unfed:
            self.end()

    def _expect(self) -> None:
        """Give what is being received its time anew."""
        limits = self.post.limits
        if self.read_paused:
            self._within(LOOK_US)
        elif self._state is IDLE:
            self.rest()
        else:
            self._within(limits.header_timeout_us if self._state is HEAD else limits.body_timeout_us)

    def rest(self) -> None:
        """Keep the time while nothing is being received; with nothing under way either, the connection is idle."""
        if self._state is not IDLE:
            return
        if self._turn is None and not self._queue and not self._begun:
            self._within(LAST_CALL_US if self.post.draining else self.post.limits.keepalive_timeout_us)
        elif not (self.read_paused or self._stalled_at or self.half_closed):
            self._deadlines.clear(self)

    # Ways out

    def refuse(self, fault: Rejection) -> None:
        """Answer a fault, behind the answers still owed. What came with it is not begun."""
        receiving = self._receiving
        begun = receiving is not None and receiving not in self._begun
        self._begun.clear()
        if begun:
            self._turn_back(fault)
            return
        self._fault = fault
        self._receiving = None
        self._state = IDLE
        self._deadlines.clear(self)
        self.advance()

    def _turn_back(self, fault: Rejection) -> None:
        """End the request that is being received; its answer, if it still gets one, closes."""
        receiving, self._receiving = self._receiving, None
        self._fault = fault
        self._state = IDLE
        self._deadlines.clear(self)
        if receiving is None or (receiving is not self._turn and receiving not in self._queue):
            self.close()
        else:
            receiving.turn_back(fault)

    def _answer(self, fault: Rejection) -> None:
        if self._state is not LINGER:
            self.transport.write(self.post.faulty(fault, self.peer).wire())
            self._linger()

    def close(self) -> None:
        """Close both sides once what was written is taken, or cut them."""
        self._state = LINGER
        self._receiving = None
        self._unfed = b""
        if not self.transport.is_closing():
            self._within(LINGER_US)
            self.transport.close()

    def _linger(self) -> None:
        """Close our side, then discard what arrives, for a while (rule 2)."""
        if self.half_closed or self.transport.is_closing() or not self.transport.can_write_eof():
            self.close()
            return
        try:
            self.transport.write_eof()
        except OSError:  # asyncio's own loop shuts the socket down itself: the caller is gone
            self.close()
            return
        self._state = LINGER
        self._receiving = None
        self._unfed = b""  # or what arrives would be kept behind it
        self.resume_reading()
        self._within(LINGER_US)
