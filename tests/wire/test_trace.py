"""W3C Trace Context: passed on as it came, unless told not to, and found again in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wire.caller import request
from tests.wire.gateway import running, tenant, token
from tests.wire.load import at_once
from tests.wire.origin import serving
from tests.wire.script import Answer
from tests.wire.waiting import until

__all__: list[str] = []

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("passed", [True, False])
async def test_traceparent_is_passed_and_logged(tmp_path: Path, passed: bool) -> None:
    """The upstream sees both fields byte for byte, or with `trace_headers = false` neither; the log has the ids."""
    config = {"upstream": {"trace_headers": passed}, "tenants": [tenant("acme")]}
    fields = [("traceparent", TRACE), ("tracestate", "vendor=1")]
    with serving() as up, running(tmp_path, up, config) as gateway:
        up.on("/", Answer())
        await at_once(gateway.address, [request(token=token("acme"), fields=fields)])
        seen = {name.lower(): value for name, value in up.seen[0].fields}
        assert seen.get(b"traceparent") == (TRACE.encode() if passed else None)
        assert seen.get(b"tracestate") == (b"vendor=1" if passed else None)
        await until(lambda: any(line["event"] == "request" for line in gateway.log_lines()), "the line is written")
        (line,) = [line for line in gateway.log_lines() if line["event"] == "request"]
        assert (line["trace_id"], line["parent_id"]) == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
