"""Inputs for parsers: good examples, taken apart and put together wrongly. The same seed makes the same inputs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

__all__ = ["inputs"]

#: What means something to one of the parsers, or should not.
_WORDS = (
    b"", b"\x00", b"\r", b"\n", b"\r\n", b"\t", b" ", b",", b";", b'"', b"\\", b"=", b"%", b"%00", b"%2e%2e", b"%2F",
    b"..", b"/", b"//", b"?", b"#", b".", b"a.b.c", b"eyJ", b"{}", b'{"', b"null", b"evh_pat_", b"evh_job_",
    b"Bearer ", b"Basic ", b"for=", b"127.0.0.1", b"::1", b"[::1]:1", b"::ffff:1.2.3.4", b"999.1.1.1", b"unknown",
    b"_x", b"chunked", b"gzip", b"100-continue", b"websocket", b"q=0", b"*/*", b"interactive", b"batch", b"\xff",
    b"\xc3\x28", b"\xed\xa0\x80", b"-1", b"0", b"99999999999999999999", b"1e999", b"NaN", b"\xe2\x80\xae",
    b"transfer-encoding", b"content-length",
)  # fmt: skip
_LONGEST = 4096


def inputs(seeds: Sequence[bytes], draw: random.Random) -> Iterator[bytes]:
    """Yield inputs without end: each seed as it is, then whatever comes of them."""
    yield from seeds
    while True:
        made = draw.choice(seeds)
        for _ in range(draw.choice((1, 1, 2, 3, 8))):
            made = draw.choice(_CHANGES)(made, seeds, draw)[:_LONGEST]
        yield made


def _flip(made: bytes, _seeds: Sequence[bytes], draw: random.Random) -> bytes:
    if not made:
        return made
    at = draw.randrange(len(made))
    return made[:at] + bytes((made[at] ^ (1 << draw.randrange(8)),)) + made[at + 1 :]


def _insert(made: bytes, _seeds: Sequence[bytes], draw: random.Random) -> bytes:
    at = draw.randrange(len(made) + 1)
    word = draw.choice(_WORDS) if draw.random() < 0.7 else draw.randbytes(draw.randrange(1, 9))
    return made[:at] + word + made[at:]


def _remove(made: bytes, _seeds: Sequence[bytes], draw: random.Random) -> bytes:
    at = draw.randrange(len(made) + 1)
    return made[:at] + made[at + draw.randrange(1, 9) :]


def _repeat(made: bytes, _seeds: Sequence[bytes], draw: random.Random) -> bytes:
    start = draw.randrange(len(made) + 1)
    piece = made[start : start + draw.randrange(1, 33)]
    return made[:start] + piece * draw.choice((2, 3, 100)) + made[start + len(piece) :]


def _splice(made: bytes, seeds: Sequence[bytes], draw: random.Random) -> bytes:
    other = draw.choice(seeds)
    return made[: draw.randrange(len(made) + 1)] + other[draw.randrange(len(other) + 1) :]


def _case(made: bytes, _seeds: Sequence[bytes], _draw: random.Random) -> bytes:
    return made.swapcase()


_CHANGES: tuple[Callable[[bytes, Sequence[bytes], random.Random], bytes], ...] = (
    _flip, _flip, _insert, _insert, _insert, _remove, _remove, _repeat, _splice, _case,
)  # fmt: skip
