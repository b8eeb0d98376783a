"""What our own code costs on the path of a request, without a kernel: `python -m loadtest.bench.path`.

Octets go into the lane as from a socket and an answer comes from the upstream as from a socket, but both transports are
stand-ins that only count. So what is measured is all of ours and nothing of the network: fit for a profiler, and with
`--instructions` (valgrind) the same to within a fraction of a per cent on every run of one machine.

Rules
1. Everything is on, as `loadtest/peers/everything.py` has it.
2. Time is the smallest of many batches; instructions are the difference between a long run and a short one.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import pstats
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
import uvloop
from uvicorn.server import ServerState

from gateway.app import Gateway, compose
from gateway.config import load
from gateway.proxy.connection import Connection
from gateway.proxy.lane import Lane, lane
from gateway.proxy.upstream import Upstream
from loadtest.peers.everything import NARROW, WIDE, authorization, write

__all__ = ["KINDS", "instructions", "main"]

#: What is measured: which credential asks, and what it is told.
KINDS = {"proxied": (WIDE, b"200"), "refused": (NARROW, b"429")}

#: Requests of a batch, and batches between two ticks.
_BATCH, _TICK = 50, 10
_MODULE = "loadtest.bench.path"
_BODY = b'{"id":42,"name":"example","tags":["a","b","c"],"note":"a hundred octets of JSON, as small answers are."}'
_RESPONSE = (
    b"HTTP/1.1 200 OK\r\nServer: origin\r\nDate: Tue, 05 Aug 2025 10:00:00 GMT\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)
_REQUEST = (
    "GET /v1/things/42 HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: {}\r\nAccept: application/json\r\n\r\n"
)
#: Requests of the short and the long run whose instructions are compared.
_SHORT, _LONG = 10 * _BATCH, 30 * _BATCH


class _Socket(asyncio.Transport):
    """A transport that takes everything and sends nothing."""

    def __init__(self, *, peer: tuple[str, int] | None = None) -> None:
        super().__init__({"peername": peer, "sockname": ("127.0.0.1", 8080)} if peer else {})
        self.wanted = b""
        self.answers = 0
        self.reads = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.answers += bytes(data).startswith(self.wanted)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Keep the one there is."""

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Nothing is closed."""

    def close(self) -> None:
        """Nothing is open."""

    def abort(self) -> None:
        """As above."""


class _Path:
    """A caller's connection, a gateway, and one connection to an upstream."""

    def __init__(self, gateway: Gateway, credential: str) -> None:
        self._request = _REQUEST.format(authorization(credential=credential)).encode()
        self.caller = _Socket(peer=("127.0.0.1", 40_000))
        config = uvicorn.Config(gateway.endpoint, log_config=None, access_log=False)
        config.load()
        self._lane: Lane = lane(gateway.door)(config, ServerState(), {})
        self._lane.connection_made(self.caller)
        self._socket = _Socket()
        self._upstream = _dialled(gateway._upstreams[None], self._socket)  # noqa: SLF001 - a socket that is none

    async def ask(self, times: int) -> None:
        """Send so many requests, each after the answer to the one before, and nothing to whoever does not read."""
        lane_, upstream, request = self._lane, self._upstream, self._request
        for _ in range(times):
            lane_.data_received(request)
            if upstream.call is not None:
                upstream.data_received(_RESPONSE)
            while not (self.caller.reads and self._socket.reads):  # noqa: ASYNC110 - it is turns of the loop they want
                await asyncio.sleep(0)


def _dialled(upstream: Upstream, socket: _Socket) -> Connection:
    """Give the pool of an upstream a connection that was never dialled."""
    pool = upstream._pool  # noqa: SLF001 - as above
    connection = Connection(pool, pool.addresses.peers[0], asyncio.get_running_loop())
    connection.connection_made(socket)
    pool.connections.add(connection)
    pool._offer(connection)  # noqa: SLF001 - as above
    return connection


async def _with_path(folder: Path, kind: str, requests: int, profile: cProfile.Profile | None) -> float:
    """Return the fewest nanoseconds a request took, over batches; raises RuntimeError if it was answered otherwise."""
    loaded = load(write(folder, listen=1, admin=2, upstream=3), {})
    gateway = compose(loaded)
    await gateway.start()
    gateway.telemetry.stop()  # its threads would be measured too; what is recorded is recorded all the same
    credential, status = KINDS[kind]
    path = _Path(gateway, credential)
    await path.ask(_BATCH)
    path.caller.wanted, path.caller.answers = b"HTTP/1.1 " + status, 0
    best = float("inf")
    turns = max(1, requests // _BATCH)
    for number in range(turns):
        if profile is not None:
            profile.enable()
        begun = time.perf_counter_ns()
        await path.ask(_BATCH)
        best = min(best, (time.perf_counter_ns() - begun) / _BATCH)
        if profile is not None:
            profile.disable()
        if number % _TICK == 0:
            gateway.tick()
        await asyncio.sleep(0)
    if path.caller.answers != turns * _BATCH:
        raise RuntimeError(f"{path.caller.answers} of {turns * _BATCH} requests were {kind}")
    return best


def _run(kind: str, requests: int, profile: cProfile.Profile | None = None) -> float:
    with TemporaryDirectory() as folder, chdir(folder):
        return uvloop.run(_with_path(Path(folder), kind, requests, profile))


def _collected(kind: str, requests: int) -> int:
    """Return the instructions of a whole process that sends so many requests."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-m", _MODULE]
    done = subprocess.run(
        [*command, "--kind", kind, "--requests", str(requests)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    found = [line for line in done.stderr.splitlines() if "Collected :" in line]
    if done.returncode or not found:
        raise RuntimeError(f"valgrind counted nothing: {done.stderr[-500:]}")
    return int(found[0].rpartition(":")[2])


def instructions(kind: str) -> float:
    """Return the instructions of one request. RuntimeError without valgrind's callgrind."""
    return (_collected(kind, _LONG) - _collected(kind, _SHORT)) / (_LONG - _SHORT)


def main() -> int:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--profile", action="store_true", help="print where the time goes, by function")
    parser.add_argument("--instructions", action="store_true", help="count instructions with valgrind")
    asked = parser.parse_args()
    for kind in [asked.kind] if asked.kind else KINDS:
        if asked.instructions:
            print(f"{kind:10}{instructions(kind):10,.0f} instructions a request")
        elif asked.profile:
            profile = cProfile.Profile()
            _run(kind, asked.requests, profile)
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        else:
            print(f"{kind:10}{_run(kind, asked.requests) / 1000:8.2f} us a request")
    return 0


if __name__ == "__main__":
    sys.exit(main())
