"""GW: the gateway as users start it, a process of its own on free loopback ports.

Rules
1. It is driven by its command, its gateway.toml and signals, and read by its two listeners, its log and its exit code.
2. A start is bounded; a stop is SIGTERM, must end with exit code 0, and nothing on stderr may be a traceback.
3. One gateway may serve a whole test module (a start takes a second): give each test tenants of its own.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.wire.caller import Response
from tests.wire.origin import Origin
from tests.wire.tokens import pat
from tests.wire.toml import Document, merged, written

__all__ = ["START_SECONDS", "Gateway", "Metrics", "free_port", "running", "tenant", "tenants", "token"]

START_SECONDS = 60.0
STOP_SECONDS = 60.0
ROOT = Path(__file__).resolve().parents[2]


#: No browser opens these, whoever listens there (Fetch standard, "bad port").
_UNSAFE = {2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080}


def _ports() -> Iterator[int]:
    """Yield ports of a range of this process's own, round and round.

    Not such as the system gives to whoever asks for any: between the asking and a gateway's start another would get the
    same one, and an answer of its gateway would pass for one of ours. Those of Redis begin at 12,000.
    """
    first = 2_000 + 2_000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 5)
    start = random.randrange(2_000)
    for turn in itertools.count(start):
        if (port := first + turn % 2_000) not in _UNSAFE:
            yield port


_PORTS = _ports()


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    for port in _PORTS:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("there is no end of ports")


def token(tenant_id: str, credential: str = "ci") -> str:
    """Return the personal access token of a credential that `tenant` declared."""
    return pat(f"{tenant_id}/{credential}").token


def tenant(id: str, *, credentials: Iterable[str] = ("ci",), entry: Document | None = None, **rules: Any) -> Document:
    """Return a `[[tenants]]` entry: `rules` go to each credential, `entry` to the tenant itself.

    Unless told otherwise a credential has 10/s with burst 20, as the cases do.
    """
    rules.setdefault("quota", "10/s burst 20")
    listed = [{"id": name, "pat": pat(f"{id}/{name}").digest, **rules} for name in credentials]
    return {"id": id, **(entry or {}), "credentials": listed}


def tenants(*ids: str, **rules: Any) -> list[Document]:
    """Return an entry for each of `ids`, alike."""
    return [tenant(id, **rules) for id in ids]


class Metrics:
    """One scrape."""

    def __init__(self, text: str) -> None:
        self.samples = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of the samples called `name` that carry `labels`."""
        wanted = labels.items()
        return sum(value for found, have, value in self.samples if found == name and wanted <= have.items())

    def value(self, name: str, **labels: str) -> float | None:
        """Return the one sample called `name` with `labels`, None if it has none."""
        found = [value for have, given, value in self.samples if have == name and labels.items() <= given.items()]
        assert len(found) <= 1, f"{name}{labels} has {len(found)} samples"
        return found[0] if found else None

    def by(self, label: str, name: str) -> dict[str, float]:
        """Return the samples of `name` summed by `label`."""
        found: dict[str, float] = {}
        for have, labels, value in self.samples:
            if have == name:
                found[labels[label]] = found.get(labels[label], 0.0) + value
        return found


