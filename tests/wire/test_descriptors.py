"""Descriptors of a real process: whoever holds connections takes them from nobody who asks for something."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from tests.wire.caller import Caller, call, request
from tests.wire.gateway import Gateway, tenants, token
from tests.wire.limited import FILES
from tests.wire.origin import serving

__all__: list[str] = []

ASKED = request(token=token("a"))


class Limited(Gateway):
    """One with few descriptors."""

    command = ("tests.wire.limited", "serve")


def hold(address: str, number: int) -> socket.socket:
    """Connect from one of two hundred addresses, and begin a head."""
    host, _, port = address.rpartition(":")
    held = socket.socket()
    held.bind((f"127.0.1.{number % 200 + 1}", 0))
    held.settimeout(2)
    with contextlib.suppress(OSError):
        held.connect((host, int(port)))
        held.sendall(b"GET / HTTP/1.1\r\nX: ")
    return held


async def test_held_connections_leave_descriptors_for_others(tmp_path: Path) -> None:
    """More than there are descriptors: a kept connection and a new one are served, the admin listener answers."""
    with serving() as up:
        gateway = Limited(tmp_path, up.address, {"tenants": tenants("a", quota="1000/s")})
        gateway.start()
        held = []
        try:
            async with await Caller.connect(gateway.address, source="127.0.0.9") as kept:
                await kept.send(ASKED)
                assert (await kept.response()).status == 200
                held = [hold(gateway.address, number) for number in range(2 * FILES)]
                await kept.send(ASKED)
                assert (await kept.response()).status == 200
                assert (await call(gateway.address, ASKED, source="127.0.0.8")).status == 200
                assert 50 < gateway.metrics().by("side", "evenhand_connections")["caller"] < FILES // 2
            assert "Traceback" not in gateway.stderr
        finally:
            for one in held:
                one.close()
            gateway.stop()
