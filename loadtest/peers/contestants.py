"""Who is compared, and how each is started: on one processor, on a port of its own, in front of the same origin.

Rules
1. Nobody is tuned against anybody: one worker each, kept connections to the origin, a limit keyed by credential where
   the peer has one, no access log. `envoy, same work` alone does what ours does, as far as it can.
2. A peer that is not installed is named as missing, never silently left out.
3. Ours is what `make compiled` built, beside the same in pure Python.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.peers import everything, meter
from loadtest.peers.cells import MANY

__all__ = ["CONTESTANTS", "Contestant", "Running", "free_port", "start", "start_origin", "version"]

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_COMPILED = _ROOT / "build" / "compiled"
_START_SECONDS = 60.0

#: Makes the command that serves, from its folder, its port and the origin's.
Command = Callable[[Path, int, int], list[str]]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to serve. `binary` is looked for in $BENCH_PATH, beside this interpreter and on the path.

    Without a binary it is Python; `tree` is where the gateway is imported from, and missing if it is not there.
    """

    name: str
    binary: str
    command: Command
    version: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    tree: Path = _ROOT

    def path(self) -> str | None:
        """Return the binary that runs, or None if it is not installed."""
        if not self.binary:
            return sys.executable if self.tree.exists() else None
        places = (os.environ.get("BENCH_PATH"), str(Path(sys.executable).parent), os.environ.get("PATH"), "/usr/sbin")
        return shutil.which(self.binary, path=":".join(filter(None, places)))


@dataclass(slots=True)
class Running:
    """A contestant that serves."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    @property
    def pids(self) -> list[int]:
        """All its processes."""
        return meter.descendants(self.process.pid)

    def stop(self) -> None:
        """End it, by force if it does not go."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _filled(folder: Path, template: str, **names: object) -> Path:
    text = (_HERE / template).read_text(encoding="utf-8")
    for key, value in names.items():
        text = text.replace(f"@{key}@", str(value))
    path = folder / template
    path.write_text(text, encoding="utf-8")
    return path


def _evenhand(tenants: int) -> Command:
    def command(folder: Path, listen: int, upstream: int) -> list[str]:
        path = everything.write(folder, listen=listen, admin=free_port(), upstream=upstream, tenants=tenants)
        return [sys.executable, "-m", "gateway", "serve", "-c", str(path)]

    return command


def _shell(client: str) -> Command:
    def command(folder: Path, listen: int, upstream: int) -> list[str]:
        path = everything.write(folder, listen=free_port(), admin=free_port(), upstream=upstream)
        own = ["--config", str(path), "--port", str(listen), "--client", client]
        return [sys.executable, "-m", "loadtest.peers.shell", *own]

    return command


def _nginx(folder: Path, listen: int, upstream: int) -> list[str]:
    path = _filled(folder, "nginx.conf", FOLDER=folder, LISTEN=listen, UPSTREAM=upstream)
    return ["nginx", "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(path)]


def _haproxy(folder: Path, listen: int, upstream: int) -> list[str]:
    return ["haproxy", "-db", "-f", str(_filled(folder, "haproxy.cfg", LISTEN=listen, UPSTREAM=upstream))]


def _caddy(folder: Path, listen: int, upstream: int) -> list[str]:
    path = _filled(folder, "Caddyfile", LISTEN=listen, UPSTREAM=upstream)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(path)]


def _envoy(keys: int) -> Command:
    def command(folder: Path, listen: int, upstream: int) -> list[str]:
        bucket = {"max_tokens": 10**9, "tokens_per_fill": 10**9, "fill_interval": "1s"}
        values = [everything.authorization(number) for number in range(keys)]
        descriptors = [{"entries": [{"key": "who", "value": value}], "token_bucket": bucket} for value in values]
        by_field = {"request_headers": {"header_name": "authorization", "descriptor_key": "who"}}
        actions = [{"actions": [by_field]}] if keys else []
        filled = {"DESCRIPTORS": json.dumps(descriptors), "ACTIONS": json.dumps(actions)}
        path = _filled(folder, "envoy.yaml", LISTEN=listen, UPSTREAM=upstream, **filled)
        return _one_worker(path)

    return command


