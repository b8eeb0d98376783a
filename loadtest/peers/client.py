"""The caller: wrk where it is installed, else a loop of our own that says the same of fewer requests a second.

One run sends GET over so many connections, each sending its next request when the answer to the last is there. wrk
counts in whole seconds: shorter runs are our own's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httptools
import uvloop

__all__ = ["Asked", "Seen", "name", "run"]

_SCRIPT = Path(__file__).with_name("wrk.lua")
_FIELDS = ("Accept: application/json",)


@dataclass(frozen=True, slots=True)
class Asked:
    """What to send: to `url`, as `authorization` (or as each line of the file `many` from `begin` on), for how long."""

    url: str
    authorization: str
    connections: int
    seconds: float
    keep_alive: bool = True
    many: Path | None = None
    begin: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of it. `other` are answers other than 2xx and 3xx, `errors` connections that failed."""

    requests: int
    seconds: float
    bytes: int
    errors: int
    other: int
    p50_us: int
    p99_us: int


def name() -> str:
    """Return which client runs, with its version if it says one."""
    if not shutil.which("wrk"):
        return "our own client"
    said = subprocess.run(["wrk", "-v"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+(\.\d+)+", said.stdout + said.stderr)
    return f"wrk {found[0]}" if found else "wrk"


def run(asked: Asked, cpu: int | None) -> Seen:
    """Send requests for a while, on processor `cpu`. Raises RuntimeError if the client fails."""
    command = ["taskset", "-c", str(cpu)] if cpu is not None else []
    command += _wrk(asked) if asked.seconds >= 1 and shutil.which("wrk") else _own(asked)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the client failed: {done.stderr or done.stdout}")
    return Seen(**json.loads(done.stdout.splitlines()[-1]))


def _wrk(asked: Asked) -> list[str]:
    command = ["wrk", "-t", "1", "-c", str(asked.connections), "-d", f"{round(asked.seconds)}s"]
    command += ["--timeout", "20s", "-s", str(_SCRIPT)]
    for field in (*_FIELDS, f"Authorization: {asked.authorization}"):
        command += ["-H", field]
    if not asked.keep_alive:
        command += ["-H", "Connection: close"]
    return [*command, asked.url, *(["--", str(asked.many), str(asked.begin)] if asked.many else [])]


def _own(asked: Asked) -> list[str]:
    command = [sys.executable, "-m", "loadtest.peers.client", asked.url, asked.authorization]
    command += [str(asked.connections), str(asked.seconds), "keep" if asked.keep_alive else "close"]
    return [*command, *([str(asked.many), str(asked.begin)] if asked.many else [])]


class _Tally:
    """All connections of a run."""

    def __init__(self, requests: list[bytes], deadline: float, begin: int) -> None:
        self.deadline = deadline
        self.took: list[int] = []
        self.bytes = self.other = self.errors = 0
        self._requests = requests
        self._at = begin - 1

    def next(self) -> bytes:
        """Return the next request to send."""
        self._at += 1
        return self._requests[self._at % len(self._requests)]


class _Caller(asyncio.Protocol):
    """One connection, which is made again where the server closes it."""

    def __init__(self, tally: _Tally, address: tuple[str, int]) -> None:
        self._tally = tally
        self._address = address
        self._begun = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._tally.bytes += len(data)
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._tally.took.append(time.perf_counter_ns() - self._begun)
        self._tally.other += self._parser.get_status_code() >= 400
        if self._parser.should_keep_alive():
            self._parser = httptools.HttpResponseParser(self)
            asyncio.get_running_loop().call_soon(self._send)

    def connection_lost(self, exc: Exception | None) -> None:
        self._tally.errors += exc is not None
        if time.monotonic() < self._tally.deadline:
            loop = asyncio.get_running_loop()
            task = loop.create_task(loop.create_connection(lambda: self, *self._address))
            task.add_done_callback(lambda done: done.exception())

    def _send(self) -> None:
        if not self._transport.is_closing() and time.monotonic() < self._tally.deadline:
            self._begun = time.perf_counter_ns()
            self._transport.write(self._tally.next())


async def _ask(asked: Asked, authorizations: list[str]) -> Seen:
    parts = urlsplit(asked.url)
    address = (parts.hostname or "127.0.0.1", parts.port or 80)
    more = "" if asked.keep_alive else "Connection: close\r\n"
    head = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{_FIELDS[0]}\r\n{more}Authorization: "
    requests = [f"{head}{one}\r\n\r\n".encode() for one in authorizations]
    tally = _Tally(requests, time.monotonic() + asked.seconds, asked.begin)
    loop = asyncio.get_running_loop()
    begun = time.monotonic()
    await asyncio.gather(
        *(loop.create_connection(lambda: _Caller(tally, address), *address) for _ in range(asked.connections))
    )
    await asyncio.sleep(max(0.0, tally.deadline - time.monotonic()))
    took = sorted(tally.took) or [0]
    p50, p99 = (took[min(len(took) - 1, int(len(took) * part))] // 1000 for part in (0.5, 0.99))
    return Seen(len(tally.took), time.monotonic() - begun, tally.bytes, tally.errors, tally.other, p50, p99)


def main() -> None:
    """Run the client of our own and print what it saw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("authorization")
    parser.add_argument("connections", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("keep")
    parser.add_argument("many", nargs="?", type=Path)
    parser.add_argument("begin", nargs="?", type=int, default=0)
    given = vars(parser.parse_args())
    asked = Asked(keep_alive=given.pop("keep") == "keep", **given)
    lines = asked.many.read_text().splitlines() if asked.many else [asked.authorization]
    seen = uvloop.run(_ask(asked, lines))
    print(json.dumps({field: getattr(seen, field) for field in Seen.__slots__}))


if __name__ == "__main__":
    main()
