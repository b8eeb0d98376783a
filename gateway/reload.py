"""Reload: another configuration for a gateway that serves, or everything as it was.

Rules
1. All that can fail happens first, off the data plane: reading, checking, keys of issuers. Then one step on its loop
   goes over to the new one: no request is decided by half of each.
2. A bad file changes nothing. Its faults are answered, logged and warned of until a good one is read.
3. Buckets, counts and history stay. Requests under way keep their verdict and their upstream; pools that are gone end
   with their last call.
4. What a process cannot change while it serves keeps its value, with a warning: `KEPT`.
5. One reload at a time. A changed file is read once it has stood still for a second, a bad one once.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import logging
import threading
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.app import NO_FILE, Gateway
from gateway.config import Loaded, Settings
from gateway.config.document import Document, read_document
from gateway.config.loader import load_document
from gateway.errors import ConfigError, Fault, ReloadError

__all__ = ["KEPT", "Reloader", "Source", "kept"]

_LOG = logging.getLogger("evenhand.reload")

WATCH_SECONDS = 1.0

_STOPPING = "The gateway is stopping."
#: Nobody knows how far it came.
_OURS = Fault("-", "a fault of the gateway, not of the file; what is in force may be of both: restart it")

#: (section, key) of what needs a restart.
KEPT = (
    ("server", "listen"),
    ("server", "admin"),
    ("server", "workers"),
    ("server", "admin_token"),
    ("server", "tls_certificate"),
    ("server", "tls_key"),
    ("store", "url"),
    ("store", "namespace"),
    ("store", "ca_file"),
    ("store", "deadline"),
    ("store", "max_connections"),
    ("store", "path"),
    ("store", "max_keys"),
    ("telemetry", "decision_log"),
    ("telemetry", "decision_log_format"),
    ("sizing", "peak_interval"),
)

#: What a file looks like from outside: where, when, how long, which.
_Look = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a configuration comes from: its file, and the variables that it may name."""

    path: Path
    environ: Mapping[str, str]


def kept(old: Settings, new: Settings) -> tuple[Settings, tuple[Fault, ...]]:
    """Return `new` with what stands in KEPT as it was, and a warning for each key that would have changed."""
    warnings = []
    for section, key in KEPT:
        had, wanted = getattr(getattr(old, section), key), getattr(getattr(new, section), key)
        if had != wanted:
            table = getattr(new, section).model_copy(update={key: had})
            new = new.model_copy(update={section: table})
            warnings.append(Fault(f"{section}.{key}", "keeps its value until a restart"))
    return new, tuple(warnings)


