"""Bounded memories. What callers send can fill them, never grow them.

Rules
1. Two generations: what is used moves to the young one; when that is half of the size, it becomes the old one and the
   former old one is dropped whole. Least recently used within a factor of two, without a list to maintain.
2. A token is known by its SHA-256 digest; the token itself is never kept.
3. An entry ends at a wall-clock instant, because a token's expiry is one.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from policies.units import Micros

__all__ = ["Generations", "TokenCache"]

K = TypeVar("K")
V = TypeVar("V")


class Generations(Generic[K, V]):
    """A mapping of at most `size` entries that forgets what was not used lately."""

    __slots__ = ("_half", "_old", "young")

    def __init__(self, size: int) -> None:
        self._half = max(1, size // 2)
        self.young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return the value of `key`, or None; using it keeps it."""
        value = self.young.get(key)
        if value is None:
            value = self._old.pop(key, None)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Remember `value`, forgetting what was used longest ago if need be."""
        if len(self.young) >= self._half:
            self._old, self.young = self.young, {}
        self.young[key] = value

    def drop(self, key: K) -> None:
        """Forget `key`, if it is known."""
        self.young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self.young, self._old = {}, {}

    def __len__(self) -> int:
        return len(self.young) + len(self._old)


class _Known(Generic[V]):
    """What is known of one token."""

    __slots__ = ("until", "value")

    def __init__(self, value: V, until: Micros) -> None:
        self.value = value
        self.until = until


class TokenCache(Generic[V]):
    """What is known of tokens, by digest, each until an instant of its own."""

    __slots__ = ("_entries",)

    def __init__(self, size: int) -> None:
        self._entries: Generations[bytes, _Known[V]] = Generations(size)

    def get(self, digest: bytes, wall: Micros) -> V | None:
        """Return what is known of `digest` at `wall`, or None."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        if entry.until <= wall:
            self._entries.drop(digest)
            return None
        return entry.value

    def put(self, digest: bytes, value: V, until: Micros) -> None:
        """Remember `value` until the wall clock shows `until`."""
        self._entries.put(digest, _Known(value, until))

    def drop(self, digest: bytes) -> None:
        """Forget `digest`, if it is known."""
        self._entries.drop(digest)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
