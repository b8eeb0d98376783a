"""The commands `top`, `pause`, `exempt` and `posture`: what the dashboard shows and does, without a browser."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import closing
from typing import Any
from urllib.parse import quote, urlencode

from gateway.errors import GatewayError
from gateway.terminal.client import Admin
from gateway.terminal.screen import plain, screen

__all__ = ["exempt", "list_acts", "pause", "posture", "top"]

_MOST = 200
_AGAIN_SECONDS = 1.0


def top(admin: Admin, window: str, sort: str, search: str, *, once: bool) -> None:
    """Show the state every second until interrupted, in place on a terminal; once, or as lines, anywhere else."""
    terminal = sys.stdout.isatty()
    query = urlencode({"window": window, "sort": sort, "q": search, "limit": _MOST})
    while True:
        try:
            with closing(admin.stream(f"/api/stream?{query}")) as events:
                for snapshot in events:
                    _show(snapshot, terminal=terminal)
                    if once or not terminal:
                        return
        except GatewayError as error:
            if once or not terminal:
                raise
            sys.stdout.write(f"\x1b[H\x1b[2J{error}\nreconnecting ...\n")
            sys.stdout.flush()
        time.sleep(_AGAIN_SECONDS)


def _show(snapshot: dict[str, Any], *, terminal: bool) -> None:
    columns, lines = shutil.get_terminal_size()
    if not terminal:
        sys.stdout.write("\n".join(screen(snapshot, 10_000, 10_000, colours=False)) + "\n")
        return
    erase = "\x1b[K\n"
    sys.stdout.write("\x1b[H" + erase.join(screen(snapshot, columns, lines, colours=True)) + "\x1b[K\x1b[J")
    sys.stdout.flush()


def pause(admin: Admin, match: dict[str, str], lasting: str, reason: str, owner: str) -> None:
    """Pause what `match` covers."""
    asked: dict[str, object] = {"match": match, "for": lasting, "reason": reason, "owner": owner}
    _told(admin.post("/api/pause", asked))


def exempt(
    admin: Admin, match: dict[str, str], raised: dict[str, object], lasting: str, reason: str, owner: str
) -> None:
    """Raise a quota for a while: `raised` is a multiplier or a quota."""
    _told(admin.post("/api/exemptions", {"match": match, **raised, "for": lasting, "reason": reason, "owner": owner}))


def posture(admin: Admin, what: str, route: str, lasting: str, reason: str, owner: str) -> None:
    """Set what is answered where the store does not: everywhere, or on one route."""
    asked: dict[str, object] = {"posture": what, "for": lasting, "reason": reason, "owner": owner}
    _told(admin.post("/api/posture", asked | ({"route": route} if route else {})))


def list_acts(admin: Admin, path: str, name: str, end: str) -> None:
    """End the act `end`, or list those in force."""
    if end:
        admin.delete(f"{path}/{quote(end, safe='')}")
        sys.stdout.write(f"{end}: ended\n")
        return
    rows = admin.get(path)[name]
    sys.stdout.write("\n".join(plain(rows) if rows else ["none is in force"]) + "\n")


def _told(made: dict[str, Any]) -> None:
    sys.stdout.write("\n".join(plain([made])) + "\n")
