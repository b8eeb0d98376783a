"""What goes wrong inside the admin listener is told to the operator in full, and to the peer not at all."""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
from pathlib import Path
from unittest.mock import Mock

import pytest

from gateway.listener.sockets import bind
from gateway.serve import AdminThread
from tests.gateway.admin.served import Served

__all__: list[str] = []


async def test_bug_is_a_clean_problem_and_a_traceback_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 without a word of what went wrong; the log, which goes to stderr, has it with its traceback."""
    served = Served(tmp_path)
    monkeypatch.setattr(served.telemetry.metrics, "render", Mock(side_effect=KeyError("what went wrong")))
    listener = bind("127.0.0.1:0")
    thread = AdminThread(served.app, listener)
    thread.start()
    try:
        answer, body = await asyncio.to_thread(ask, listener)
    finally:
        thread.stop()
    assert answer.status == 500
    assert answer.getheader("content-type") == "application/problem+json"
    assert b"went wrong" not in body
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert "what went wrong" in str(record.exc_info[1])


def ask(listener: socket.socket) -> tuple[http.client.HTTPResponse, bytes]:
    """Scrape."""
    connection = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=5)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body
