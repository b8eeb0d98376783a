"""Listening sockets: bound before anything starts, and closed without losing who has already connected.

Rules
1. An address that cannot be bound is one sentence.
2. A unix socket left behind by a process that is gone is replaced; one still answering is not. Who may connect is the
   business of the umask and of the folder it is in.
3. Closing a listening socket resets what the kernel has accepted for us and we have not. So new handshakes are turned
   off first, what is pending is taken, and only then it closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from gateway.errors import GatewayError
from gateway.proxy.peer import named

__all__ = ["BACKLOG", "bind", "name_of", "pending", "readied", "refuse_new", "unlink"]

BACKLOG = 4096
UNIX = "unix:"

_SO_ATTACH_FILTER = 26
# Classic BPF over a TCP header: drop what has SYN without ACK, pass everything else.
_NO_SYN = b"".join(
    struct.pack("HBBI", *step)
    for step in ((0x30, 0, 0, 13), (0x54, 0, 0, 0x12), (0x15, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFF))
)


def bind(address: str) -> socket.socket:
    """Return a listening socket for `host:port`, `[v6]:port` or `unix:/path`. Raises GatewayError, one sentence."""
    try:
        return _bind_unix(Path(address.removeprefix(UNIX))) if address.startswith(UNIX) else _bind_tcp(address)
    except OSError as exc:
        why = "it is already in use" if exc.errno == errno.EADDRINUSE else exc.strerror or str(exc)
        raise GatewayError(f"cannot listen on {address}: {why}") from exc


def _bind_tcp(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family, kind, proto, _, target = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _bind_unix(path: Path) -> socket.socket:
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        path.unlink()
    elif path.exists() or path.is_symlink():
        raise OSError(errno.EEXIST, "something that is no socket stands there")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def name_of(listener: socket.socket, address: str) -> str:
    """Return `address`, the port that the system chose in place of 0."""
    host, colon, port = address.rpartition(":")
    if listener.family == socket.AF_UNIX or int(port):
        return address
    return f"{host}{colon}{listener.getsockname()[1]}"


def refuse_new(listener: socket.socket) -> None:
    """Let nobody begin to connect any more; handshakes under way go on. Where the kernel cannot, nothing changes."""
    if listener.family == socket.AF_UNIX:
        unlink(listener)
        return
    program = ctypes.create_string_buffer(_NO_SYN)
    filters = struct.pack("HL", len(_NO_SYN) // 8, ctypes.addressof(program))
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filters)


def pending(listener: socket.socket) -> Iterator[tuple[socket.socket, str]]:
    """Yield the connections that the kernel holds for `listener`, each with its peer."""
    with contextlib.suppress(OSError):
        while True:
            connection, name = listener.accept()
            yield readied(connection), named(connection, name)


def readied(connection: socket.socket) -> socket.socket:
    """Return `connection`, ready for a loop, which sets as much of those that it accepts itself."""
    connection.setblocking(False)
    if connection.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):  # some systems mind that it was reset
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def unlink(listener: socket.socket) -> None:
    """Take the file of a unix socket away."""
    name = listener.getsockname() if listener.family == socket.AF_UNIX else ""
    if name:
        Path(name).unlink(missing_ok=True)
