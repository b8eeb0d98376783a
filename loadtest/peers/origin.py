"""The service behind everybody: canned answers of 100 octets, 10 kB and 1 MB, and nothing else.

`/1m...` is a megabyte, `/10k...` ten kilobytes, every other path a hundred octets of JSON, whatever the first segment
that a peer uses to choose a limit (`/v1`, `/refused`). `/wait...` is a hundred octets too, after 5 to 10 ms, as an API
takes that does something.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import cast

import uvloop

__all__ = ["main"]

_SMALL = b'{"id":42,"name":"example","tags":["a","b","c"],"note":"a hundred octets of JSON, like most answers"}'


def _answer(body: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nServer: origin\r\nDate: Tue, 05 Aug 2025 10:00:00 GMT\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )


_ANSWERS = {b"/1m": _answer(b"x" * 1_000_000), b"/10": _answer(b"x" * 10_000)}
_ELSE = _answer(_SMALL)


class _Origin(asyncio.Protocol):
    """One connection. A request without a body is its head, so the end of a head is the end of a request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *heads, self._rest = (self._rest + data).split(b"\r\n\r\n")
        for head in heads:
            path = head[head.find(b" ") + 1 : head.find(b" HTTP")]
            at = path.find(b"/", 1)
            if path.startswith(b"/wait", at):
                asyncio.get_running_loop().call_later(random.uniform(0.005, 0.01), self._transport.write, _ELSE)
            else:
                self._transport.write(_ANSWERS.get(path[at : at + 3], _ELSE))


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Origin, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def main() -> None:
    """Serve on the port that is the first argument, until killed."""
    uvloop.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
