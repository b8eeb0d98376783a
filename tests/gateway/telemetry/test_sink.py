"""Writing log lines away: nobody but the writing thread ever waits, and what is lost is counted."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.telemetry import Telemetry
from gateway.telemetry.sink import Sink
from policies.verdict import Outcome
from tests.gateway.telemetry.made import START, Event, StoppedClock, configured
from tests.wire.waiting import SLACK

REFUSED = Event("acme", Outcome.REFUSED, "key", status=429)


def test_a_log_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    """One sentence with the key, before anything is served."""
    with pytest.raises(ConfigError, match=r"telemetry\.decision_log: expected a file that can be written") as caught:
        Sink(tmp_path / "none" / "x.log", tuple)
    assert caught.value.faults[0].path == "telemetry.decision_log"


def test_a_reader_that_does_not_keep_up_costs_lines_and_no_time(tmp_path: Path) -> None:
    """A full pipe blocks the writing thread only; what is lost is counted, and said when there is room again."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    said: list[bytes] = []
    sink = Sink(fifo, lambda: said[:1], max_bytes=200_000)
    sink.start()
    line = b"x" * 999 + b"\n"
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    put = 0
    while sink.dropped < 50:
        sink.put(line)
        put += 1
        if put % 100 == 0:
            time.sleep(0.01)
    assert until(lambda: sink._put - sink._taken <= 200_000)
    said.append(b"dropped\n")
    received = bytearray()
    os.set_blocking(reader, True)

    def drain() -> None:
        while part := os.read(reader, 65536):
            received.extend(part)

    thread = threading.Thread(target=drain)
    thread.start()
    sink.stop(timeout=30)
    thread.join(timeout=30)
    os.close(reader)
    whole = bytes(received).split(b"\n")
    assert whole.count(b"x" * 999) == put - sink.dropped
    assert b"dropped" in whole


def until(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Wait for another thread."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def test_a_stuck_reader_does_not_keep_the_process(tmp_path: Path) -> None:
    """Stopping waits for so long and no longer; the thread dies with the process."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    sink = Sink(fifo, tuple)
    sink.start()
    began = time.monotonic()
    time.sleep(0.15)  # it opens the pipe within this, and waits for a reader
    sink.stop(timeout=0.05)
    assert time.monotonic() - began < 5 + SLACK
    os.close(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))


def test_a_file_that_was_moved_away_is_opened_anew(tmp_path: Path) -> None:
    """Log rotation needs no signal."""
    path = tmp_path / "x.log"
    sink = Sink(path, tuple)
    sink.start()
    sink.put(b"one\n")
    assert until(lambda: path.exists() and path.read_text() == "one\n")
    path.rename(tmp_path / "x.log.1")
    assert until(path.exists)
    sink.put(b"two\n")
    sink.stop()
    assert path.read_text() == "two\n"
    assert (tmp_path / "x.log.1").read_text() == "one\n"


def test_a_disk_that_is_full_costs_lines_and_is_a_warning(tmp_path: Path) -> None:
    """Nothing fails but the log, and readiness says so."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    loaded = configured(tmp_path, log="/dev/full")
    record = Telemetry(loaded.settings, loaded.policies, StoppedClock())
    assert record.log is not None
    record.record(REFUSED.decision(), START)
    record.log.sink.flush()
    assert record.log.sink.dropped == 1
    assert "lost 1 lines" in record.warnings()[0]
    assert "No space left" in record.warnings()[0]
    record.log.sink.close()


def test_stderr_takes_lines_too(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The default; it is not closed when the log ends."""
    loaded = configured(tmp_path, log="stderr")
    record = Telemetry(loaded.settings, loaded.policies, StoppedClock())
    record.start()
    record.record(REFUSED.decision(), START)
    record.stop()
    assert json.loads(capfd.readouterr().err)["limit"] == "key"
    os.fstat(2)


def test_threads_keep_the_windows_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed slots are taken away though nobody asks, and `stop` leaves no thread."""
    monkeypatch.setattr("gateway.telemetry.recorder._ADVANCE_SECONDS", 0.01)
    before = threading.active_count()
    clock = StoppedClock()
    loaded = configured(tmp_path)
    record = Telemetry(loaded.settings, loaded.policies, clock)
    record.start()
    for number in range(3):
        clock.at = START + number * 10_000_000
        record.record(Event(at=number * 10.0).decision(), clock.at)
    assert until(lambda: not record._ledger._closed)
    record.stop()
    assert threading.active_count() == before


def test_a_pipe_that_cannot_take_more_now_is_tried_again(tmp_path: Path) -> None:
    """Standard error may be non-blocking by whoever started us; no line is lost or cut by it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    sink = Sink(None, tuple)
    sink._fd = writer
    sink.start()
    for number in range(300):
        sink.put(b"%0999d\n" % number)
    assert until(lambda: sink._taken == 300_000)
    received = bytearray()
    while len(received) < 300_000:
        received += os.read(reader, 65536)
    sink.stop()
    os.close(reader)
    os.close(writer)
    assert received.split(b"\n")[:-1] == [b"%0999d" % number for number in range(300)]


def test_a_directory_that_is_gone_costs_lines_until_it_is_back(tmp_path: Path) -> None:
    """The file is looked for once a second, and written as soon as it can be."""
    folder = tmp_path / "logs"
    folder.mkdir()
    sink = Sink(folder / "x.log", tuple)
    sink.put(b"one\n")
    sink.flush()
    (folder / "x.log").unlink()
    folder.rmdir()
    sink._look_after_file()
    sink.put(b"lost\n")
    sink.flush()
    assert (sink.dropped, sink.fault != "") == (1, True)
    folder.mkdir()
    sink._look_after_file()  # within the second: not yet
    sink._checked = 0.0
    sink._look_after_file()
    sink._look_after_file()
    sink.put(b"two\n")
    sink.flush()
    sink.close()
    assert ((folder / "x.log").read_text(), sink.fault) == ("two\n", "")