class Reloader:
    """Reloads one gateway; made on its loop. Without a `source` there is nothing to read, and a reload is refused."""

    def __init__(self, gateway: Gateway, source: Source | None) -> None:
        self._gateway = gateway
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._read: tuple[_Look, ...] = ()
        self._patterns: list[str] = []
        self._looks = self._look()
        self._faults: tuple[Fault, ...] = ()
        self._ok: bool | None = None
        self._stopped = False
        self._watch: asyncio.Task[None] | None = None
        #: Takes what was read, and is in force here by now, on to whoever else serves by it; returns what to warn of.
        self.spread: Callable[[Document], tuple[Fault, ...]] = _no_one
        gateway.health.sources.append(self.warnings)
        gateway.telemetry.gauges.config_last_reload_ok = lambda: self._ok

    def start(self) -> None:
        """Watch the files."""
        if self._source is not None:
            self._watch = self._loop.create_task(self._watched())

    def stop(self) -> None:
        """Reload no more: the gateway stops."""
        self._stopped = True
        if self._watch is not None:
            self._watch.cancel()

    def warnings(self) -> list[str]:
        """Return what is wrong with the file as it stands, if it is."""
        if not self._faults:
            return []
        if self._faults[0] is _OURS:
            return [f"the last reload failed: {_OURS.message}"]
        return [f"the file changed and is wrong, so the configuration before it stays in force: {self._faults[0]}"]

    def asked(self) -> None:
        """Reload because a signal says so; on the loop, without waiting."""
        if self._stopped:
            _LOG.warning("not reloaded: the gateway is stopping")
            return
        self._loop.run_in_executor(None, self._told)

    def reload(self) -> tuple[Fault, ...]:
        """Reload, from any other thread, and return what to warn of.

        Raises ConfigError, or ReloadError where there is nothing to read; then nothing has changed.
        """
        with self._lock:
            source = self._source
            if source is None:
                raise ReloadError(NO_FILE)
            if self._stopped:
                raise ReloadError(_STOPPING)
            self._looks = self._look()
            try:
                document = read_document(source.path, source.environ)
                warnings = self._go(load_document(document, source.environ))
            except ConfigError as error:
                self._ok, self._faults = False, error.faults
                for fault in error.faults:
                    _LOG.error("not reloaded: %s: %s", source.path, fault)
                raise
            except Exception:
                self._ok, self._faults = False, (_OURS,)
                _LOG.exception("not reloaded: %s: %s", source.path, _OURS.message)
                raise
            self._ok, self._faults = True, ()
            warnings += self.spread(document)
            for warning in warnings:
                _LOG.warning("reloaded: %s: %s", source.path, warning)
            _LOG.warning("reloaded %s", source.path)
            return warnings

    def take(self, loaded: Loaded) -> None:
        """Go over to what somebody else has read, from any other thread. Raises ConfigError; then nothing changed."""
        with self._lock:
            self._go(loaded)

    def _go(self, loaded: Loaded) -> tuple[Fault, ...]:
        gateway = self._gateway
        settings, warned = kept(gateway.settings, loaded.settings)
        made = replace(loaded, settings=settings, warnings=(*loaded.warnings, *warned))
        resolver = gateway.identity.renewed(settings)

        async def adopt() -> None:
            gateway.adopt(made, resolver)

        try:
            asyncio.run_coroutine_threadsafe(adopt(), self._loop).result()
        except (OSError, ValueError) as error:  # what only opening it shows, such as authorities that are no PEM
            raise ConfigError((Fault("-", str(error)),)) from error
        return made.warnings

    def _told(self) -> None:
        with contextlib.suppress(Exception):  # which `reload` has logged; the files are watched on
            self.reload()

    async def _watched(self) -> None:
        before = self._looks
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            looks = await self._loop.run_in_executor(None, self._look)
            if looks == before and looks != self._looks:
                await self._loop.run_in_executor(None, self._told)
            before = looks

    def _look(self) -> tuple[_Look, ...]:
        """Return how the file and all it includes look now; a file that is gone looks like nothing."""
        if self._source is None:
            return ()
        main = self._source.path
        own = _stats([main])
        if own != self._read:
            # Only then: to parse ten thousand tenants takes a second, and the interpreter meanwhile.
            self._read, self._patterns = own, _patterns(main)
        return own + _stats(_included(main, self._patterns))


def _no_one(_document: Document) -> tuple[Fault, ...]:
    return ()


def _stats(paths: Iterable[Path]) -> tuple[_Look, ...]:
    looks = []
    for path in paths:
        with contextlib.suppress(OSError):
            found = path.stat()
            looks.append((str(path), found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(looks)


def _patterns(main: Path) -> list[str]:
    try:
        tree: dict[str, Any] = tomllib.loads(main.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    patterns = tree.get("include", [])
    listed = patterns if isinstance(patterns, list) else []
    return [pattern for pattern in listed if isinstance(pattern, str) and "\0" not in pattern]


def _included(main: Path, patterns: Iterable[str]) -> list[Path]:
    folder = main.absolute().parent
    return [
        folder / name
        for pattern in patterns
        for name in sorted(glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207 - as the loader does
    ]
