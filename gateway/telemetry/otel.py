"""OpenTelemetry: a span for each request that the decision log tells of. An extra: `pip install 'evenhand[otel]'`.

Rules
1. Off unless `[telemetry] otlp` names a collector, and nothing of OpenTelemetry is imported before.
2. The data plane puts what was logged into a bounded queue and goes on; spans are made and sent by threads. A collector
   that does not keep up costs spans, which are counted, never a request.
3. What the decision log leaves out is left out here: the same sampling, the same bounds under a flood, no secret.
4. A span is the child of the caller's own where that sent a valid `traceparent`. The upstream sees what the caller
   sent, so spans of both sides stand beside each other in the caller's trace.

Attributes are OpenTelemetry's semantic conventions for HTTP servers, and `evenhand.*` as the fields of the log.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from gateway.errors import ConfigError, Fault
from gateway.telemetry.lines import Logged, clip, trace_ids, what_of
from policies.charge import NEVER
from policies.verdict import Outcome

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

__all__ = ["MOST", "Exporter"]

#: Requests that wait for the thread.
MOST = 4096
_EVERY_SECONDS = 0.2
_LEAVING_MS = 2_000
_PATH = "/v1/traces"

_Value = str | int | float | bool


class Exporter:
    """Sends spans to a collector by OTLP over HTTP. Raises ConfigError where the extra is not installed."""

    def __init__(self, collector: str, version: str) -> None:
        self._queue: deque[Logged] = deque()
        #: Requests that found no room.
        self.dropped = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._provider = _provider(collector, version)
        self._tracer = self._provider.get_tracer("evenhand", version)

    def put(self, logged: Logged) -> None:
        """Take one request, or count it if there is no room; on the data plane."""
        if len(self._queue) >= MOST:
            self.dropped += 1
            return
        self._queue.append(logged)

    def start(self) -> None:
        """Begin to send."""
        self._thread = threading.Thread(target=self._run, name="evenhand-otel", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._provider.force_flush(_LEAVING_MS)
        self._provider.shutdown()

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_SECONDS):
            self._send()
        self._send()

    def _send(self) -> None:
        while self._queue:
            self._span(self._queue.popleft())

    def _span(self, logged: Logged) -> None:
        from opentelemetry.trace import SpanKind, StatusCode  # noqa: PLC0415 - rule 1

        decision = logged.decision
        name = f"{clip(decision.facts.method, 32)} {logged.route or ''}".strip() or "request"
        span = self._tracer.start_span(
            name,
            context=_parent(decision.facts.trace),
            kind=SpanKind.SERVER,
            attributes=_attributes(logged),
            start_time=decision.started_us * 1000,
        )
        if decision.outcome is Outcome.UPSTREAM_ERROR:
            span.set_status(StatusCode.ERROR)
        span.end(max(logged.now, decision.started_us) * 1000)


def _provider(collector: str, version: str) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - rule 1
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - rule 1
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - rule 1
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - rule 1
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON  # noqa: PLC0415 - rule 1
    except ImportError:
        raise ConfigError((Fault("telemetry.otlp", "needs the extra: pip install 'evenhand[otel]'"),)) from None
    endpoint = collector if collector.endswith(_PATH) else collector.rstrip("/") + _PATH
    # The log has sampled already; what a caller's trace says of sampling is for its own spans.
    resource = Resource.create({"service.name": "evenhand", "service.version": version})
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
    return provider


def _parent(traceparent: str | None) -> Context:
    from opentelemetry.context import Context  # noqa: PLC0415 - rule 1
    from opentelemetry.trace import (  # noqa: PLC0415 - rule 1
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    trace_id, parent_id = trace_ids(traceparent)
    if trace_id is None or parent_id is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED)
    remote = SpanContext(int(trace_id, 16), int(parent_id, 16), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(remote), Context())


def _attributes(logged: Logged) -> dict[str, _Value]:
    decision = logged.decision
    facts, principal, verdict = decision.facts, decision.principal, decision.verdict
    refusal = None if verdict is None else verdict.refusal
    wait = None if refusal is None else -1 if refusal.wait_us == NEVER else -(-refusal.wait_us // 1000)
    found: dict[str, _Value | None] = {
        "http.request.method": clip(facts.method, 32),
        "url.path": clip(facts.path, 256),
        "http.route": logged.route,
        "http.response.status_code": decision.status or None,
        "client.address": clip(facts.address, 128),
        "evenhand.request_id": clip(decision.request_id, 128),
        "evenhand.tenant": clip(principal.tenant, 128),
        "evenhand.credential": clip(principal.credential, 128),
        "evenhand.identity": principal.kind.value,
        "evenhand.class": decision.cls.label,
        "evenhand.cost": None if verdict is None else verdict.plan.cost,
        "evenhand.outcome": None if decision.outcome is None else decision.outcome.value,
        "evenhand.limit": what_of(decision),
        "evenhand.wait_ms": wait,
        "evenhand.mode": logged.mode.value,
        "evenhand.exemption": decision.exemption or None,
        "evenhand.posture": decision.notes.get("posture"),
        "evenhand.upstream_ms": decision.upstream_us / 1000 if decision.sent else None,
        "evenhand.sample": logged.sample,
    }
    return {name: value for name, value in found.items() if value is not None}
