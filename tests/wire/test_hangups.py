"""SIGHUP from the first moment to the last: it never ends the process, and a gateway that stops reloads no more."""

from __future__ import annotations

import http.client
import signal
import time
from pathlib import Path

import pytest

from tests.wire.gateway import running, tenants

__all__: list[str] = []

CONFIG = {"tenants": tenants("a", quota="1000/s")}


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_signals_on_the_way_out_change_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """One every millisecond, until it is gone: exit code 0, no traceback, none told by the system's own answer."""
    with running(tmp_path, "http://127.0.0.1:9", CONFIG) as gateway:
        gateway.signal(signal.SIGTERM)
        deadline = time.monotonic() + 60
        while gateway.running:
            assert time.monotonic() < deadline
            gateway.signal(number)
            time.sleep(0.001)
        assert (gateway.end(), "Traceback" in gateway.stderr) == (0, False), gateway.stderr


def test_no_reload_once_it_stops(tmp_path: Path) -> None:
    """During the grace a signal is told of and changes nothing, and the admin API says why not."""
    with running(tmp_path, "http://127.0.0.1:9", {**CONFIG, "server": {"grace": "2s"}}) as gateway:
        gateway.signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        while gateway.ask("/readyz").status != http.client.SERVICE_UNAVAILABLE:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        gateway.signal(signal.SIGHUP)
        answer = gateway.ask("/api/reload", "POST")
        assert answer.status == http.client.CONFLICT
        assert answer.json()["detail"] == "The gateway is stopping."
        assert gateway.end() == 0
        assert "not reloaded: the gateway is stopping" in gateway.stderr
        assert "Traceback" not in gateway.stderr
