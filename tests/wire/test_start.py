"""A start that is called off: a signal that comes while the gateway still starts, and a start that fails."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gateway.listener.early import Early
from tests.wire.caller import Caller, request
from tests.wire.gateway import ROOT, Gateway, running, tenants, token
from tests.wire.origin import serving
from tests.wire.waiting import until

__all__: list[str] = []

CONFIG = {"tenants": tenants("a", quota="1000/s")}


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a gateway; return it as soon as it hears SIGTERM, the first thing that it does."""
    gateway = Gateway(tmp_path, "http://127.0.0.1:9", CONFIG)
    with spawned(gateway.file) as process:
        deadline = time.monotonic() + 60
        while not caught(process.pid) >> (signal.SIGTERM - 1) & 1:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.001)
        yield process
        process.kill()


def spawned(file: Path) -> subprocess.Popen[str]:
    """Return `evenhand serve`, as it was just started."""
    command = [sys.executable, "-m", "gateway", "serve", "-c", str(file)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def caught(pid: int) -> int:
    """Return the signals that a process has a handler for."""
    found = re.search(r"SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return int(found[1], 16) if found else 0


@pytest.mark.parametrize("wait", [0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 1.2])
def test_sigterm_while_it_starts_is_exit_code_0(starting: subprocess.Popen[str], wait: float) -> None:
    """Whatever it is at: importing, reading its file, composing, opening. A hangup before changes nothing."""
    time.sleep(wait)
    starting.send_signal(signal.SIGHUP)
    starting.send_signal(signal.SIGTERM)
    _, said = starting.communicate(timeout=60)
    assert (starting.returncode, "Traceback" in said) == (0, False), said


SWALLOWED = """
import os, signal
from gateway.listener.early import early
class Told:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass
class Broken:
    def __del__(self):
        raise ValueError("still told")
early.arm()
Told()
Broken()
print(early.asked)
"""


def test_exit_inside_a_finalizer_is_remembered_and_no_error() -> None:
    """What the interpreter swallows there is no fault to report; what else goes wrong in one is."""
    done = subprocess.run([sys.executable, "-c", SWALLOWED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert ("SystemExit" in done.stderr, "still told" in done.stderr) == (False, True)


async def test_who_connected_before_it_served_is_answered(tmp_path: Path) -> None:
    """Its sockets are bound, nothing reads them yet, and it is told to stop: the drain begins with these."""
    with serving() as up:
        gateway = Gateway(tmp_path, up.address, CONFIG)
        with spawned(gateway.file) as process:
            caller: Caller | None = None

            async def connect() -> bool:
                nonlocal caller
                try:
                    caller = await Caller.connect(gateway.address)
                except OSError:
                    return False
                return True

            deadline = time.monotonic() + 60
            while not await connect():
                assert time.monotonic() < deadline
            process.send_signal(signal.SIGTERM)
            assert caller is not None
            await caller.send(request(token=token("a")))
            answer = await caller.response()
            assert (answer.status, answer.header("connection")) == (200, "close")
            caller.close()
            await until(lambda: process.poll() is not None, "ended", 30)
            assert process.returncode == 0


def test_failed_start_leaves_no_socket(tmp_path: Path) -> None:
    """The log cannot be written, which shows when both sockets are bound: one sentence, and the file is gone."""
    path = tmp_path / "s"
    gateway = Gateway(
        tmp_path,
        "http://127.0.0.1:9",
        {**CONFIG, "server": {"listen": f"unix:{path}"}, "telemetry": {"decision_log": str(tmp_path / "no" / "log")}},
    )
    with spawned(gateway.file) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Traceback" not in said
    assert not path.exists()


@pytest.mark.parametrize(
    ("way", "log"), [("2>&-", "off"), ("0<&- 1>&- 2>&-", "stderr"), ("2>&1 | true", "stderr"), ("2>/dev/full", "off")]
)
async def test_it_serves_though_nobody_hears_it(tmp_path: Path, way: str, log: str) -> None:
    """Stderr closed, its reader gone, its disk full: callers are served, a bad reload is refused, the end is 0."""
    with serving() as up:
        config = {**CONFIG, "telemetry": {"decision_log": log, "admit_sample": 1.0}}
        gateway = Gateway(tmp_path, up.address, config)
        serve = f"{sys.executable} -m gateway serve -c {gateway.file}"
        script = f"( {serve}; echo $? >{tmp_path}/code ) {way}" if "|" in way else f"{serve} {way}; echo $? >code"
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(["/bin/sh", "-c", script], cwd=tmp_path, env=environ) as shell:
            try:
                await until(lambda: _answers(gateway), "it serves", 60)
                async with await Caller.connect(gateway.address) as caller:
                    await caller.send(request(token=token("a")))
                    assert (await caller.response()).status == 200
                assert gateway.ask("/api/reload", "POST").status == 200
                gateway.file.write_text("bad", encoding="utf-8")
                assert gateway.ask("/api/reload", "POST").status == 409
                assert gateway.ask("/api/pause", "POST", b"{}").status == 400
            finally:
                for child in psutil.Process(shell.pid).children(recursive=True):
                    if "serve" in child.cmdline():
                        child.send_signal(signal.SIGTERM)
            await until((tmp_path / "code").exists, "it ends", 30)
            shell.wait(30)
        assert (tmp_path / "code").read_text(encoding="ascii").strip() == "0"


def _answers(gateway: Gateway) -> bool:
    with contextlib.suppress(OSError):
        return gateway.ask("/livez").status == 200
    return False


async def test_port_that_the_system_chose_is_named(tmp_path: Path) -> None:
    """Port 0 is any free one, and whoever started it must learn which."""
    gateway = Gateway(tmp_path, "http://127.0.0.1:9", {**CONFIG, "server": {"listen": "127.0.0.1:0"}})
    gateway.start()
    try:
        await until(lambda: "serving on" in gateway.stderr, "it says so")
        found = re.search(r"serving on (127\.0\.0\.1):(\d+), admin on (\S+)", gateway.stderr)
        assert found is not None
        assert found[3] == gateway.admin
        listening = psutil.Process(gateway.pid).net_connections()
        assert int(found[2]) in {one.laddr.port for one in listening if one.status == psutil.CONN_LISTEN}
    finally:
        gateway.stop()


def test_second_sigterm_on_the_way_out_is_exit_code_0(tmp_path: Path) -> None:
    """However often it is asked, to the last moment."""
    with running(tmp_path, "http://127.0.0.1:9", CONFIG) as gateway:
        deadline = time.monotonic() + 60
        while gateway.running:
            assert time.monotonic() < deadline
            gateway.signal(signal.SIGTERM)
            time.sleep(0.001)
        assert gateway.end() == 0


def test_swallowed_exit_is_remembered() -> None:
    """What a finalizer swallows is known later."""
    early = Early()
    with pytest.raises(SystemExit) as left:
        early._leave(signal.SIGTERM, None)
    assert left.value.code == 0
    assert early.asked
