"""Listening sockets: how they are bound, and how they close without losing anybody."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gateway.errors import GatewayError
from gateway.listener.sockets import bind, pending, refuse_new, unlink

__all__: list[str] = []


def test_address_in_use_is_one_sentence(tmp_path: Path) -> None:
    """On TCP and on a unix socket that still answers."""
    unix = f"unix:{tmp_path}/s"
    with bind("127.0.0.1:0") as taken, bind(unix):
        port = taken.getsockname()[1]
        for address in (f"127.0.0.1:{port}", unix):
            with pytest.raises(GatewayError, match=r"^cannot listen on .*: it is already in use$"):
                bind(address)


def test_address_that_is_not_here_says_why(tmp_path: Path) -> None:
    """In the words of the system."""
    with pytest.raises(GatewayError, match=r"cannot listen on 192\.0\.2\.1:80"):
        bind("192.0.2.1:80")
    with pytest.raises(GatewayError, match="No such file or directory"):
        bind(f"unix:{tmp_path}/nowhere/s")


def test_ipv6_is_bound_in_brackets() -> None:
    """And its socket is one of IPv6."""
    with bind("[::1]:0") as listener:
        assert listener.family == socket.AF_INET6


def test_unix_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    """Nobody answers there any more; a file that is no socket is left alone."""
    path = tmp_path / "s"
    bind(f"unix:{path}").close()
    with bind(f"unix:{path}") as listener:
        assert path.is_socket()
        unlink(listener)
        assert not path.exists()
        unlink(listener)
    path.write_text("mine", encoding="ascii")
    with pytest.raises(GatewayError, match="something that is no socket stands there"):
        bind(f"unix:{path}")
    assert path.read_text(encoding="ascii") == "mine"


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
def test_new_handshakes_are_turned_off_and_finished_ones_kept(address: str) -> None:
    """Whoever connected before is there to be accepted; whoever tries after is not connected."""
    with bind(address) as listener:
        where = listener.getsockname()
        before = [socket.create_connection(where[:2]) for _ in range(5)]
        refuse_new(listener)
        late = socket.socket(listener.family)
        late.settimeout(0.2)
        with pytest.raises(OSError):
            late.connect(where)
        taken = [one for one, _ in pending(listener)]
        assert len(taken) == 5
        for one in (*before, *taken, late):
            one.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where[:2], timeout=2)


def test_unix_socket_is_gone_for_those_who_come(tmp_path: Path) -> None:
    """The file goes first, those who had connected stay."""
    path = tmp_path / "s"
    with (
        bind(f"unix:{path}") as listener,
        socket.socket(socket.AF_UNIX) as early,
        socket.socket(socket.AF_UNIX) as late,
    ):
        early.connect(str(path))
        refuse_new(listener)
        with pytest.raises(FileNotFoundError):
            late.connect(str(path))
        ((taken, _),) = pending(listener)
        taken.close()


def test_pending_of_a_closed_socket_is_nothing() -> None:
    """Whoever closes twice loses nothing."""
    listener = bind("127.0.0.1:0")
    listener.close()
    assert list(pending(listener)) == []
