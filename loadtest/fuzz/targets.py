"""The parsers that touch what a caller sends, each as a function from octets to the status it would answer (0: none).

Whatever comes in, a parser returns: it raises nothing. Identity answers 400 or 401 and nothing else; a request head may
also be answered as its contract says by name (too long, an expectation, an upgrade, a loop, a method).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import NamedTuple

from gateway.clock import Clock
from gateway.config import Settings
from gateway.config.build import build_policies
from gateway.identity.credentials import extract
from gateway.identity.jwt import read
from gateway.identity.pat import mint, well_formed
from gateway.identity.resolver import build_resolver
from gateway.ports import Headers
from gateway.proxy.accept import preferred
from gateway.proxy.address import Addresses
from gateway.proxy.ids import RequestIds
from gateway.proxy.ids import well_formed as id_well_formed
from gateway.proxy.parse import Head, Parser
from gateway.proxy.target import canonical, decoded, origin_form
from loadtest.fuzz.wire import EXAMPLES, Wire
from policies.classify import Classifier
from policies.policy import PolicySet
from policies.request import Class, Kind, Principal

__all__ = ["HEAD_STATUSES", "IDENTITY_STATUSES", "Target", "targets"]

IDENTITY_STATUSES = frozenset({0, 400, 401})
HEAD_STATUSES = IDENTITY_STATUSES | {405, 413, 414, 417, 429, 431, 501, 505, 508}

_SECRET = "a-shared-secret-of-more-than-thirty-two-bytes"  # noqa: S105 - of nobody
_ADDRESS = "192.0.2.7"


class Target(NamedTuple):
    """One parser: examples of what it reads, and the statuses that it may answer. `weight` is its part of a run."""

    name: str
    examples: tuple[bytes, ...]
    parse: Callable[[bytes], int]
    statuses: frozenset[int]
    weight: int = 1


def _settings() -> Settings:
    issuer = {"issuer": "https://id.example.com", "audience": "api", "algorithms": ["HS256"], "secret": _SECRET}
    routes = [{"name": "a", "path": "/v1/*/x"}, {"name": "b", "path": "/files/**", "methods": ["GET"]}]
    return Settings.model_validate(
        {
            "upstream": {"url": "http://127.0.0.1:9"},
            "backstop": {"quota": "1000000/s burst 1000000"},
            "server": {"trusted_proxies": ["10.0.0.0/8", "2001:db8::/32"]},
            "auth": {
                "jwt": [issuer],
                "job": [{**issuer, "issuer": "https://ci.example.com", "tenants": ["acme"]}],
                "introspection": {
                    "url": "http://127.0.0.1:9",
                    "client_id": "e",
                    "client_secret": "s",
                    "posture": "open",
                },
                "anonymous_quota": "1000000/s burst 1000000",
                "rejected_quota": "1000000/s burst 1000000",
            },
            "routes": routes,
        }
    )


def _segment(members: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(members).encode()).rstrip(b"=")


def _tokens() -> tuple[bytes, ...]:
    claims = {"iss": "https://id.example.com", "aud": "api", "exp": 4_000_000_000, "tenant": "acme", "sub": "x"}
    job = claims | {"iss": "https://ci.example.com", "namespace": "acme", "project": "p", "job": 7}
    heads = ({"alg": "HS256", "kid": "k"}, {"alg": "none"}, {"alg": ["RS256"], "crit": ["x"], "b64": False})
    bodies: tuple[object, ...] = (claims, job, [], None)
    jwts = tuple(b".".join((_segment(head), _segment(body), b"AAAA")) for head in heads for body in bodies)
    return (mint().encode(), mint(prefix="evh_job_").encode(), b"opaque", b"", b"a.b.c", *jwts)


def _fields(octets: bytes) -> Headers:
    """Read lines of `name: value` as a server would have."""
    pairs = (line.partition(b":") for line in octets.split(b"\n"))
    return [(name.strip().lower(), value.strip()) for name, _, value in pairs if name.strip()]


class _Identity:
    def __init__(self, settings: Settings) -> None:
        self._resolver = build_resolver(settings, Clock())

    def fields(self, octets: bytes) -> int:
        """Resolve whole header fields."""
        return self._resolved(_fields(octets))

    def token(self, octets: bytes) -> int:
        """Resolve one token, and take it apart by every reader."""
        read(octets)
        well_formed(octets)
        return max(self._resolved([(slot, octets)]) for slot in (b"authorization", b"x-api-key"))

    def bearer(self, octets: bytes) -> int:
        """Resolve one token as a bearer's, and as a password."""
        basic = b"Basic " + base64.b64encode(b"me:" + octets)
        return max(self._resolved([(b"authorization", value)]) for value in (b"Bearer " + octets, basic))

    def _resolved(self, headers: Headers) -> int:
        extract(headers)
        rejection = self._resolver.resolve(headers, _ADDRESS, preflight=False).rejection
        return 0 if rejection is None else rejection.status