def _envoy_alike(folder: Path, listen: int, upstream: int) -> list[str]:
    names = {"FOLDER": folder, "ISSUER": everything.ISSUER, "AUDIENCE": everything.AUDIENCE, "JWKS": everything.jwks()}
    return _one_worker(_filled(folder, "envoy-alike.yaml", LISTEN=listen, UPSTREAM=upstream, **names))


def _one_worker(path: Path) -> list[str]:
    return ["envoy", "-c", str(path), "--concurrency", "1", "-l", "warning", "--use-dynamic-base-id"]


def _naive(_folder: Path, listen: int, upstream: int) -> list[str]:
    return [sys.executable, "-m", "loadtest.peers.naive", str(listen), str(upstream)]


CONTESTANTS = (
    Contestant("evenhand", "", _evenhand(1), tree=_COMPILED),
    Contestant("evenhand, 10,000 tenants", "", _evenhand(MANY), tree=_COMPILED),
    Contestant("evenhand as ASGI app", "", _shell("pool"), tree=_COMPILED),
    Contestant("evenhand as ASGI app, aiohttp", "", _shell("aiohttp"), tree=_COMPILED),
    Contestant("evenhand, pure Python", "", _evenhand(1)),
    Contestant("evenhand as ASGI app, pure Python", "", _shell("pool")),
    Contestant("evenhand as ASGI app, pure Python, aiohttp", "", _shell("aiohttp")),
    Contestant("nginx", "nginx", _nginx, ("-v",)),
    Contestant("haproxy", "haproxy", _haproxy, ("-v",)),
    Contestant("envoy", "envoy", _envoy(0), ("--version",)),
    Contestant("envoy, 100 keys", "envoy", _envoy(100), ("--version",)),
    Contestant("envoy, 10,000 keys", "envoy", _envoy(MANY), ("--version",)),
    Contestant("envoy, same work", "envoy", _envoy_alike, ("--version",)),
    Contestant("caddy", "caddy", _caddy, ("version",), {"GOMAXPROCS": "1"}),
    Contestant("uvicorn + httpx", "", _naive),
)


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def version(contestant: Contestant) -> str:
    """Return the version of a peer, by its own word; nothing if it has none to tell."""
    path = contestant.path()
    if path is None or not contestant.version:
        return ""
    said = subprocess.run([path, *contestant.version], capture_output=True, text=True, check=False)
    found = re.search(r"(?<![\d.])\d+\.\d+\.\d+", said.stdout + said.stderr)
    return found[0] if found else ""


def start(contestant: Contestant, folder: Path, origin: int, cpu: int | None) -> Running:
    """Start a contestant on processor `cpu`; returns once it serves. Raises RuntimeError if it does not come up."""
    folder.mkdir(parents=True)
    port = free_port()
    command = contestant.command(folder, port, origin)
    binary = contestant.path()
    if contestant.binary and binary is not None:
        command[0] = binary
    environ = {**contestant.environ, "PYTHONPATH": f"{contestant.tree}:{_ROOT}"}
    return _up(contestant.name, command, folder, port, cpu, environ)


def start_origin(folder: Path, cpu: int | None) -> Running:
    """Start the origin."""
    folder.mkdir(parents=True)
    port = free_port()
    command = [sys.executable, "-m", "loadtest.peers.origin", str(port)]
    return _up("origin", command, folder, port, cpu, {"PYTHONPATH": str(_ROOT)})


def _up(name: str, command: list[str], folder: Path, port: int, cpu: int | None, environ: dict[str, str]) -> Running:
    if cpu is not None:
        command = ["taskset", "-c", str(cpu), *command]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("EVENHAND_")}
    log = folder / "output.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**inherited, **environ}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    running = Running(name, port, process)
    deadline = time.monotonic() + _START_SECONDS
    while not _listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            running.stop()
            raise RuntimeError(f"{name} did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)
    return running


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
