"""What our own code costs on the path of a request, without a kernel: `python -m loadtest.bench.path`.

Octets go into the lane as from a socket and an answer comes from the upstream as from a socket, but both transports are
stand-ins that only count. So what is measured is all of ours and nothing of the network: fit for a profiler, and with
`--instructions` (valgrind) the same on every run, whatever else the machine does.

Rules
1. Everything is on, as `loadtest/peers/everything.py` has it.
2. Time is the smallest of many batches.
3. Instructions are those of the thread that serves, between two system calls that mark them, while others have nothing
   to do. Time stands and moves on by `_STEP_US` a request: else what is due by the clock (a deadline's turn, a line of
   the log, a new Date) would come the more often the slower the machine is. The collector rests, for a request leaves
   it nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import os
import pstats
import random
import re
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
from gateway.clock import Clock
from gateway.config import load
from gateway.listener.system import quiet_collector
from gateway.proxy.connection import Connection
from gateway.proxy.lane import Lane, lane
from gateway.proxy.upstream import Upstream
from loadtest.peers.everything import NARROW, WIDE, authorization, write
from policies.units import SECOND, Micros

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
#: Requests whose instructions are counted, and those before them, after which nothing is new.
_COUNTED, _WARM = 20 * _BATCH, 10 * _BATCH
#: How far time moves with a request that is counted.
_STEP_US: Micros = 50
#: System calls that nobody else makes: callgrind forgets at the first what it has counted, and writes at the second.
_BEGIN, _END = os.getppid, os.getpgrp
_VALGRIND = (
    "valgrind", "--tool=callgrind", "--separate-threads=yes", "--zero-before=getppid", "--dump-before=getpgrp",
)  # fmt: skip


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


class _Standing(asyncio.SelectorEventLoop):
    """A loop whose time, and with it everybody's, is what the bench says."""

    def __init__(self) -> None:
        super().__init__()
        # A full minute: whatever is done once in so many seconds is done in none of the requests, or in the same.
        self.at: Micros = (time.time_ns() // (60 * 1_000_000_000) + 1) * 60 * SECOND
        for reading in ("now", "wall"):
            setattr(Clock, reading, lambda _: self.at)  # of this process, which ends with it

    def time(self) -> float:
        return self.at / SECOND


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
        loop = asyncio.get_running_loop()
        standing = loop if isinstance(loop, _Standing) else None
        for _ in range(times):
            if standing is not None:
                standing.at += _STEP_US
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


async def _opened(folder: Path, kind: str) -> tuple[Gateway, _Path]:
    """Return a gateway, and a path through it by which a first batch has gone."""
    gateway = compose(load(write(folder, listen=1, admin=2, upstream=3), {}))
    await gateway.start()
    gateway.telemetry.stop()  # its threads would be measured too; what is recorded is recorded all the same
    credential, status = KINDS[kind]
    path = _Path(gateway, credential)
    await path.ask(_BATCH)
    path.caller.wanted, path.caller.answers = b"HTTP/1.1 " + status, 0
    return gateway, path


async def _timed(folder: Path, kind: str, requests: int, profile: cProfile.Profile | None) -> float:
    """Return the fewest nanoseconds a request took, over batches; raises RuntimeError if it was answered otherwise."""
    gateway, path = await _opened(folder, kind)
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
    _check(path, turns * _BATCH, kind)
    return best


async def _marked(folder: Path, kind: str) -> None:
    """Send what is counted, marked for callgrind; raises RuntimeError if it was answered otherwise."""
    gateway, path = await _opened(folder, kind)
    for first, requests in ((True, _WARM), (False, _COUNTED)):
        for number in range(requests // _BATCH):
            await path.ask(_BATCH)
            if number % _TICK == 0:
                gateway.tick()
        if first:
            gateway.identity.stop()
            gateway.history.stop()
            gateway.acts.close()
            quiet_collector()
            gc.disable()
            _BEGIN()
    _END()
    _check(path, _WARM + _COUNTED, kind)


def _check(path: _Path, asked: int, kind: str) -> None:
    if path.caller.answers != asked:
        raise RuntimeError(f"{path.caller.answers} of {asked} requests were {kind}")


def _run(kind: str, requests: int, profile: cProfile.Profile | None = None) -> float:
    with TemporaryDirectory() as folder, chdir(folder):
        return uvloop.run(_timed(Path(folder), kind, requests, profile))


def _mark(kind: str) -> None:
    random.seed(0)
    with (
        TemporaryDirectory() as folder,
        chdir(folder),
        asyncio.Runner(loop_factory=_Standing) as runner,
    ):
        runner.run(_marked(Path(folder), kind))


def instructions(kind: str) -> float:
    """Return the instructions of one request. RuntimeError without valgrind's callgrind."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "counted"
        done = subprocess.run(
            [*_VALGRIND, f"--callgrind-out-file={out}", sys.executable, "-m", _MODULE, "--kind", kind, "--mark"],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        # The first dump of the first thread.
        counted = out.with_name("counted.1-01")
        found = re.search(r"^totals: (\d+)$", counted.read_text("utf-8"), re.MULTILINE) if counted.exists() else None
    if done.returncode or found is None:
        raise RuntimeError(f"valgrind counted nothing: {done.stderr[-500:]}")
    return int(found[1]) / _COUNTED


def main() -> int:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--profile", action="store_true", help="print where the time goes, by function")
    parser.add_argument("--instructions", action="store_true", help="count instructions with valgrind")
    parser.add_argument("--mark", action="store_true", help="only send what is counted; meant for valgrind")
    asked = parser.parse_args()
    for kind in [asked.kind] if asked.kind else KINDS:
        if asked.instructions:
            print(f"{kind:10}{instructions(kind):10,.0f} instructions a request")
        elif asked.mark:
            _mark(kind)
        elif asked.profile:
            profile = cProfile.Profile()
            _run(kind, asked.requests, profile)
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        else:
            print(f"{kind:10}{_run(kind, asked.requests) / 1000:8.2f} us a request")
    return 0


if __name__ == "__main__":
    sys.exit(main())
