"""Bounded memories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.identity.cache import Generations, TokenCache

__all__: list[str] = []


@given(st.lists(st.integers(0, 200), max_size=400), st.integers(1, 20))
def test_it_never_exceeds_its_size_and_never_lies(keys: list[int], size: int) -> None:
    """Whatever is put or used, the size holds, and what is found is what was put."""
    memory: Generations[int, int] = Generations(size)
    for key in keys:
        assert memory.get(key) in (None, key * 2)
        memory.put(key, key * 2)
        assert memory.get(key) == key * 2
        assert len(memory) <= max(2, size)


def test_what_is_used_stays() -> None:
    """A flood of new keys does not displace one that is used in between."""
    memory: Generations[str, int] = Generations(10)
    memory.put("mine", 1)
    for n in range(1000):
        memory.put(f"flood {n}", n)
        if n % 3 == 0:
            assert memory.get("mine") == 1
    assert memory.get("flood 0") is None


def test_a_token_is_known_until_its_instant() -> None:
    """At the instant itself it is gone, and takes no room any more."""
    known: TokenCache[str] = TokenCache(10)
    known.put(b"digest", "somebody", 100)
    assert known.get(b"digest", 99) == "somebody"
    assert known.get(b"digest", 100) is None
    assert len(known) == 0
    assert known.get(b"digest", 50) is None
