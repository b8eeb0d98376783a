"""TLS on a listener: one context, whose certificate follows its files.

Rules
1. TLS 1.2 or newer, HTTP/1.1 alone by ALPN: what is negotiated is what is spoken.
2. A changed file is tried apart first. One that does not load, or does not fit its key, changes nothing and is told of
   once; the old certificate goes on serving.
3. Certificate and key are read once and change together, on the loop: no handshake sees one without the other.
   Connections that stand keep theirs.
"""

from __future__ import annotations

import asyncio
import logging
import os
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
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        try:
            _load(self.context, self._read())
        except (OSError, ssl.SSLError) as exc:
            raise GatewayError(f"cannot use {chain} with {key} for TLS: {exc}") from exc

    async def watch(self) -> NoReturn:
        """Follow the files. The looking is done beside the loop, the change between two handshakes."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._take(await asyncio.to_thread(self._look))

    def renew(self) -> bool:
        """Take the files anew if they changed; return whether there is a new certificate."""
        return self._take(self._look())

    def _take(self, pem: bytes) -> bool:
        if not pem:
            return False
        _load(self.context, pem)
        _LOG.warning("a new TLS certificate is in use")
        return True

    def _look(self) -> bytes:
        """Return what to take, nothing if nothing changed or what changed cannot be used."""
        stamp = self._stamp()
        if stamp == self._seen:
            return b""
        self._seen = stamp
        try:
            pem = self._read()
            _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pem)
        except (OSError, ssl.SSLError) as exc:
            _LOG.warning("the new TLS certificate cannot be used, and the old one stays: %s", exc)
            return b""
        return pem

    def _read(self) -> bytes:
        paths = dict.fromkeys((self._chain, self._key))
        return b"\n".join([path.read_bytes() for path in paths])

    def _stamp(self) -> tuple[object, ...]:
        try:
            found = [path.stat() for path in (self._chain, self._key)]
        except OSError:
            return ()
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load what was read once: OpenSSL takes files only, and between two readings a file may change."""
    fd = os.memfd_create("certificate")
    try:
        os.write(fd, pem)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
