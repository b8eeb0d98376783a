"""Where, when, with what and by which command something was measured: what a figure is worth nothing without."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from loadtest.peers import client
from loadtest.peers.contestants import CONTESTANTS, version

__all__ = ["about", "sentence"]

_ROOT = Path(__file__).resolve().parents[2]
#: What decides what is measured. Results, which a run writes, do not.
_MEASURED = ("gateway", "policies", "loadtest/bench", "loadtest/peers", "hatch_build.py")
_PACKAGES = ("uvloop", "httptools", "uvicorn", "httpx", "aiohttp")


def about(module: str, running: Iterable[str], missing: Iterable[str], rounds: int, seconds: float) -> dict[str, Any]:
    """Return everything that is said of a run of `python -m module`."""
    there = set(running)
    peers = {one.binary: version(one) for one in CONTESTANTS if one.name in there and one.binary}
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": _commit(),
        "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {_short(platform.release())}",
        "load": round(os.getloadavg()[0], 1),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: found for name in _PACKAGES if (found := _package(name))},
        "peers": peers,
        "client": client.name(),
        "rounds": rounds,
        "seconds": seconds,
        "missing": list(missing),
    }


def sentence(said: Mapping[str, Any]) -> str:
    """Return what stands above a table."""
    versions = [f"{name} {number}".strip() for name, number in {**said["packages"], **said["peers"]}.items()]
    missing = f" Not installed, so not measured: {', '.join(said['missing'])}." if said["missing"] else ""
    rounds = "1 round" if said["rounds"] == 1 else f"{said['rounds']} rounds"
    again = " Taken up again after a break." if said.get("resumed") else ""
    return (
        f"Measured on {said['date']} at commit {said['commit']} by `{said['command']}`: "
        f"{rounds} of {said['seconds']:g} s; {said['machine']}, a load of {said['load']} before; {said['python']}; "
        f"{', '.join(versions)}; client {said['client']}.{again}{missing}"
    )


def _commit() -> str:
    """Return the commit, and whether anything that is measured differs from it."""
    named = _git("rev-parse", "--short", "HEAD") or "unknown"
    return named + (" with changes" if _git("status", "--porcelain", "--", *_MEASURED) else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())


def _short(release: str) -> str:
    return ".".join(release.split(".")[:2])


def _package(name: str) -> str:
    try:
        return installed(name)
    except PackageNotFoundError:
        return ""
