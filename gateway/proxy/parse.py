"""Stage 1: from a request head, whichever server read it, to facts.

Rules
1. Facts are observed, never judged: who the caller is, and whether it may, comes later.
2. A field counts once. Repeated fields are joined by commas (RFC 9110 section 5.3), so whatever must be single
   (Host, Content-Length, Transfer-Encoding) is malformed when it was not.
3. The framing of a body is taken from exactly one of Content-Length and `Transfer-Encoding: chunked`; anything else
   is 400, never repaired (RFC 9112 section 6.3).
4. What an edge may say (request id, addresses, scheme) is believed only of peers in `trusted_proxies`.
5. Nothing here allocates by what a caller chose, beyond the head itself and a bounded memory of paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.identity.credentials import Presented, extract
from gateway.ports import Headers, Rejection
from gateway.proxy.address import Addresses
from gateway.proxy.ids import RequestIds, well_formed
from gateway.proxy.target import canonical, decoded, known, origin_form, told
from policies.native import mypyc_attr
from policies.request import RequestFacts

__all__ = ["VERSIONS", "Head", "Parsed", "Parser"]


@mypyc_attr(acyclic=True, free_list_len=1)
@dataclass(slots=True, init=False)
class Head:
    """A request head as a server read it.

    `target` is the raw request target. `headers` have lower-case names, and are complete before the body begins
    (trailers are none of them). `peer` is the socket's address or `unix`; `version` is "1.1", "1.0", "2", "3". `ended`
    says that no body follows, where a server knows it otherwise than by fields; `measured` that it kept the limits on
    the size of heads; `websocket` that it is a handshake which somebody will answer.
    """

    method: bytes
    target: bytes
    headers: Headers
    peer: str
    scheme: str
    version: str
    ended: bool
    measured: bool
    websocket: bool

    # Written out: the one that `dataclass` makes is interpreted even where this is compiled.
    def __init__(  # noqa: PLR0913 - made once a request, at one place
        self,
        method: bytes,
        target: bytes,
        headers: Headers,
        peer: str,
        scheme: str = "http",
        version: str = "1.1",
        *,
        ended: bool = False,
        measured: bool = False,
        websocket: bool = False,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.peer = peer
        self.scheme = scheme
        self.version = version
        self.ended = ended
        self.measured = measured
        self.websocket = websocket


@mypyc_attr(acyclic=True, free_list_len=1)
@dataclass(slots=True, init=False)
class Parsed:
    """What a head says. `rejection` is set where it may not go on; `facts` are None where it could not be read.

    `target` is in origin-form; `length` that of the body, None for one whose end announces itself; `fields` are those
    that the gateway reads, repeated ones joined; `host` is the authority asked for. `bare` says that none of the fields
    says anything but what is asked for (_BARE): most requests need no look for the others.
    """

    request_id: str
    fields: dict[bytes, bytes]
    bare: bool
    trusted: bool
    target: bytes
    host: bytes
    length: int | None
    facts: RequestFacts | None
    rejection: Rejection | None

    # As above.
    def __init__(self, request_id: str, fields: dict[bytes, bytes], *, trusted: bool) -> None:
        self.request_id = request_id
        self.fields = fields
        self.bare = False
        self.trusted = trusted
        self.target = self.host = b""
        self.length = 0
        self.facts = None
        self.rejection = None


#: The fields that the gateway reads, apart from credentials.
_READ: Final = frozenset(
    {
        b"accept",
        b"access-control-request-method",
        b"connection",
        b"content-length",
        b"evenhand-class",
        b"expect",
        b"forwarded",
        b"host",
        b"origin",
        b"traceparent",
        b"transfer-encoding",
        b"upgrade",
        b"via",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-request-id",
    }
)

#: Of these, those by which one peer speaks for others.
_SPEAKING: Final = (b"forwarded", b"x-forwarded-for")
#: Of all, those that have no bearing but upon where a request goes, how long its body is, and the form of an answer.
_BARE: Final = frozenset({b"accept", b"content-length", b"host"})

_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~!$&'()*+;=%-]{1,255})(?::[0-9]{0,5})?")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_METHOD: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,32}")
_METHODS: Final = {method.encode(): method for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}
#: Versions of HTTP that are spoken, by whichever server is in front.
VERSIONS: Final = frozenset({"1.0", "1.1", "2", "2.0", "3", "3.0"})

_BAD_METHOD: Final = Rejection(400, "bad-request", "The method is not a token.")
_BAD_TARGET: Final = Rejection(400, "bad-request", "The request target is neither a path nor an http address.")
_BAD_HOST: Final = Rejection(400, "bad-host", "")
_BAD_LENGTH: Final = Rejection(400, "bad-framing", "Content-Length is not one number of octets.")
_TWO_FRAMINGS: Final = Rejection(400, "bad-framing", "Content-Length and Transfer-Encoding exclude each other.")
_BAD_CODING: Final = Rejection(400, "bad-framing", "The only transfer coding that is read is chunked, in HTTP/1.1.")
_AMBIGUOUS = Rejection(400, "ambiguous-path", "The path can be read in more than one way; send it in its plain form.")
_METHOD_REFUSED: Final = Rejection(405, "method-not-allowed", "")
_LONG_TARGET: Final = Rejection(414, "uri-too-long", "")
_LARGE_HEAD: Final = Rejection(431, "headers-too-large", "")
_EXPECTATION: Final = Rejection(417, "expectation-failed", "")
_UPGRADE: Final = Rejection(501, "upgrade-not-supported", "")
_VERSION: Final = Rejection(505, "version-not-supported", "")
_LOOP: Final = Rejection(508, "loop-detected", "")


class Parser:
    """Reads heads, as one configuration wants them.

    `pseudonym` is our name in Via. `route` finds the route of a method and path, to tell whether an encoded slash makes
    a difference; `rewritten` says that some route or upstream changes the beginning of paths.
    """

    __slots__ = ("_addresses", "_ids", "_last_host", "_max_bytes", "_max_headers", "_pseudonym", "_rewritten", "_route")

    def __init__(
        self,
        addresses: Addresses,
        ids: RequestIds,
        route: Callable[[str, str], int],
        *,
        pseudonym: bytes,
        rewritten: bool = False,
        max_header_bytes: int = 32 * 1024,
        max_headers: int = 100,
    ) -> None:
        self._addresses = addresses
        self._ids = ids
        self._route = route
        self._pseudonym = re.compile(rb"(?:^|[\s,])" + re.escape(pseudonym) + rb"(?=[\s,]|$)", re.IGNORECASE)
        self._rewritten = rewritten
        self._max_bytes = max_header_bytes
        self._max_headers = max_headers
        self._last_host = b"localhost"

    def trusts(self, peer: str) -> bool:
        """Return whether `peer` is a proxy of our own."""
        return self._addresses.trusts(peer)

    def name(self, peer: str) -> str:
        """Return the address that `peer` itself is charged under."""
        return self._addresses.name(peer)

    def parse(self, head: Head) -> Parsed:
        """Return what `head` says, with a rejection if it cannot be passed on."""
        fields: dict[bytes, bytes] = {}
        excess = None if head.measured else self._excess(head)
        if excess is not None:
            parsed = Parsed(self._ids.new(), fields, trusted=False)
            parsed.rejection = excess
            return parsed
        bare = True
        for name, value in head.headers:
            if name in _READ:
                bare = bare and name in _BARE
                before = fields.get(name)
                fields[name] = value if before is None else before + b", " + value
        trusted = self._addresses.trusts(head.peer)
        parsed = Parsed(self._request_id(fields, trusted=trusted), fields, trusted=trusted)
        parsed.bare = bare
        parsed.rejection = self._read(head, parsed)
        if parsed.rejection is None and not (bare and head.method != b"TRACE"):
            parsed.rejection = self._unacceptable(head, fields)
        return parsed

    def seen(self, head: Head, fields: dict[bytes, bytes]) -> RequestFacts:
        """Return what the log says of a head that has no facts: whom it came from, and what can be told of the rest.

        Nothing is decided by them. `fields` are those that were read, none if the head was too large for that.
        """
        method = head.method.decode("ascii") if _METHOD.fullmatch(head.method) else ""
        said = fields or {name: b", ".join(_all(head, name)) for name in _SPEAKING if any(_all(head, name))}
        return RequestFacts(method, told(head.target), self._addresses.caller(head.peer, said))

    def _excess(self, head: Head) -> Rejection | None:
        """Return why a head is too large: its lines, each with the octets that delimit it."""
        if len(head.target) > self._max_bytes:
            return _LONG_TARGET
        size = len(head.target)
        for name, value in head.headers:
            size += len(name) + len(value) + 4
        return _LARGE_HEAD if size > self._max_bytes or len(head.headers) > self._max_headers else None

    def _request_id(self, fields: dict[bytes, bytes], *, trusted: bool) -> str:
        if trusted:
            given = fields.get(b"x-request-id")
            if given is not None and well_formed(given):
                return given.decode("ascii")
        return self._ids.new()

    def _read(self, head: Head, parsed: Parsed) -> Rejection | None:
        """Fill in `parsed` as far as the head can be read; return why it cannot be read further."""
        fields = parsed.fields
        if head.version != "1.1" and head.version not in VERSIONS:
            return _VERSION
        method = "GET" if head.method == b"GET" else _METHODS.get(head.method)
        if method is None:
            if not _METHOD.fullmatch(head.method):
                return _BAD_METHOD
            if head.method == b"CONNECT":
                return _METHOD_REFUSED
            method = head.method.decode("ascii")
        parsed.target, authority = head.target, None
        path = known(head.target)
        if path is None:
            origin = origin_form(head.target)
            if origin is None or (head.target == b"*" and head.method != b"OPTIONS"):
                return _BAD_TARGET
            parsed.target, authority = origin
            path = self._path(method, parsed.target)
            if path is None:
                return _AMBIGUOUS
        address = self._addresses.caller(head.peer, fields)
        parsed.facts = (
            RequestFacts(method, path, address) if parsed.bare else _facts(head, fields, method, path, address)
        )
        host = fields.get(b"host")
        parsed.host = authority or host or b""
        # Most requests name the host of the one before.
        if host != self._last_host:
            if (host is None and head.version != "1.0") or not _valid_host(host):
                return _BAD_HOST
            if host is not None:
                self._last_host = host
        if not _valid_host(authority):
            return _BAD_HOST
        return _frame(head, parsed)

    def _path(self, method: str, target: bytes) -> str | None:
        """Return the canonical path, None if there is more than one."""
        path = "*" if target == b"*" else canonical(target, rewritten=self._rewritten)
        if path is not None and "%2F" in path and self._route(method, path) != self._route(method, decoded(path)):
            return None
        return path

    def _unacceptable(self, head: Head, fields: dict[bytes, bytes]) -> Rejection | None:
        """Return why a head that could be read is not passed on all the same."""
        if head.method == b"TRACE":
            return _METHOD_REFUSED
        via = fields.get(b"via")
        if via is not None and self._pseudonym.search(via):
            return _LOOP
        expect = fields.get(b"expect")
        if expect is not None and expect.lower() != b"100-continue":
            return _EXPECTATION
        upgrade = fields.get(b"upgrade")
        if upgrade is not None and not head.websocket and b"websocket" in upgrade.lower():
            return _UPGRADE
        return None


def _all(head: Head, wanted: bytes) -> list[bytes]:
    return [value for name, value in head.headers if name == wanted]


def _facts(head: Head, fields: dict[bytes, bytes], method: str, path: str, address: str) -> RequestFacts:
    asked, trace = fields.get(b"evenhand-class"), fields.get(b"traceparent")
    return RequestFacts(
        method,
        path,
        address,
        None if asked is None else asked.decode("latin-1"),
        method == "OPTIONS"
        and b"origin" in fields
        and b"access-control-request-method" in fields
        and extract(head.headers)[0] is Presented.NOTHING,
        None if trace is None else trace.decode("latin-1"),
    )


def _valid_host(host: bytes | None) -> bool:
    return host is None or _HOST.fullmatch(host) is not None


def _frame(head: Head, parsed: Parsed) -> Rejection | None:
    """Set the length of the body, or return why it is not certain."""
    declared = parsed.fields.get(b"content-length")
    coding = None if parsed.bare else parsed.fields.get(b"transfer-encoding")
    if coding is not None:
        if declared is not None:
            return _TWO_FRAMINGS
        if coding.lower() != b"chunked" or head.version != "1.1":
            return _BAD_CODING
        parsed.length = None
    elif declared is not None:
        if not _LENGTH.fullmatch(declared):
            return _BAD_LENGTH
        parsed.length = int(declared)
    elif head.version not in ("1.1", "1.0") and not head.ended:
        parsed.length = None  # HTTP/2 and 3 end a body by a flag on the stream
    return None
