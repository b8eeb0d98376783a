"""The demo from beginning to end: measure the machine, start the processes, let them call, show what comes of it.

Rules
1. Something is printed at once, and every second; in place on a terminal, as plain lines anywhere else.
2. The figures begin anew when the backfill starts: before that nobody is short of anything.
3. The same night in both modes. Only the gateway differs: `serve`, or one plain bucket for everybody (`gate.py`). But
   each run sizes service and callers by what the machine can do as it begins, so it says to what when it ends.
4. Ctrl-C, TERM and HUP end it early, with the same figures and exit code 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import orjson
import uvloop

from gateway.demo import table
from gateway.demo.drive import Drive, Line, measure
from gateway.demo.origin import UNMETERED
from gateway.demo.processes import Children, free_ports
from gateway.demo.tenants import BACKFILL, Night, night, toml
from gateway.errors import GatewayError

__all__ = ["show"]

_SECONDS = 30
#: The backfill starts after five seconds, or at half time if that comes first.
_CALM_SECONDS = 5.0
_READY_SECONDS = 15.0
#: Exchanges with the origin that this machine can do, for each unit of backstop: the rest is for the refused attempts.
_EXCHANGES = 150
_LEAST, _MOST = 60, 300

_NAMES = {"evenhand": "With Evenhand", "shared-bucket": "With one bucket for all"}
_OTHER = {
    "evenhand": "The same night with one bucket for all, sized anew: evenhand demo --mode shared-bucket",
    "shared-bucket": "The same night with Evenhand, sized anew: evenhand demo",
}


def show(seconds: int | None, mode: str) -> int:
    """Run the demo and return its exit code. Raises GatewayError if a child cannot be started or dies."""
    print(
        f"evenhand demo: a dozen light tenants, and one that starts a backfill. Mode {mode}. Starting ...", flush=True
    )
    with (
        contextlib.suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="evenhand-demo-") as folder,
        Children(Path(folder)) as children,
    ):
        uvloop.run(_Show(children, Path(folder), mode, float(seconds or _SECONDS)).run())
    return 0


class _Screen:
    """Where lines go: over the last ones on a terminal that has room for them, below them elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._height = 0

    def live(self, second: int, phase: str, title: str, rows: Sequence[table.Row], gateway: table.Gateway) -> None:
        """Show the state of one second."""
        lines = table.screen(title, rows, gateway)
        columns, height = shutil.get_terminal_size()
        if self._terminal and height > len(lines) + 1:
            self._over([text[:columns] for text in lines])
        else:
            print(table.line(second, phase, rows, gateway), flush=True)

    def final(self, title: str, rows: Sequence[table.Row], gateway: table.Gateway) -> None:
        """Show the whole table, to stay."""
        self._over(table.screen(title, rows, gateway))

    def _over(self, lines: Sequence[str]) -> None:
        back, erase = (f"\x1b[{self._height}A", "\x1b[2K") if self._height else ("", "")
        print(back + "\n".join(erase + text for text in lines), flush=True)
        self._height = len(lines) if self._terminal else 0


class _Show:
    """One run."""

    def __init__(self, children: Children, folder: Path, mode: str, seconds: float) -> None:
        self._children = children
        self._folder = folder
        self._mode = mode
        self._seconds = seconds
        self._stopped = asyncio.Event()
        self._screen = _Screen()
        self._gateway = table.Gateway()

    async def run(self) -> None:
        """Set up, play, and say how it ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopped.set)
        cast, port, admin = await self._start()
        if not self._stopped.is_set():
            await self._play(cast, port, Line(admin), admin)

    async def _start(self) -> tuple[Night, int, int]:
        origin_port, tell_origin = self._children.origin()
        exchanges = await measure(origin_port, UNMETERED)
        cast = night(max(_LEAST, min(_MOST, int(exchanges / _EXCHANGES) // 10 * 10)))
        tell_origin(cast.origin)
        port, admin = free_ports(2)
        config = self._folder / "gateway.toml"
        config.write_text(
            toml(
                cast,
                listen=f"127.0.0.1:{port}",
                admin=f"127.0.0.1:{admin}",
                upstream=f"http://127.0.0.1:{origin_port}",
                quotas=self._mode == "evenhand",
            )
        )
        self._children.gateway(["gateway.demo.gate", self._mode], config)
        await self._until_ready(admin)
        print(
            f"The service can do {cast.backstop} requests a second: what {exchanges:,.0f} exchanges a second on this "
            f"machine leave room for.\nDashboard: http://127.0.0.1:{admin}/ (while this runs)",
            flush=True,
        )
        return cast, port, admin

    async def _until_ready(self, admin: int) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _READY_SECONDS
        while not self._stopped.is_set():
            self._children.check()
            line = Line(admin)
            try:
                if (await line.get("/readyz")).status == 200:
                    return
            except TimeoutError:
                pass
            finally:
                line.close()
            if loop.time() > until:
                raise GatewayError(f"the demo's gateway was not ready within {_READY_SECONDS:.0f} s")
            await self._pause(0.05)

    async def _play(self, cast: Night, port: int, account: Line, admin: int) -> None:
        loop = asyncio.get_running_loop()
        drive = Drive(cast, port)
        began = since = loop.time()
        backfill_at = began + min(_CALM_SECONDS, self._seconds / 2)
        drive.start_light()
        address = f"dashboard http://127.0.0.1:{admin}/"
        phase, second = "calm", 0
        while loop.time() < began + self._seconds and not self._stopped.is_set():
            second += 1
            turn = backfill_at if phase == "calm" else began + self._seconds
            await self._pause(min(began + second, turn) - loop.time())
            self._children.check()
            if phase == "calm" and loop.time() >= backfill_at:
                drive.restart_counts()
                drive.start_backfill()
                phase, since = "backfill", loop.time()
            else:
                await self._account(account)
                rows = table.rows(drive.tallies, max(0.001, loop.time() - since))
                self._screen.live(second, phase, f"{self._title(phase, second, cast)} | {address}", rows, self._gateway)
        rows = table.rows(drive.tallies, max(0.001, loop.time() - since))
        drive.stop()
        await self._account(account)
        account.close()
        self._screen.final(self._title("the end", second, cast), rows, self._gateway)
        sized = f"This run was sized to a service of {cast.backstop} requests a second."
        print(f"{table.sentence(_NAMES[self._mode], rows, BACKFILL)}\n{sized}\n{_OTHER[self._mode]}", flush=True)

    def _title(self, phase: str, second: int, cast: Night) -> str:
        return f"mode {self._mode} | {phase} | {second} s | backstop {cast.backstop}/s"

    async def _account(self, account: Line) -> None:
        """Ask the gateway for its own figures; the last ones stay if it does not answer."""
        with contextlib.suppress(TimeoutError, orjson.JSONDecodeError):
            answer = await account.get("/api/fairness?window=1m", 1.0)
            if answer.status == 200:
                self._gateway = table.Gateway.of(orjson.loads(answer.body))

    async def _pause(self, seconds: float) -> None:
        """Wait, or less if the demo is told to end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), max(0.0, seconds))
