"""The shells of an exchange, and the one place that says which tests each of them can see.

What a request is told and what its upstream receives is the business of the exchange; a shell only brings octets to it
and away. So whatever can be seen in every shell is tested through every shell.

Rules
1. A test decorated with `every_shell` runs through the shells of its module's row in `ROWS`, and opens its gateway with
   `behind`. Nothing else chooses one.
2. `evenhand serve` is the lane. The guard is no shell of its own: it is the lane's base class, and the tests that carry
   its name run through the lane.
3. A server that speaks ASGI frames, times and closes by itself, and shows its application none of that. What a row says
   is not for ASGI is of that kind, or looks inside the lane.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import uvloop

from tests.gateway.proxy.served import Served, served
from tests.gateway.proxy.wired import wired
from tests.wire.origin import Origin

__all__ = ["ALL", "BELOW", "ROWS", "Row", "Shell", "behind", "every_shell"]

#: Our own protocol, and the ASGI endpoint under either of uvicorn's.
Shell = Literal["lane", "httptools", "h11"]

LANE: tuple[Shell, ...] = ("lane",)
#: One of uvicorn's parsers is enough where another protocol of its reads what follows the handshake.
ONE_OF_EACH: tuple[Shell, ...] = ("lane", "httptools")
ASGI: tuple[Shell, ...] = ("httptools", "h11")
ALL: tuple[Shell, ...] = ("lane", "httptools", "h11")
#: Below every shell: no head arrives on a socket there.
BELOW: tuple[Shell, ...] = ()

#: The loop that a shell runs on; the lane, which minds what a transport does, on both.
_LOOPS: dict[Shell, tuple[str, ...]] = {"lane": ("asyncio", "uvloop"), "httptools": ("uvloop",), "h11": ("asyncio",)}
_FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Row(NamedTuple):
    """Which shells can see what a module tests, and why the others cannot."""

    shells: tuple[Shell, ...]
    why: str = ""


_PART = "a part that every shell uses, by itself"
_UPSTREAM = "the upstream's side, which every shell calls alike"

#: Every test module of this folder.
ROWS: dict[str, Row] = {
    "test_accept": Row(BELOW, _PART),
    "test_address": Row(BELOW, _PART),
    "test_asgi": Row(ASGI, "an endpoint that takes no WebSocket; the lane always has one that does"),
    "test_asgi_direct": Row(BELOW, "an ASGI server that is played: what it may say of itself and uvicorn does not"),
    "test_bodies": Row(ALL),
    "test_canary": Row(BELOW, "asks parts of the house by itself"),
    "test_crowd": Row(BELOW, "who holds connections, by itself; ASGI sees none"),
    "test_deadlines": Row(BELOW, "the wheel of the guard, by itself"),
    "test_exchange": Row(BELOW, "the exchange, which every shell uses, with a sink that only notes"),
    "test_exchange_bodies": Row(BELOW, "as test_exchange"),
    "test_guard": Row(LANE, "deadlines, half-closes and what is read when: the server's, which ASGI does not show"),
    "test_guard_ends": Row(LANE, "lingering, caps of sockets, a stop and a drain are the server's"),
    "test_guard_framing": Row(LANE, "framing is the server's, and so is the 400 of what is not HTTP"),
    "test_headers": Row(BELOW, _PART),
    "test_lane": Row(LANE, "when the lane writes, says 100 and closes, which a server decides for its application"),
    "test_leaving": Row(ALL),
    "test_line": Row(LANE, "request lines are read by the server"),
    "test_names": Row(BELOW, _PART),
    "test_parse": Row(BELOW, _PART),
    "test_rear": Row(LANE, "whose octets are heard first is the server's to say"),
    "test_refuse": Row(BELOW, _PART),
    "test_rejected": Row(BELOW, "as test_exchange; test_relay has some of it through every shell"),
    "test_relay": Row(ALL),
    "test_same": Row(ALL),
    "test_seats": Row(BELOW, _UPSTREAM),
    "test_shells": Row(BELOW, "this table"),
    "test_target": Row(BELOW, _PART),
    "test_upstream": Row(BELOW, _UPSTREAM),
    "test_upstream_addresses": Row(BELOW, _UPSTREAM),
    "test_upstream_failures": Row(BELOW, _UPSTREAM),
    "test_upstream_pool": Row(BELOW, _UPSTREAM),
    "test_upstream_response": Row(BELOW, _UPSTREAM),
    "test_upstream_retry": Row(BELOW, _UPSTREAM),
    "test_upstream_storm": Row(BELOW, _UPSTREAM),
    "test_upstream_tls": Row(BELOW, _UPSTREAM),
    "test_upstream_turns": Row(BELOW, _UPSTREAM),
    "test_waiting": Row(BELOW, "the exchange, with a resolver that must ask first"),
    "test_websocket": Row(ONE_OF_EACH, "h11 hands its handshakes to the same protocol as httptools does"),
    "test_websocket_ends": Row(LANE, "when a frame came, how a socket ended, a stop: uvicorn does not say or do so"),
    "test_websocket_handshake": Row(LANE, "what is no handshake is answered by the server"),
    "test_websocket_turns": Row(LANE, "turns and bounds of frames are those of the lane's protocol"),
    "test_writer": Row(BELOW, "how the lane writes, by itself"),
}


def behind(shell: Shell, tmp_path: Path, origin: Origin | str, **config: Any) -> AbstractAsyncContextManager[Served]:
    """Serve what `config` writes (see `house.write`) in front of `origin`, through `shell`; a key has plenty."""
    config.setdefault("quota", "100000/s burst 100000")
    if shell == "lane":
        return wired(tmp_path, origin, **config)
    return served(tmp_path, origin, shell, **config)


def every_shell(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test, which takes `shell`, once in each shell of its module's row."""
    row = ROWS[test.__module__.rpartition(".")[2]]

    def run(through: tuple[Shell, str], **fixtures: Any) -> None:
        shell, loop = through
        with asyncio.Runner(loop_factory=_FACTORIES[loop]) as runner:
            runner.run(test(shell=shell, **fixtures))

    functools.update_wrapper(run, test)
    own = inspect.signature(test)
    others = [one for name, one in own.parameters.items() if name != "shell"]
    through = inspect.Parameter("through", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = own.replace(parameters=[through, *others])  # type: ignore[attr-defined]  # pytest reads it
    ways = [pytest.param((shell, loop), id=f"{shell}-{loop}") for shell in row.shells for loop in _LOOPS[shell]]
    each: Callable[..., None] = pytest.mark.parametrize("through", ways)(run)
    return each