class _Addressing:
    def __init__(self) -> None:
        self._addresses = Addresses(_settings().server.trusted_proxies)

    def chain(self, octets: bytes) -> int:
        """Walk both kinds of list, from a peer that is believed."""
        for fields in ({b"x-forwarded-for": octets}, {b"forwarded": octets}):
            self._addresses.caller("10.0.0.1", fields)
        self._addresses.caller(octets.decode("latin-1"), {})
        return 0


def _heads(policies: PolicySet) -> Callable[[bytes], int]:
    parser = Parser(
        Addresses(_settings().server.trusted_proxies),
        RequestIds(Clock()),
        Classifier(policies).route,
        pseudonym=b"evenhand-fuzz",
        rewritten=True,
    )

    def parse(octets: bytes) -> int:
        line, _, rest = octets.partition(b"\n")
        method, _, target = line.partition(b" ")
        rejection = parser.parse(Head(method, target, _fields(rest), "10.0.0.1")).rejection
        return 0 if rejection is None else rejection.status

    return parse


def _targets_of(octets: bytes) -> int:
    origin = origin_form(octets)
    path = None if origin is None else canonical(origin[0], rewritten=True)
    if path is not None:
        decoded(path)
    return 0 if path is not None else 400


def _classes(policies: PolicySet) -> Callable[[bytes], int]:
    classifier = Classifier(policies)
    batch = Principal(Kind.USER, "acme", "ci", Class.BATCH)

    def ask(octets: bytes) -> int:
        cls, _ = classifier.cls(batch, -1, octets.decode("latin-1"))
        return 0 if cls is Class.BATCH else 500

    return ask


def _small(octets: bytes) -> int:
    preferred(octets)
    id_well_formed(octets)
    return 0


_HEAD = b"GET /v1/a/x?q=1\nHost: api.example.com\nAuthorization: Bearer x\nX-Forwarded-For: 1.2.3.4, 10.0.0.9"
_HEAD_2 = b"POST http://api.example.com/files/..%2fx\nHost: api.example.com\nContent-Length: 3\nExpect: 100-continue"
_CHAINS = (b"1.2.3.4, 10.0.0.2", b'for=1.2.3.4;proto=https, for="[2001:db8::1]:99"', b"[::1]:1", b"::ffff:1.2.3.4")
_PATHS = (b"/v1/a/x?q", b"/files/a/../b", b"/%2e%2e/%2F", b"*", b"http://h/p", b"/a//b\\c", b"/%C3%A9/~!")
_ACCEPTS = (b"text/html;q=0.9, application/problem+json", b"*/*;q=0", b"text/*;q=1.000,a/b;x=y", b"01JE-abc")


def targets() -> tuple[Target, ...]:
    """Return every parser."""
    settings = _settings()
    policies = build_policies(settings)
    identity, tokens = _Identity(settings), _tokens()
    fields = (
        *(b"Authorization: Bearer " + token for token in tokens),
        b"PRIVATE-TOKEN: a\nX-API-Key: b",
        b"Authorization: Basic bWU6cHc=\njob-token: pw",
        b"Authorization: Digest a=b",
        b"Origin: https://a\nAccess-Control-Request-Method: PUT",
    )
    return (
        Target("credentials", fields, identity.fields, IDENTITY_STATUSES, 3),
        Target("tokens", tokens, identity.token, IDENTITY_STATUSES, 3),
        Target("bearers", tokens, identity.bearer, IDENTITY_STATUSES, 3),
        Target("addresses", _CHAINS, _Addressing().chain, frozenset({0}), 2),
        Target("heads", (_HEAD, _HEAD_2), _heads(policies), HEAD_STATUSES, 3),
        Target("targets", _PATHS, _targets_of, IDENTITY_STATUSES, 2),
        Target("classes", (b"batch", b"interactive, batch"), _classes(policies), frozenset({0})),
        Target("accept and ids", _ACCEPTS, _small, frozenset({0})),
        Target("the wire", EXAMPLES, Wire(settings, policies).serve, HEAD_STATUSES | {200, 408}, 2),
    )
