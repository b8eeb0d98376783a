"""One request through the house: the line from head in to settled, on every path.

    head --parse--> facts [--ask--> known] --decide--> verdict --+-- refused or rejected --> answer of ours --> settled
                                                                +-- forward --> call --> response relayed --> settled

Rules
1. It knows no server. A *source* feeds it (`begin`, `body`, `body_end`, `caller_gone`, `caller_writable`) and it writes
   to a *sink*; both are the same shell. Everything is synchronous, nothing here is a task.
2. Whatever was decided is settled exactly once: by the end of the answer, by a failure, or by the caller leaving.
3. Before the response head was passed on, a failure is a problem; after that it is a broken transfer, never a complete
   one (RFC 9112 section 8).
4. The charge is given back if and only if the request head was never written to an upstream.
5. A body is never collected: it is asked for once there is somewhere to write it to, and held back while there is not.
6. An answer of ours costs no request body: if one is still to come, the connection ends after the answer, unless what
   is left is small enough to be read and thrown away.

Ends: a relayed 5xx is `upstream_error`, any other relayed status `served`; the caller gone before the response head is
`aborted`, after it as if the response had ended; a body that is too large is `rejected`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

from gateway.pipeline import Pending
from gateway.ports import Decision, Headers, Rejection
from gateway.proxy.answer import Answer, Asked
from gateway.proxy.call import Receiver, Sent
from gateway.proxy.failure import Failure, FailureKind
from gateway.proxy.front import Front
from gateway.proxy.headers import Lines
from gateway.proxy.parse import Head, Parsed
from gateway.proxy.sink import NOBODY, Sink
from gateway.proxy.target import stripped
from policies.native import mypyc_attr
from policies.request import RequestFacts
from policies.settle import own_outcome
from policies.verdict import Outcome, Reason

__all__ = ["DISCARDED", "Exchange"]

_LOG: Final = logging.getLogger("evenhand")

#: Octets of an unwanted request body that a server may read and throw away to keep the connection: a flight or two.
DISCARDED: Final = 64 * 1024

# RFC 9110 section 9.2.2.
_IDEMPOTENT: Final = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"})

# Looked up once: a member of an enum costs as much as a call.
_UPSTREAM_ERROR: Final = Outcome.UPSTREAM_ERROR
_SERVED: Final = Outcome.SERVED
_REFUSED: Final = Outcome.REFUSED

_TOO_LARGE: Final = Rejection(413, "content-too-large", "")
_NOT_AS_ANNOUNCED: Final = Rejection(400, "bad-framing", "The request body is not as long as announced.")
_FAILED: Final = Rejection(500, "internal-error", "")
_STOPPING: Final = Rejection(503, "unavailable", "The gateway is stopping, and the request took too long to wait for.")
_FAILURES: Final = {502: "bad-gateway", 503: "unavailable", 504: "gateway-timeout"}


@mypyc_attr(free_list_len=1)
class Exchange(Receiver):
    """One request and its response; also the receiver of its upstream call."""

    __slots__ = (
        "_call",
        "_decision",
        "_ended",
        "_front",
        "_head",
        "_over",
        "_parsed",
        "_pending",
        "_received",
        "_sink",
        "_status",
    )

    def __init__(self, front: Front, head: Head, sink: Sink) -> None:
        self._front = front
        self._head = head
        self._sink = sink
        self._parsed: Parsed | None = None
        self._decision: Decision | None = None
        self._call: Sent | None = None
        #: Takes back what was asked, about the caller or of the store, while that is not known.
        self._pending: Callable[[], None] | None = None
        self._status = 0
        self._received = 0
        self._ended = False
        self._over = False

    @property
    def over(self) -> bool:
        """True once the request is settled; nothing reaches the sink after that."""
        return self._over

    @property
    def awaits_body(self) -> bool:
        """True while octets of the request body are to come."""
        return not self._over and self._parsed is not None and self._parsed.length != 0 and not self._ended

    @property
    def awaits_permission(self) -> bool:
        """True if the caller waits for a 100 before it sends its body, which asking for the body would send."""
        return self._parsed is not None and b"expect" in self._parsed.fields

    @property
    def unread(self) -> float:
        """Octets of the request body that may still come; infinite where its end announces itself."""
        if self._parsed is None or self._ended:
            return 0.0
        length = self._parsed.length
        return math.inf if length is None else float(length - self._received)

    # The source

    def begin(self) -> None:
        """Take the head through to its answer or its upstream call."""
        try:
            self._begin()
        except Exception:  # noqa: BLE001 - logged, answered, counted
            self._broken()

    def _broken(self) -> None:
        """Answer for a bug, or a store that broke its promise: one caller gets a problem, and the connection stays."""
        _LOG.exception("a request could not be handled")
        self._give_up()

    def body(self, chunk: bytes) -> None:
        """Pass on octets of the request body, which `want_body` asked for."""
        if self._over or self._call is None or self._parsed is None:
            return
        self._received += len(chunk)
        announced = self._parsed.length
        if announced is None:
            if self._received > self._front.max_body:
                self._reject(_TOO_LARGE)
                return
        elif self._received > announced:
            self._reject(_NOT_AS_ANNOUNCED)
            return
        self._call.write(chunk)

    def body_end(self) -> None:
        """Note that the request body is complete. Said again once there is somewhere to write it to."""
        if self._pending is not None:
            return
        self._ended = True
        if self._over or self._call is None or self._parsed is None:
            return
        if self._parsed.length not in (None, self._received):
            self._reject(_NOT_AS_ANNOUNCED)
        else:
            self._call.finish()

    def turn_back(self, rejection: Rejection) -> None:
        """End the request for what its server found wrong after the head: the body came too slowly, or malformed."""
        if not self._over:
            self._reject(rejection)

    def stop(self) -> None:
        """End the request because its server stops: a problem, or a response broken off."""
        if self._over:
            return
        if self._call is not None:
            self._call.cancel()
        if self._decision is not None:
            self._decision.notes["ended"] = "drain"
        told = self._say(_STOPPING)
        self._settle(self._outcome() if self._status else _UPSTREAM_ERROR, told)

    def caller_gone(self) -> None:
        """End the upstream call now: the caller left, or its server is stopping."""
        if self._over:
            return
        if self._call is not None:
            self._call.cancel()
        self._settle(self._outcome() if self._status else Outcome.ABORTED, self._status)

    def caller_writable(self, ready: bool) -> None:
        """Hold the response back, or go on."""
        if self._call is not None:
            if ready:
                self._call.resume()
            else:
                self._call.pause()

    # The line

    def _begin(self) -> None:
        front, head = self._front, self._head
        parsed = self._parsed = front.parser.parse(head)
        front.notice(head.peer, parsed)
        rejection, facts = parsed.rejection, parsed.facts
        if facts is None or (rejection is not None and rejection.status == 400):
            self.turn_away(rejection or _FAILED)
            return
        self._ask(facts, parsed)

    def _ask(self, facts: RequestFacts, parsed: Parsed) -> None:
        """Decide, once nobody has to be asked any more who sent it."""
        pipeline = self._front.pipeline
        # Here and below: a bound method is made only for who may call it.
        self._pending = pipeline.ask(facts, self._head.headers, self._resume) if pipeline.asks else None
        if self._pending is None:
            self._decide(facts, parsed)

    def _resume(self) -> None:
        """Go on. Whom to ask may have changed meanwhile, by a reload."""
        parsed, self._pending = self._parsed, None
        if parsed is not None and (facts := parsed.facts) is not None:
            try:
                self._ask(facts, parsed)
            except Exception:  # noqa: BLE001 - as in `begin`
                self._broken()

    def _decide(self, facts: RequestFacts, parsed: Parsed) -> None:
        front, rejection = self._front, parsed.rejection
        resume = self._resume if front.pipeline.waits else None
        decision = front.pipeline.decide(facts, self._head.headers, parsed.request_id, resume)
        if isinstance(decision, Pending):
            self._pending = decision
            return
        self._decision = decision
        if not decision.forward:
            self._refuse(decision)
        elif rejection is not None:
            self._reject(rejection)
        elif parsed.length is not None and parsed.length > front.max_body:
            self._reject(_TOO_LARGE)
        else:
            self._forward(decision, parsed)

    def _forward(self, decision: Decision, parsed: Parsed) -> None:
        head = self._head
        method = head.method
        way = self._front.ways[decision.route]
        plan = decision.verdict.plan if decision.verdict else None
        target = stripped(parsed.target, way.strip) if way.strip else parsed.target
        self._call = way.upstream.call(
            method,
            target,
            way.fields.write(head, parsed, decision),
            parsed.length,
            self,
            idempotent=method == b"GET" or method in _IDEMPOTENT,
            host=parsed.host if way.preserve_host and parsed.host else None,
            first_byte_timeout_us=way.first_byte_timeout_us,
            share=plan.share if plan else None,
            memo=plan.memo if plan else None,
        )
        if decision.sent and parsed.length != 0:
            self._sink.want_body(True)

    def _refuse(self, decision: Decision) -> None:
        """Answer a decision that does not go on: a limit refused, or the credential proved nothing."""
        verdict, rejection = decision.verdict, decision.rejection
        if rejection is None and verdict is not None and verdict.refusal is not None:
            answer = self._front.refuser.refuse(decision, verdict, verdict.refusal, self._asked())
            self._answer(answer)
            self._settle(_REFUSED, answer.status)
        else:
            self._reject(rejection or _FAILED)

    def _reject(self, rejection: Rejection) -> None:
        """Answer a request that may not go on for a reason of its own; it may already be on its way."""
        if self._call is not None:
            self._call.cancel()
        told = self._say(rejection)
        self._settle(own_outcome(rejection.status), told)

    def turn_away(self, rejection: Rejection) -> None:
        """Answer a request that is never decided: it cannot be read, or its server found fault with it before."""
        self._say(rejection)
        self._close()
        front, parsed = self._front, self._as_read()
        facts = parsed.facts or front.parser.seen(self._head, parsed.fields)
        front.pipeline.reject(facts, rejection, parsed.request_id)

    def _give_up(self) -> None:
        if self._over:
            return
        if self._call is not None:
            self._call.cancel()
        if self._decision is None:
            self.turn_away(_FAILED)
        else:
            self._settle(_UPSTREAM_ERROR, self._say(_FAILED))

    # The receiver of the upstream call

    def on_sent(self) -> None:
        """Keep the charge from here on; there is somewhere to write a body to."""
        if self._decision is not None and self._parsed is not None:
            self._decision.sent = True
            # A call on a connection that stands is sent while it is being made: there is nothing to write to yet.
            if self._parsed.length != 0 and self._call is not None:
                self._sink.want_body(True)

    def on_interim(self, status: int, headers: Headers) -> None:
        """Relay what says something about the response; a 100 was between us and the upstream."""
        if status != 100:
            self._sink.interim(status, self._front.responses.interim(headers))

    def on_response(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Relay the response head, with the RateLimit fields of an admitted request."""
        decision = self._decision
        self._status = status
        front = self._front
        lines: Lines = []
        length = front.responses.write(status, headers, lines)
        if decision is not None:
            decision.upstream_us = front.clock.now() - decision.decided_us
            if decision.verdict is not None and not (300 <= status < 400 or status in (429, 503)):
                front.tell(decision.verdict, lines)
        self._sink.start(status, lines, length, body)

    def on_data(self, chunk: bytes) -> None:
        """Relay octets of the response body."""
        self._sink.data(chunk)

    def on_done(self) -> None:
        """Complete the response, though the request need not be complete."""
        self._sink.end()
        self._settle(self._outcome(), self._status)

    def on_failed(self, failure: Failure) -> None:
        """Tell the caller of the failure, or break off what it was already told."""
        decision = self._decision
        if failure.kind is FailureKind.CONNECTIONS and not self._status and decision and decision.verdict:
            answer = self._front.refuser.no_connection(decision, decision.verdict, self._asked())
            decision.over_seats = failure.over
            self._answer(answer)
            self._settle(_REFUSED, answer.status, Reason.CONNECTIONS.value)
            return
        code = _FAILURES.get(failure.status, "bad-gateway")
        told = self._say(Rejection(failure.status, code, failure.detail))
        self._settle(_UPSTREAM_ERROR, told)

    def on_writable(self, ready: bool) -> None:
        """Hold the request body back while the upstream does not take it."""
        if not self._ended:
            self._sink.want_body(ready)

    # Ends

    def _outcome(self) -> Outcome:
        return _UPSTREAM_ERROR if self._status >= 500 else _SERVED

    def _settle(self, outcome: Outcome, status: int, limit: str = "") -> None:
        self._close()
        if self._pending is not None and self._parsed is not None and self._parsed.facts is not None:
            pending, self._pending = self._pending, None
            pending()
            self._decision = self._front.pipeline.undecided(self._parsed.facts, self._parsed.request_id, pending)
        if self._decision is not None:
            self._front.pipeline.settle(self._decision, outcome, status, limit)

    def _close(self) -> None:
        """End the line. What pointed back here is let go, so that nothing of a request waits for the collector."""
        self._over = True
        self._call = None
        self._sink = NOBODY

    def _say(self, rejection: Rejection) -> int:
        """Answer with a problem, or break off a response that has begun; return the status the caller was told."""
        if self._status:
            self._sink.abort()
            return self._status
        self._answer(self._front.refuser.reject(rejection, self._as_read().request_id, self._asked()))
        return rejection.status

    def _answer(self, answer: Answer) -> None:
        answer.close |= self._body_pending()
        self._sink.answer(answer)

    def _body_pending(self) -> bool:
        """Return whether more request body may come than is worth reading to keep the connection."""
        parsed = self._parsed
        if parsed is None or self._ended or parsed.length == 0:
            return False
        # Who was promised a 100 may send its body after all, or the next request: nobody can tell which.
        return parsed.length is None or parsed.length - self._received > DISCARDED or b"expect" in parsed.fields

    def _as_read(self) -> Parsed:
        """Return what the head says; of one that was never read only an id."""
        if self._parsed is None:
            self._parsed = Parsed(self._front.new_id(), {}, trusted=False)
        return self._parsed

    def _asked(self) -> Asked:
        fields = self._parsed.fields if self._parsed else {}
        return Asked(self._head.method == b"HEAD", fields.get(b"accept"), fields.get(b"origin"))
