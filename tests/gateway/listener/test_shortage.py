"""What is said when accepting fails."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from gateway.listener import shortage
from gateway.listener.shortage import SHORT, Shortage

__all__: list[str] = []


async def test_a_shortage_is_one_line_a_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is met, without a traceback; how often is said in the next line."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(Shortage())
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    for _ in range(1000):
        loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": error})
    assert [record.getMessage() for record in caplog.records] == [
        "a connection could not be accepted: Too many open files"
    ]
    assert caplog.records[0].exc_info is None
    monkeypatch.setattr(shortage, "_PAUSE", 0.0)
    loop.call_exception_handler({"message": "", "exception": error})
    assert caplog.records[-1].getMessage().endswith("(999 more since the last line)")


async def test_all_else_is_reported_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    """Another error has its traceback."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(Shortage())
    for error in (OSError(errno.EPIPE, "pipe"), ValueError("wrong")):
        loop.call_exception_handler({"message": "broken", "exception": error})
        assert caplog.records[-1].exc_info is not None
    assert errno.EPIPE not in SHORT
