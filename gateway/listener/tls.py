"""TLS on a listener: one context, whose certificate follows its files.

Rules
1. TLS 1.2 or newer, HTTP/1.1 alone by ALPN: what is negotiated is what is spoken.
2. A changed file is tried apart first. One that does not load, or does not fit its key, changes nothing and is told of
   once; the old certificate goes on serving.
3. A handshake uses the certificate of its beginning; connections that stand keep theirs.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import NoReturn

from gateway.errors import GatewayError

__all__ = ["WATCH_SECONDS", "Certificate"]

_LOG = logging.getLogger("evenhand")

#: Seconds between two looks at the files.
WATCH_SECONDS = 2.0


class Certificate:
    """The certificate of a listener. Raises GatewayError if it cannot be used to begin with."""

    def __init__(self, chain: Path, key: Path) -> None:
        self._chain, self._key = chain, key
        self._seen = self._stamp()
        try:
            self.context = _context(chain, key)
        except (OSError, ssl.SSLError) as exc:
            raise GatewayError(f"cannot use {chain} with {key} for TLS: {exc}") from exc

    async def watch(self) -> NoReturn:
        """Follow the files."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await asyncio.to_thread(self.renew)

    def renew(self) -> bool:
        """Take the files anew if they changed; return whether there is a new certificate."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            _context(self._chain, self._key)
            self.context.load_cert_chain(self._chain, self._key)
        except (OSError, ssl.SSLError) as exc:
            _LOG.warning("the new TLS certificate cannot be used, and the old one stays: %s", exc)
            return False
        _LOG.warning("a new TLS certificate is in use")
        return True

    def _stamp(self) -> tuple[object, ...]:
        try:
            found = [path.stat() for path in (self._chain, self._key)]
        except OSError:
            return ()
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)


def _context(chain: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(chain, key)
    return context