class Gateway:
    """A running `evenhand serve`. `address` and `admin` are host:port, `log` its decisions, `config` its document."""

    command = ("gateway", "serve")

    def __init__(self, folder: Path, upstream: str, config: Document, environ: Mapping[str, str] | None = None) -> None:
        self.address, self.admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.folder, self.log = folder, folder / "decisions.log"
        self.file, self._stderr = folder / "gateway.toml", folder / "stderr.txt"
        base = {
            "server": {"listen": self.address, "admin": self.admin, "drain_timeout": "5s"},
            # Short, so that a test sees the pool go back to nothing.
            "upstream": {"url": upstream, "keepalive_timeout": "250ms"},
            # The default is what a posture begins at on a busy machine, which no test means that does not say so.
            "store": {"deadline": "2s"},
            "backstop": {"quota": "100/s burst 100"},
            "telemetry": {"decision_log": str(self.log), "admit_sample": 1.0},
        }
        self.config = merged(base, config)
        self.file.write_text(written(self.config), encoding="utf-8")
        self._environ = {key: value for key, value in os.environ.items() if not key.startswith("EVENHAND_")}
        self._environ |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default", **(environ or {})}
        self._process: subprocess.Popen[bytes] | None = None

    # Life

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def stderr(self) -> str:
        """What it said on stderr so far."""
        return self._stderr.read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start, and return once it is ready."""
        command = [sys.executable, "-m", *self.command, "-c", str(self.file)]
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=self._environ, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            assert self._process.poll() is None, f"exited with {self._process.returncode}: {self.stderr}"
            assert time.monotonic() < deadline, f"not ready within {START_SECONDS} s: {self.stderr}"
            time.sleep(0.02)

    def stop(self) -> None:
        """Ask it to end; fail if it does not end well."""
        code = self.end()
        assert code == 0, f"exit code {code}: {self.stderr}"
        for word in ("Traceback", "ResourceWarning", "was never awaited"):
            assert word not in self.stderr, self.stderr

    def end(self, signum: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code."""
        assert self._process is not None
        self._process.send_signal(signum)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def signal(self, signum: int) -> None:
        """Send a signal, SIGHUP for a reload, and go on."""
        assert self._process is not None
        self._process.send_signal(signum)

    @property
    def running(self) -> bool:
        """True until the process has ended."""
        return self._process is not None and self._process.poll() is None

    # What it says of itself

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **fields: str) -> Response:
        """Ask the admin listener; `fields` are header fields, `_` standing for `-`."""
        connection = http.client.HTTPConnection(self.admin, timeout=30)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in fields.items()})
            answer = connection.getresponse()
            listed = [(name.encode(), value.encode("latin-1")) for name, value in answer.getheaders()]
            return Response(answer.status, listed, [(time.monotonic(), answer.read())], complete=True)
        finally:
            connection.close()

    def metrics(self) -> Metrics:
        """Return a scrape."""
        answer = self.ask("/metrics")
        assert answer.status == 200, answer
        return Metrics(answer.body.decode())

    def fairness(self, window: str = "1m") -> dict[str, Any]:
        """Return `/api/fairness`."""
        answer = self.ask(f"/api/fairness?window={window}")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    def row(self, tenant_id: str, window: str = "1m") -> dict[str, Any] | None:
        """Return one tenant's row of `/api/fairness`, None if it has none."""
        rows: list[dict[str, Any]] = self.fairness(window)["tenants"]
        return next((row for row in rows if row["tenant"] == tenant_id), None)

    def log_lines(self) -> list[dict[str, Any]]:
        """Return the decision log, but for a line that is being written."""
        if not self.log.exists():
            return []
        written, _, _ = self.log.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in written.splitlines()]

    def sockets(self) -> int:
        """Return how many sockets it holds beside those that listen."""
        connections = psutil.Process(self.pid).net_connections("all")
        return sum(1 for one in connections if one.status not in {psutil.CONN_LISTEN, psutil.CONN_NONE})

    def memory(self) -> int:
        """Return the octets it has resident."""
        resident: int = psutil.Process(self.pid).memory_info().rss
        return resident

    def _ready(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask("/readyz").status == 200
        return False


@contextlib.contextmanager
def running(
    folder: Path, up: Origin | str, config: Document, environ: Mapping[str, str] | None = None
) -> Iterator[Gateway]:
    """Run a gateway in front of `up` for the length of a `with`; it must end well, unless the test failed already."""
    gateway = Gateway(folder, up if isinstance(up, str) else up.address, config, environ)
    try:
        gateway.start()
        yield gateway
    except BaseException:
        if gateway.running:
            gateway.end(signal.SIGKILL)
        raise
    if gateway.running:
        gateway.stop()
