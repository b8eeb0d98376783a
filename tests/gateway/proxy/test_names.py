"""Names of fields that are known beforehand, and what a head says by not naming others."""

from __future__ import annotations

import httptools
import pytest

from gateway.proxy.names import BEARING, USUAL

__all__: list[str] = []


class _Asked:
    """What a parser says of a head, asked when it is complete: later it has forgotten."""

    def __init__(self, head: bytes) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self.says: list[bool] = []
        self._parser.feed_data(head)

    def on_headers_complete(self) -> None:
        self.says = [self._parser.should_keep_alive(), self._parser.should_upgrade()]


def test_a_known_name_is_its_lower_case() -> None:
    """And bears upon nothing: those that do are looked at one by one."""
    assert all(spelling.lower() == name for spelling, name in USUAL.items())
    assert not BEARING & set(USUAL.values())


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE"])
@pytest.mark.parametrize("fields", [[], sorted(USUAL), [b"Keep-Alive", b"TE", b"HTTP2-Settings", b"X-Upgrade"]])
def test_a_head_that_names_none_keeps_its_connection(method: bytes, fields: list[bytes]) -> None:
    """So its parser need not be asked: it keeps the connection, as HTTP/1.1 does, and does not upgrade it."""
    lines = b"".join(b"%b: close, upgrade, chunked\r\n" % name for name in fields)
    assert _Asked(b"%b / HTTP/1.1\r\n%b\r\n" % (method, lines)).says == [True, False]


@pytest.mark.parametrize(
    ("name", "value"), [(b"Connection", b"close"), (b"Proxy-Connection", b"close"), (b"CONNECTION", b"a, close")]
)
def test_a_name_that_bears_is_what_its_parser_heeds(name: bytes, value: bytes) -> None:
    """Those that end a connection are among them, in any spelling."""
    assert _Asked(b"GET / HTTP/1.1\r\n%b: %b\r\n\r\n" % (name, value)).says == [False, False]
    assert name.lower() in BEARING
    assert name not in USUAL
