"""What every request of one configuration shares: how it is read, decided, answered, and where it may go."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from gateway.clock import Clock
from gateway.config import Settings
from gateway.config.entries import RouteEntry
from gateway.config.sections import StoreSection, UpstreamSection
from gateway.config.store_url import read_store_url
from gateway.pipeline import Pipeline
from gateway.proxy.address import Addresses
from gateway.proxy.call import Caller
from gateway.proxy.dates import Dates
from gateway.proxy.headers import Lines, RequestFields, ResponseFields
from gateway.proxy.ids import RequestIds
from gateway.proxy.parse import Parsed, Parser
from gateway.proxy.refuse import Refuser
from policies.classify import Classifier
from policies.policy import PolicySet
from policies.problem import Wording
from policies.verdict import Verdict

__all__ = ["Front", "Way", "pseudonym"]

#: Names this process in Via, where it keeps its own books.
_PROCESS = secrets.token_hex(4)
#: All that a front consists of. By a name of their own: compiled, a class has no `__slots__` to ask.
_PARTS: Final = (
    "_forwarder", "_halves", "_ids", "_wording", "clock", "max_body", "parser", "pipeline", "refuser", "responses",
    "ways",
)  # fmt: skip
#: The first of the older RateLimit fields.
_OLDER: Final = b"\r\nx-ratelimit-limit: "


@dataclass(frozen=True, slots=True)
class Way:
    """Where the requests of one route go. `strip` is how many leading segments the upstream does not see."""

    upstream: Caller
    fields: RequestFields
    preserve_host: bool
    strip: int = 0
    first_byte_timeout_us: int | None = None


class Front:
    """Built once per configuration; at a reload the one that every listener holds becomes the new one.

    `ways` has one entry for each route, and the default as its last, which is where UNMATCHED (-1) points.
    `upstreams` holds `[upstream]` under None and each `[upstreams.NAME]` under its name. `forwarder` is told of each
    request by which a peer outside `trusted_proxies` claims to speak for somebody else. `stamps` is false where the
    server in front writes Date and Server itself.
    """

    __slots__ = _PARTS

    def __init__(
        self,
        settings: Settings,
        policies: PolicySet,
        pipeline: Pipeline,
        upstreams: Mapping[str | None, Caller],
        clock: Clock,
        *,
        forwarder: Callable[[str], None] | None = None,
        doubtful: Callable[[str], None] | None = None,
        stamps: bool = True,
    ) -> None:
        name = pseudonym(settings.store)
        self.clock = clock
        self.pipeline = pipeline
        self.max_body = settings.server.max_body_bytes
        self.responses = ResponseFields(name, Dates(clock) if stamps else None)
        self._forwarder = forwarder
        self._ids = RequestIds(clock)
        self._halves: dict[bytes, bytes] = {}
        self._wording = Wording(
            settings.backstop.status,
            # What is not enforced is not told: in shadow mode nothing is.
            settings.refusal.headers if settings.server.mode == "enforce" else "off",
        )
        self.refuser = Refuser(self._wording, clock, settings.refusal.cors, stamps=stamps)
        self.ways = _ways(settings, upstreams, name)
        self.parser = Parser(
            Addresses(settings.server.trusted_proxies, settings.server.ipv6_prefix, doubtful),
            self._ids,
            Classifier(policies).route,
            pseudonym=name,
            rewritten=_rewrites(settings),
            max_header_bytes=settings.server.max_header_bytes,
            max_headers=settings.server.max_headers,
        )

    def become(self, other: Front) -> None:
        """Go over to another configuration at once: whoever holds this one reads, decides and forwards by that.

        A request under way keeps its decision, and the way that was looked up together with it: a route's number means
        another route from here on.
        """
        for name in _PARTS:
            setattr(self, name, getattr(other, name))

    def new_id(self) -> str:
        """Return a request id."""
        return self._ids.new()

    def notice(self, peer: str, parsed: Parsed) -> None:
        """Tell of a peer that nobody trusts and that speaks for others: they all share its address."""
        if not (parsed.bare or parsed.trusted) and self._forwarder is not None:
            fields = parsed.fields
            if b"x-forwarded-for" in fields or b"forwarded" in fields:
                self._forwarder(peer)

    def tell(self, verdict: Verdict, lines: Lines) -> None:
        """Add our RateLimit fields to a relayed response, and the mark of one decided without a store.

        Members of a List can stand in several fields, so the upstream's are kept; of the older fields each has one
        value, and where the upstream sends them they are its own.
        """
        theirs = False
        for name, value in self._wording.fields(verdict):
            half = self._halves.get(name)
            if half is None:
                half = self._halves[name] = b"\r\n%b: " % name  # there are six
            theirs = theirs or (half == _OLDER and half in lines)
            if not (theirs and name.startswith(b"x-ratelimit-")):
                lines.append(half)
                lines.append(value)


def pseudonym(store: StoreSection) -> bytes:
    """Return our name in Via: the same for all processes that keep one set of books, and for nobody else.

    A request that comes back to the same books is a loop; one that passes through the gateway of another team is not.
    """
    if store.url == "memory:":
        return f"evenhand-{_PROCESS}".encode("ascii")
    place = read_store_url(store.url).place  # no user or password, not even in a digest
    return b"evenhand-" + blake2b(f"{place}\0{store.namespace}".encode(), digest_size=4).hexdigest().encode("ascii")


def _ways(settings: Settings, upstreams: Mapping[str | None, Caller], name: bytes) -> tuple[Way, ...]:
    def section(key: str | None) -> UpstreamSection:
        return settings.upstream if key is None else settings.upstreams[key]

    fields = {key: RequestFields(section(key), name) for key in (None, *settings.upstreams)}

    def way(key: str | None, route: RouteEntry | None) -> Way:
        return Way(
            upstreams[key],
            fields[key],
            section(key).host == "preserve",
            route.strip_prefix.count("/") if route else 0,
            route.first_byte_timeout if route else None,
        )

    return (*(way(route.upstream, route) for route in settings.routes), way(None, None))


def _rewrites(settings: Settings) -> bool:
    """Return whether the beginning of some path is changed on its way."""
    addresses = [
        address for section in (settings.upstream, *settings.upstreams.values()) for address in section.addresses
    ]
    return any(route.strip_prefix for route in settings.routes) or any(address.path for address in addresses)
