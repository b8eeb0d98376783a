"""What a request carries to an upstream, and a response to its caller (RFC 9110 section 7.6).

Rules
1. A message is an end-to-end part and a part of this hop. Hop-by-hop fields, and those that Connection names, end here,
   in both directions.
2. What the caller names goes first, what we add comes last: no Connection field can take one of ours away, and no copy
   by the caller can stand beside it.
3. A managed name is taken out with `-` and with `_`: gateways of the CGI kind fold both into one variable.
4. Order and repetition of everything else are kept; a body is never decoded, so its fields stay true.
5. Framing and Host are not written here: they belong to whoever writes to the socket.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from gateway.config.sections import UpstreamSection
from gateway.identity.credentials import CREDENTIAL_FIELDS
from gateway.ports import Decision, Headers
from gateway.proxy.address import UNIX
from gateway.proxy.dates import Dates
from gateway.proxy.parse import VERSIONS, Head, Parsed
from policies.problem import encoded
from policies.request import Class, Kind, Principal

__all__ = ["Lines", "RequestFields", "ResponseFields", "halved", "length_of", "one_by_one"]

#: Field lines of a response in halves, by turns `\\r\\nname: ` and a value: joined once, with what stands around them,
#: they are its head.
Lines: TypeAlias = list[bytes]

# RFC 9110 section 7.6.1 and RFC 9113 section 3.2.1, with the de facto ones; their values concern this hop only.
_HOP: Final = frozenset(
    {
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Host and framing are the pool's to write; an expectation is met here.
_OURS: Final = frozenset({b"content-length", b"expect", b"host"})
_MANAGED: Final = frozenset(
    {
        b"evenhand-class",
        b"evenhand-credential",
        b"evenhand-degraded",
        b"evenhand-refused",
        b"evenhand-tenant",
        b"via",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-request-id",
    }
)
# What a gateway of the CGI kind would take for its own HTTP_PROXY; no field of HTTP has this name (CVE-2016-5385).
_POISON: Final = frozenset({b"proxy"})
# Said by an edge about a caller or its target; from anybody else they are the caller's own words about itself.
_EDGE: Final = frozenset(
    {
        b"cf-connecting-ip",
        b"fastly-client-ip",
        b"forwarded",
        b"true-client-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-envoy-external-address",
        b"x-envoy-original-path",
        b"x-forwarded-client-cert",
        b"x-forwarded-email",
        b"x-forwarded-groups",
        b"x-forwarded-method",
        b"x-forwarded-path",
        b"x-forwarded-port",
        b"x-forwarded-prefix",
        b"x-forwarded-scheme",
        b"x-forwarded-server",
        b"x-forwarded-ssl",
        b"x-forwarded-uri",
        b"x-forwarded-user",
        b"x-original-url",
        b"x-real-ip",
        b"x-rewrite-url",
    }
)
_TRACE: Final = frozenset({b"traceparent", b"tracestate"})
#: What no response carries on: this hop's own fields, and a second length in disguise (rule 3); and those that a server
#: in front of us writes itself.
_RESPONSE_DROP: Final = _HOP | {b"content_length", b"evenhand-degraded", b"evenhand-refused"}
_STAMPED_DROP: Final = _RESPONSE_DROP | {b"date", b"server"}

# Looked up once: a member of an enum costs as much as a call.
_REJECTED: Final = Kind.REJECTED
#: By class, with the end of the fields.
_CLASSES: Final = tuple(b"evenhand-class: %b\r\n" % encoded(cls.label) for cls in Class)
#: Connection as most callers send it; it names a field that ends here anyway.
_NAMES_NOTHING: Final = (b"keep-alive", b"Keep-Alive")
_ID: Final = b"x-request-id: "
#: Peers of which is kept what is said of them.
_PEERS: Final = 4096
#: Entries of a memo of what messages say, at most.
_KNOWN: Final = 1024
_VIA: Final = b"\r\nvia: "
_DATE: Final = b"\r\ndate: "
_LENGTH: Final = b"\r\ncontent-length: "
#: Stands for Connection, which ends here and may take others with it.
_NAMES_OTHERS: Final = b"connection"
_CR: Final = ord("\r")
_LF: Final = ord("\n")

# No Connection field may take away what tells where the message ends.
_FRAMING: Final = frozenset({b"content-length"})
_NONE: frozenset[bytes] = frozenset()

_SCHEMES: Final = frozenset({b"http", b"https"})
#: As an octet: looked for as bytes it costs an exception inside.
_UNDERSCORE: Final = ord("_")


def halved(headers: Headers) -> Lines:
    """Return fields as lines in halves."""
    lines: Lines = []
    for name, value in headers:
        lines.append(b"\r\n%b: " % name)
        lines.append(value)
    return lines


def one_by_one(lines: Lines) -> Headers:
    """Return the fields of lines in halves, for a server that writes them itself."""
    return [(lines[at][2:-2], lines[at + 1]) for at in range(0, len(lines), 2)]


#: Digits of a length, as of requests: more hold no number of octets that there are, and cost by their square.
_DIGITS: Final = 18
#: Lengths that were read lately: to look one up costs a fifth of reading it.
_LENGTHS: Final[dict[bytes, int]] = {}


def length_of(value: bytes) -> int:
    """Return what a Content-Length says. ValueError unless it is one number of octets, and nothing else."""
    length = _LENGTHS.get(value)
    if length is None:
        if len(value) > _DIGITS or not value.isdigit():
            raise ValueError("no number of octets")
        length = int(value)
        if len(_LENGTHS) >= _KNOWN:
            _LENGTHS.clear()
        _LENGTHS[value] = length
    return length


def _nominated(connection: bytes) -> frozenset[bytes]:
    """Return the fields that a Connection field names, and their twins with `-`."""
    return frozenset(name.strip(b" \t").lower().replace(b"_", b"-") for name in connection.split(b","))


def _nominated_in(headers: Headers) -> frozenset[bytes]:
    """Return what the Connection fields of a response name; names are in lower case."""
    values = [value for name, value in headers if name == b"connection"]
    return _nominated(b",".join(values)) if values else frozenset()


def _spelled(names: frozenset[bytes]) -> frozenset[bytes]:
    """Return `names` in every spelling with `-` and `_` (rule 3), so that one look tells."""
    found = set(names)
    for name in names:
        spellings = [b""]
        for part in name.split(b"-"):
            spellings = [before + sign + part for before in spellings for sign in (b"-", b"_")]
        found.update(spelling[1:] for spelling in spellings)
    return frozenset(found)


def _without(headers: Headers, drop: frozenset[bytes]) -> Headers:
    return [
        field
        for field in headers
        if field[0] not in drop and (_UNDERSCORE not in field[0] or field[0].replace(b"_", b"-") not in drop)
    ]


class _Hop:
    """What a request says of its way here, up to the name of its id; the next one of the same peer says it again."""

    __slots__ = ("host", "said", "scheme", "version")

    def __init__(self, host: bytes, scheme: str, version: str, said: bytes) -> None:
        self.host = host
        self.scheme = scheme
        self.version = version
        self.said = said


class RequestFields:
    """Writes the fields of requests to one upstream.

    `pseudonym` is our name in Via.
    """

    __slots__ = ("_drop", "_hops", "_via")

    def __init__(self, upstream: UpstreamSection, pseudonym: bytes) -> None:
        always = _HOP | _OURS | _POISON | _MANAGED | (frozenset() if upstream.trace_headers else _TRACE)
        credentials = frozenset() if upstream.forward_credential else CREDENTIAL_FIELDS
        # Indexed by whether a credential was consumed, then by whether the peer is trusted.
        self._drop = tuple(
            (_spelled(always | used | _EDGE), _spelled(always | used)) for used in (frozenset(), credentials)
        )
        self._via = {version: b"%b %b" % (version.encode("ascii"), pseudonym) for version in VERSIONS}
        self._hops: dict[str, _Hop] = {}

    def write(self, head: Head, parsed: Parsed, decision: Decision) -> bytes:
        """Return the lines of the end-to-end fields of `head` with ours at the end. ValueError on a line break in one.

        What others wrote is looked through for line breaks; what we write ourselves cannot hold one.
        """
        fields = parsed.fields
        drop = self._drop[decision.consumed][parsed.trusted]
        lines = [b"%b: %b" % (name, value) for name, value in head.headers if name not in drop]
        if b"connection" in fields and fields[b"connection"] not in _NAMES_NOTHING:
            kept = _without(head.headers, _nominated(fields[b"connection"]))
            lines = [b"%b: %b" % field for field in kept if field[0] not in drop]
        if parsed.trusted or b"via" in fields:
            via = fields.get(b"via")
            hop = self._via[head.version]
            lines.append(b"via: " + (hop if via is None else via + b", " + hop))
            lines += [b"%b: %b" % field for field in _forwarded(head, parsed)]
            said = _ID
        else:
            said = self._said(head, parsed.host)
        joined = b"".join(lines)
        if _CR in joined or _LF in joined:
            raise ValueError("a request field contains a line break")
        lines.append(said + decision.request_id.encode("ascii"))
        principal = decision.principal
        named = principal.said or _named(principal)
        if named:
            lines.append(named)
        lines.append(_CLASSES[decision.cls] if named else b"")
        return b"\r\n".join(lines)

    def _said(self, head: Head, host: bytes) -> bytes:
        """Return what we say of a peer that nobody trusts: the same of most of its requests."""
        hop = self._hops.get(head.peer)
        if hop is None or hop.host != host or hop.scheme != head.scheme or hop.version != head.version:
            lines = [b"via: " + self._via[head.version]]
            peer = b"" if head.peer == UNIX else head.peer.encode("ascii", "replace")
            lines += [b"%b: %b" % field for field in _told(peer, host, head.scheme.encode("ascii"))]
            if any(_CR in line or _LF in line for line in lines):
                raise ValueError("a request field contains a line break")
            if len(self._hops) >= _PEERS:
                self._hops.clear()
            lines.append(_ID)
            hop = self._hops[head.peer] = _Hop(host, head.scheme, head.version, b"\r\n".join(lines))
        return hop.said


def _named(principal: Principal) -> bytes:
    """Return the lines that tell who was charged, without the last break; the principal keeps them. Nobody: none."""
    if principal.kind is not _REJECTED:
        tenant, credential = principal.spoken
        principal.said = b"evenhand-tenant: %b\r\nevenhand-credential: %b" % (encoded(tenant), encoded(credential))
    return principal.said


def _forwarded(head: Head, parsed: Parsed) -> Headers:
    """Return X-Forwarded-*: continued from a trusted peer, begun anew from any other."""
    peer = b"" if head.peer == UNIX else head.peer.encode("ascii", "replace")
    host, scheme = parsed.host, head.scheme.encode("ascii")
    if parsed.trusted:
        fields = parsed.fields
        peer = b", ".join(filter(None, (fields.get(b"x-forwarded-for"), peer)))
        host = fields.get(b"x-forwarded-host", host)
        given = fields.get(b"x-forwarded-proto", b"").lower()
        scheme = given if given in _SCHEMES else scheme
    return _told(peer, host, scheme)


def _told(peer: bytes, host: bytes, scheme: bytes) -> Headers:
    headers: Headers = [(b"x-forwarded-for", peer)] if peer else []
    if host:
        headers.append((b"x-forwarded-host", host))
    headers.append((b"x-forwarded-proto", scheme))
    return headers


class ResponseFields:
    """Writes the fields of responses to callers.

    `dates` adds a missing Date (RFC 9110 section 6.6.1); None where the server in front does.
    """

    __slots__ = ("_dates", "_drop", "_halves", "_via")

    def __init__(self, pseudonym: bytes, dates: Dates | None) -> None:
        self._dates = dates
        self._drop = _spelled(_RESPONSE_DROP if dates else _STAMPED_DROP)
        #: By names as upstreams spell them, which are few: what `_half` makes of each.
        self._halves: dict[bytes, bytes] = {}
        self._via = b"1.1 " + pseudonym

    def interim(self, headers: Headers) -> Headers:
        """Return the end-to-end fields of a 1xx response, which carries no Date or Via of its own, and no framing."""
        lowered = [(name.lower(), value) for name, value in headers]
        return _without(lowered, _RESPONSE_DROP | _FRAMING | _nominated_in(lowered))

    def write(self, status: int, headers: Headers, lines: Lines) -> int:
        """Put the end-to-end fields of a response into empty `lines`; return the announced length, -1 without one.

        A 204 has no Content-Length (RFC 9110 section 8.6).
        """
        halves = self._halves
        length, undated, nominates = -1, True, False
        for name, value in headers:
            half = halves.get(name)
            if half is None:
                half = self._half(name)
            if half == _NAMES_OTHERS:
                nominates = True
            elif half:
                if half == _LENGTH:
                    length = length_of(value)
                elif half == _DATE:
                    undated = False
                lines.append(half)
                lines.append(value)
        if nominates or status == 204:
            lowered = [(name.lower(), value) for name, value in headers]
            drop = (_nominated_in(lowered) - _FRAMING) | (_FRAMING if status == 204 else _NONE)
            lines[:] = halved(_without(one_by_one(lines), drop))
            undated = _DATE not in lines
            length = -1 if status == 204 else length
        lines.append(_VIA)
        lines.append(self._via)
        if undated and self._dates is not None:
            lines.append(_DATE)
            lines.append(self._dates.now())
        return length

    def _half(self, name: bytes) -> bytes:
        """Return what is written in front of a value, empty where the field ends here."""
        lowered = name.lower()
        half = b"" if lowered in self._drop else b"\r\n%b: " % lowered
        if lowered == b"connection":
            half = _NAMES_OTHERS
        if len(self._halves) < _KNOWN:
            self._halves[name] = half
        return half
