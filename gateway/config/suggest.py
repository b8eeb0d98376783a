"""The nearest known word to one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from gateway.config.values import quoted

__all__ = ["nearest"]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that names the nearest of `known`, or all of them if none is near; "" for none."""
    words = sorted(known)
    close = difflib.get_close_matches(word[:64].lower(), words, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {quoted(close[0])}?"
    return f"; known are {', '.join(words[:40])}" if words else ""
