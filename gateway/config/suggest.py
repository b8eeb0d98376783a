"""The nearest known word to one that is not known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from gateway.config.values import quoted

__all__ = ["near", "nearest"]

_BARE = re.compile(r"[A-Za-z0-9._~-]{1,80}", re.ASCII)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that names the nearest of `known`, or all of them if none is near; "" for none."""
    words = sorted(known)
    listed = ", ".join(name if _BARE.fullmatch(name) else quoted(name) for name in words[:40])
    return near(word, words) or (f"; known are {listed}" if words else "")


def near(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that names the nearest of `known`; "" if none is near."""
    close = difflib.get_close_matches(word[:64].lower(), known, n=1, cutoff=0.6)
    return f"; did you mean {quoted(close[0])}?" if close else ""
