"""What a serving process asks of its system."""

from __future__ import annotations

import gc
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.listener.system import notify, raise_file_limit
from tests.wire.gateway import ROOT

__all__: list[str] = []


def test_limit_on_files_is_raised_to_the_hard_one() -> None:
    """In a process of its own, which began with a small one."""
    script = "import resource; from gateway.listener.system import raise_file_limit; print(raise_file_limit())"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, preexec_fn=small, capture_output=True, check=True, timeout=30
    )
    assert int(ran.stdout) == hard


def test_limit_that_may_not_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then what there is must do."""

    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 128))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_file_limit() == 64


@pytest.mark.parametrize("abstract", [False, True])
def test_supervisor_hears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    """By `$NOTIFY_SOCKET`, a path or an abstract name."""
    name = f"@evenhand-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind("\0" + name[1:] if abstract else name)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        assert notify("READY=1")
        assert ear.recv(64) == b"READY=1"


def test_nobody_to_hear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, or with one that is gone, nothing happens."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    assert not notify("READY=1")


def test_collector_leaves_what_stands_alone() -> None:
    """In a process of its own: what lives is frozen, and collections are rarer."""
    script = (
        "import gc; from gateway.listener.system import quiet_collector; quiet_collector(); "
        "print(gc.get_freeze_count() > 1000, gc.get_threshold()[0])"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True, timeout=120)
    assert ran.stdout.split() == [b"True", b"50000"]
    assert gc.get_freeze_count() == 0


def test_what_is_logged_reads_as_every_other_message() -> None:
    """One style on stderr: who says it, how bad it is, and a sentence."""
    script = (
        "import logging, sys; from gateway.listener.system import log_to; log_to(sys.stdout); "
        "log = logging.getLogger('evenhand.x'); log.warning('%s is odd', 'that'); log.error('worse'); log.info('no')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    assert ran.stdout == "evenhand: warning: that is odd\nevenhand: error: worse\n"
