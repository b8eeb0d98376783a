"""Addresses in gateway.toml: what we listen on, where upstreams are, whom browsers call from.

Rules
1. A parser raises ValueError with one sentence, and never quotes a password that stands in a URL.
2. Nothing is resolved or connected to here; a name stays a name.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from gateway.config.values import shown

__all__ = [
    "Listen",
    "UpstreamUrl",
    "is_host_port",
    "masked",
    "parse_collector",
    "parse_http_url",
    "parse_listen",
    "parse_origin",
    "parse_upstream",
]

# RFC 1123 names and dotted IPv4, an underscore allowed since container networks use it.
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?", re.ASCII)
# What may stand in a path on the wire (RFC 3986 section 3.3), slashes included.
_PATH = re.compile(r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*", re.ASCII)
# Whatever stands in front of every target must not be readable in more than one way.
_NOT_PLAIN = re.compile(r"//|/\.\.?(?:/|$)")
_UNIX = "unix:"
# 107 bytes are what sun_path holds on Linux, its end included.
_UNIX_PATH = re.compile(r"unix:/[^\x00-\x1f]{1,106}")
_PORTS = {"http": 80, "https": 443}


class Listen(str):
    """Where a listener binds, as written: `host:port` (IPv6 in brackets) or `unix:/path`. Port 0 is any free one."""

    __slots__ = ()

    @property
    def unix(self) -> str:
        """The path of the unix socket, "" if it is none."""
        return self[len(_UNIX) :] if self.startswith(_UNIX) else ""

    @property
    def host(self) -> str:
        """The host without brackets, "" for a unix socket."""
        return "" if self.unix else self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port, 0 for a unix socket."""
        return 0 if self.unix else int(self.rpartition(":")[2])

    @property
    def loopback(self) -> bool:
        """True if only this machine can connect."""
        if self.unix or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def clashes(self, other: Listen) -> bool:
        """Return whether both cannot be bound at once."""
        if self.unix or other.unix:
            return self.unix == other.unix
        anywhere = {"0.0.0.0", "::"} & {self.host, other.host}  # noqa: S104 - compared, not bound
        return self.port == other.port != 0 and (self.host == other.host or bool(anywhere))


class UpstreamUrl(str):
    """One address of an upstream, as written: `http://host[:port][/base]`, the same with https, or `unix:/path`."""

    __slots__ = ()

    @property
    def scheme(self) -> str:
        """One of http, https and unix."""
        return self.partition(":")[0].lower()

    @property
    def tls(self) -> bool:
        """True for https."""
        return self.scheme == "https"

    @property
    def unix(self) -> str:
        """The path of the unix socket, "" if it is none."""
        return self[len(_UNIX) :] if self.startswith(_UNIX) else ""

    @property
    def host(self) -> str:
        """The host to connect to, without brackets; `localhost` for a unix socket."""
        return (urlsplit(self).hostname or "") if not self.unix else "localhost"

    @property
    def port(self) -> int:
        """The port to connect to, the scheme's own where none is written; 0 for a unix socket."""
        return 0 if self.unix else urlsplit(self).port or _PORTS[self.scheme]

    @property
    def path(self) -> str:
        """The prefix of every target, without a slash at its end; "" if there is none."""
        return "" if self.unix else urlsplit(self).path.rstrip("/")

    @property
    def authority(self) -> str:
        """The Host field for this address: brackets around IPv6, the scheme's own port left out (RFC 9110, 4.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port in {0, _PORTS.get(self.scheme)} else f"{host}:{self.port}"


def parse_listen(value: object) -> Listen:
    """Parse `host:port` (IPv6 in brackets) or `unix:/path`."""
    text = value if isinstance(value, str) else ""
    if _UNIX_PATH.fullmatch(text):
        return Listen(text)
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    good_host = _is_ipv6(bare) if bare != host else _HOST.fullmatch(host)
    if not colon or not good_host or not _is_port(port):
        raise ValueError(f'expected "host:port" or "unix:/path", found {shown(value)}')
    return Listen(text)


def parse_upstream(value: object) -> UpstreamUrl:
    """Parse `http://host[:port][/base]`, the same with https, or `unix:/path`."""
    text = value if isinstance(value, str) else ""
    if _UNIX_PATH.fullmatch(text):
        return UpstreamUrl(text)
    parts = _split(text)
    if parts is None or parts.scheme not in _PORTS:
        raise ValueError(f'expected an address such as "http://127.0.0.1:9000" or "unix:/path", found {masked(value)}')
    if "@" in parts.netloc:
        raise ValueError("expected an address without user and password, found one that has them")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise ValueError(f"expected an address without query and fragment, found {shown(value)}")
    if not _PATH.fullmatch(parts.path) or _NOT_PLAIN.search(parts.path):
        raise ValueError(f"expected a path of URL characters without dot segments, found {shown(value)}")
    return UpstreamUrl(text)


def parse_http_url(value: object) -> str:
    """Parse an address that we fetch from: http or https, no user or password in it."""
    parts = _split(value if isinstance(value, str) else "")
    if parts is None or parts.scheme not in _PORTS or "@" in parts.netloc or parts.fragment:
        raise ValueError(f'expected an address such as "https://id.example.com/jwks.json", found {masked(value)}')
    return str(value)


def parse_collector(value: object) -> str:
    """Parse an address that we send to, or the empty string."""
    return "" if value == "" else parse_http_url(value)


def parse_origin(value: object) -> str:
    """Parse a web origin (RFC 6454), or `*`."""
    if value == "*":
        return "*"
    parts = _split(value if isinstance(value, str) else "")
    if (
        parts is None
        or parts.scheme not in _PORTS
        or parts.path
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ValueError(f'expected an origin such as "https://app.example.com", or "*", found {masked(value)}')
    return str(value).lower()


def _split(text: str) -> SplitResult | None:
    """Split a URL that has a valid host and port, else return None."""
    if not text.isascii() or not text.isprintable() or " " in text:
        return None
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    good = bool(host) and (_is_ipv6(host or "") if ":" in (host or "") else _HOST.fullmatch(host or ""))
    return parts if good and port != 0 and not parts.netloc.endswith(":") else None


def is_host_port(text: str) -> bool:
    """Return whether `text` is a host, IPv6 in brackets, with or without a port."""
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = host or port, "1"
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else ""
    return (_is_ipv6(bare) if bare else bool(_HOST.fullmatch(host))) and _is_port(port)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65_535


def masked(value: object) -> str:
    """Quote `value` unless a user and password may stand in it."""
    return "one with a user and password in it" if isinstance(value, str) and "@" in value else shown(value)
