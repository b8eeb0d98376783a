"""A real collector of OTLP over HTTP gets a span for each logged request, and nobody waits for one that is away."""

from __future__ import annotations

import builtins
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.errors import ConfigError
from gateway.telemetry.lines import Logged
from gateway.telemetry.otel import MOST, Exporter
from policies.charge import NEVER
from policies.policy import Mode
from policies.verdict import Outcome
from tests.gateway.telemetry.made import START, Event
from tests.wire.caller import call, request
from tests.wire.gateway import free_port, running, tenants, token
from tests.wire.origin import serving
from tests.wire.script import Answer

__all__: list[str] = []

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.spans: list[Span] = []
        self.paths: set[str] = set()
        self.names: set[str] = set()

    @property
    def url(self) -> str:
        """What `[telemetry] otlp` says of it."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def values(self, index: int) -> dict[str, Any]:
        """Return the attributes of a span."""
        found = {}
        for attribute in self.spans[index].attributes:
            kind = attribute.value.WhichOneof("value")
            found[attribute.key] = getattr(attribute.value, kind or "string_value")
        return found


class Taking(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
        self.server.paths.add(self.path)
        for part in sent.resource_spans:
            self.server.names |= {
                one.value.string_value for one in part.resource.attributes if one.key == "service.name"
            }
            self.server.spans += [span for scope in part.scope_spans for span in scope.spans]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Run a collector."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_a_gateway_tells_its_collector(tmp_path: Path, collector: Collector) -> None:
    """Served and refused, with tenant, limit and wait, as children of their callers' spans; the last on the way out."""
    config = {"tenants": tenants("acme", quota="1/min burst 1"), "telemetry": {"otlp": collector.url}}
    with serving() as up:
        up.on("/", Answer())
        with running(tmp_path, up, config) as gateway:
            for _ in range(2):
                octets = request(token=token("acme"), fields=(("traceparent", f"00-{TRACE}-{PARENT}-00"),))
                await call(gateway.address, octets)
    assert (collector.paths, collector.names) == ({"/v1/traces"}, {"evenhand"})
    served, refused = collector.values(0), collector.values(1)
    assert (served["evenhand.tenant"], served["evenhand.outcome"]) == ("acme", "served")
    assert (served["http.request.method"], served["http.response.status_code"], served["url.path"]) == ("GET", 200, "/")
    assert (refused["evenhand.limit"], refused["http.response.status_code"]) == ("key", 429)
    assert 0 < refused["evenhand.wait_ms"] <= 60_000
    for span in collector.spans:
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        assert span.kind == Span.SPAN_KIND_SERVER
        assert span.end_time_unix_nano >= span.start_time_unix_nano > 0
    assert token("acme").encode() not in b"".join(span.SerializeToString() for span in collector.spans)


def test_what_went_wrong_is_an_error(collector: Collector) -> None:
    """A failure of the service behind; a refusal is none, nor is a request that says nothing of a trace."""
    exporter = Exporter(f"{collector.url}/v1/traces", "1")
    exporter.start()
    failed = Event("acme", Outcome.UPSTREAM_ERROR, status=502).decision()
    never = Event("acme", Outcome.REFUSED, "key", status=429, wait_us=NEVER).decision()
    for decision in (failed, never):
        exporter.put(Logged(decision, START, Mode.ENFORCE, 1.0, None))
    exporter.stop()
    assert [span.status.code for span in collector.spans] == [Status.STATUS_CODE_ERROR, Status.STATUS_CODE_UNSET]
    assert collector.values(1)["evenhand.wait_ms"] == -1
    assert [span.parent_span_id for span in collector.spans] == [b"", b""]


def test_a_collector_that_is_away_costs_spans(caplog: pytest.LogCaptureFixture) -> None:
    """What finds no room is counted; nothing is raised."""
    exporter = Exporter(f"http://127.0.0.1:{free_port()}", "1")
    logged = Logged(Event("acme", Outcome.SERVED).decision(), START, Mode.ENFORCE, 1.0, "exports")
    for _ in range(MOST + 3):
        exporter.put(logged)
    assert exporter.dropped == 3
    exporter._provider.shutdown()


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence, at the start."""
    load = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match="evenhand\\[otel\\]"):
        Exporter("http://127.0.0.1:4318", "1")
