"""What telemetry says of itself, and how it is used by those who never start its threads."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gateway.ports import Recorder
from gateway.telemetry import Telemetry
from policies.policy import Mode
from tests.gateway.telemetry.made import START, Event, configured, telemetry


def test_an_untrusted_forwarder_is_warned_of_once_per_address(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once in the log, and in the warnings as long as we run; bounded, for anybody can send the header."""
    record = telemetry(tmp_path)
    assert record.warnings() == []
    with caplog.at_level(logging.WARNING, "evenhand"):
        for number in range(100):
            record.untrusted_forwarder(f"198.51.100.{number // 2}")
    assert len(caplog.records) == 16
    assert caplog.messages[0] == (
        "198.51.100.0 sends Forwarded or X-Forwarded-For and is not in trusted_proxies: "
        "callers behind 198.51.100.0 share one address; add it to trusted_proxies"
    )
    assert record.warnings()[:16] == caplog.messages
    assert record.warnings()[16:] == ["more than 16 peers outside trusted_proxies send Forwarded or X-Forwarded-For"]


def test_a_proxy_that_tells_of_nobody_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By address, and bounded: a whole network can be trusted."""
    record = telemetry(tmp_path)
    with caplog.at_level(logging.WARNING, "evenhand"):
        for number in range(100):
            record.doubtful_proxy(f"10.0.0.{number // 2}")
    assert len(caplog.records) == 16
    assert caplog.messages[0].startswith("10.0.0.0 is in trusted_proxies, and sent Forwarded and X-Forwarded-For that ")
    assert record.warnings() == caplog.messages


def test_telemetry_is_a_recorder_and_stops_without_having_started(tmp_path: Path) -> None:
    """It fulfils the port, and `stop` is safe on every way out."""
    record: Recorder = telemetry(tmp_path)
    record.record(Event().decision(), START)
    for log in ("off", str(tmp_path / "x.log")):
        loaded = configured(tmp_path, log=log)
        Telemetry(loaded.settings, loaded.policies, record.tenants._clock).stop()  # type: ignore[attr-defined] # it is a Telemetry


def test_a_reload_lists_new_tenants_and_modes(tmp_path: Path) -> None:
    """Without a log too; what was counted stays."""
    record = telemetry(tmp_path, unlisted=1)
    record.record(Event("first").decision(), START)
    record.record(Event("acme").decision(), START)
    loaded = configured(tmp_path, '[[tenants]]\nid = "acme"\n', unlisted=1)
    record.reload(loaded.settings, loaded.policies)
    record.record(Event(at=10).decision(), START + 10_000_000)
    rows = record.tenants.report("1m", START + 10_000_000).tenants
    assert {row.tenant: row.offered for row in rows} == {"first": 1, "other": 1, "acme": 1}
    assert record.metrics.policies.mode is Mode.ENFORCE
