"""The sections of gateway.toml: one table each, every key with its default (contract, section 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from gateway.config.addresses import UpstreamUrl
from gateway.config.files import tls_fault
from gateway.config.kinds import (
    Address,
    CaFile,
    ClassName,
    Collector,
    Duration,
    Flag,
    Id,
    Listener,
    Origin,
    OutputPath,
    Part,
    Posture,
    Quota,
    ReadableFile,
    RefusalStatus,
    StoreUrl,
    Token,
    Trusted,
    Wait,
    WritablePath,
    choice,
    count,
    real,
    size,
)
from gateway.config.store_url import MEMORY, read_store_url
from gateway.config.table import Table, option, required

__all__ = [
    "BackstopSection",
    "BatchSection",
    "ClassesSection",
    "InteractiveSection",
    "RefusalSection",
    "ServerSection",
    "SizingSection",
    "StoreSection",
    "TelemetrySection",
    "UpstreamSection",
    "WebsocketSection",
]

Ratio = Annotated[float, real(1, 1_000)]


class ServerSection(Table):
    """The listeners and what they accept."""

    listen: Listener = option("127.0.0.1:8080", doc="host:port or unix:/path; $EVENHAND_LISTEN wins where set")
    admin: Listener = option("127.0.0.1:8081", doc="Dashboard, metrics, health and admin API: host:port")
    admin_token: Token = option("", doc="Bearer token of the admin listener; required if it is not loopback")
    mode: Annotated[str, choice("enforce", "shadow")] = option(
        "enforce", doc="shadow: decide, count and log everything, refuse nothing"
    )
    workers: Annotated[int, count(1, 64)] = option(1, doc="Processes; more than one needs a shared store")
    trusted_proxies: tuple[Trusted, ...] = option(
        (), doc='CIDRs, or "unix", whose Forwarded or X-Forwarded-For is believed, walked from the right'
    )
    tls_certificate: ReadableFile = option("", doc="PEM file of the certificate chain for TLS on listen")
    tls_key: ReadableFile = option("", doc="PEM file of its key")
    max_header_bytes: Annotated[int, size(1024)] = option("32KiB", doc="Longest request head")
    max_headers: Annotated[int, count(1, 10_000)] = option(100, doc="Most fields in a request head")
    max_body_bytes: Annotated[int, size(0)] = option("64MiB", doc="Longest request body")
    max_connections_per_address: Annotated[int, count(1, 1_000_000)] = option(
        2000, doc="Most open connections of one address, TLS handshakes included; trusted proxies excepted"
    )
    header_timeout: Wait = option("10s", doc="For a whole request head to arrive")
    body_timeout: Wait = option("30s", doc="To each further 16 KiB of a request body, or its end")
    keepalive_timeout: Wait = option("75s", doc="Idle connections of callers")
    grace: Duration = option("0s", doc="After SIGTERM: not ready, but still accepting")
    drain_timeout: Duration = option("30s", doc="After that: for running requests to end")
    ipv6_prefix: Annotated[int, count(1, 128)] = option(64, doc="Leading bits of an IPv6 address that are one caller")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """One listener is not the other, an admin listener others can reach has a token, TLS files go together."""
        if self.listen.clashes(self.admin):
            yield "admin", f"expected another address than listen, found {self.admin} beside {self.listen}"
        if not self.admin.loopback and not self.admin_token.get_secret_value():
            yield "admin_token", f"expected a token, since {self.admin} is not loopback, found none"
        if self.tls_certificate and self.tls_key and (fault := tls_fault(self.tls_certificate, self.tls_key)):
            yield "tls_certificate", fault


class UpstreamSection(Table):
    """A service that requests are forwarded to: `[upstream]`, and `[upstreams.NAME]` for routes that name it."""

    url: Address | None = option(None, doc="http://host:port/base, https://..., or unix:/path; a path is prefixed")
    urls: tuple[Address, ...] = option((), doc="Several addresses instead of url")
    host: Annotated[str, choice("upstream", "preserve")] = option(
        "upstream", doc="The Host that is sent: the upstream's own, or the caller's"
    )
    max_connections: Annotated[int, count(1, 100_000)] = option(512, doc="Most connections, all addresses together")
    concurrency: Annotated[int, count(0, 1_000_000)] = option(0, doc="Most requests in flight; 0 is no cap")
    connect_timeout: Wait = option("2s", doc="To connect, TLS included, and for a free connection")
    first_byte_timeout: Wait = option("60s", doc="From the request's end to the head of the response")
    idle_timeout: Wait = option("5m", doc="Between bytes of a response")
    total_timeout: Duration = option("0s", doc="For the whole exchange; 0s is none")
    keepalive_timeout: Duration = option("4s", doc="Idle pooled connections: keep below the upstream's own")
    retry_budget: Part = option(0.1, doc="Retries, as a part of requests")
    ca_file: CaFile = option("", doc="PEM file of the authorities to trust instead of the system's")
    forward_credential: Flag = option(False, doc="Leave the consumed credential in the request")
    trace_headers: Flag = option(True, doc="false: trace context (traceparent and the like) is removed from requests")

    @property
    def addresses(self) -> tuple[UpstreamUrl, ...]:
        """All addresses, `url` or `urls`."""
        return self.urls or ((self.url,) if self.url else ())


class BackstopSection(Table):
    """What the service behind can really serve; shared max-min by tenant weight when contended."""

    quota: Quota = required("Capacity of the service, in request units")
    status: RefusalStatus = option(429, doc="429 or 503, of share and backstop refusals")


class StoreSection(Table):
    """Where buckets are kept, and the answer when that is gone."""

    url: StoreUrl = option(
        "memory:", repr=False, doc="memory:, redis://, rediss://, redis+sentinel://, redis+cluster://"
    )
    namespace: Id = option("evenhand", doc="Prefix of every name in a shared store")
    ca_file: CaFile = option("", doc="PEM file of the authorities to trust instead of the system's")
    path: WritablePath = option("evenhand.sqlite3", doc="Embedded history and registries; from the working directory")
    posture: Posture = option("safe-capacity", doc="Without a store: open, closed, safe-capacity, or deny:N per cent")
    safe_fraction: Part = option(0.5, doc="The part of each limit that safe-capacity allows")
    deadline: Wait = option("20ms", doc="For an answer of the store")
    max_connections: Annotated[int, count(2, 1_000)] = option(4, doc="Most connections of a process to the store")
    max_keys: Annotated[int, count(1, 100_000_000)] = option(
        200_000, doc="Most buckets in memory; beyond it new ones share one"
    )

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Expect authorities beside TLS alone: without it they would only make believe."""
        if self.ca_file and (self.url == MEMORY or not read_store_url(self.url).tls):
            yield "ca_file", "expected a url with TLS beside it, such as rediss://, found one without"


class InteractiveSection(Table):
    """The class of callers who wait."""

    priority: Annotated[int, count(0, 1_000)] = option(0, doc="The lower number goes first")
    reserve: Part = option(0.0, doc="Part of a bucket that this class may not take while a higher one has demand")
    floor: Part = option(0.0, doc="Part of the rate that higher classes leave it")
    ceiling: Part = option(1.0, doc="Part of the backstop it may use over the whole service")


class BatchSection(InteractiveSection):
    """The class of work that can wait."""

    priority: Annotated[int, count(0, 1_000)] = option(1, doc="The lower number goes first")
    reserve: Part = option(0.25, doc="Part of a bucket that this class may not take while a higher one has demand")
    floor: Part = option(0.05, doc="Part of the rate that higher classes leave it")


class ClassesSection(Table):
    """Traffic classes: priority inside a key, a tenant and a share, never across tenants."""

    default: ClassName = option("interactive", doc="The class of a request whose route names none")
    interactive: InteractiveSection = Field(default_factory=InteractiveSection)
    batch: BatchSection = Field(default_factory=BatchSection)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Interactive goes before batch."""
        if self.interactive.priority >= self.batch.priority:
            yield (
                "batch",
                f"expected a priority above {self.interactive.priority} of interactive, found {self.batch.priority}",
            )


class SizingSection(Table):
    """The quota of a key that has none of its own, from its past."""

    window: Wait = option("30d", doc="How much of the past counts")
    peak_interval: Wait = option("10s", doc="The slots in which peaks are measured")
    multiplier: Ratio = option(2.0, doc="Quota over peak")
    initial: Quota = option(
        "20/s", doc="Shown, and counted as shadow, until the key has `learn` of history; then enforced"
    )
    learn: Duration = option("7d", doc="History that a key needs before its sized quota is enforced")
    floor: Quota = option("5/s", doc="No sized quota is below this")
    ceiling: Annotated[float, real(0, 1, above=True)] = option(
        0.5, doc="Of the backstop; where it is below floor, it holds"
    )
    max_growth_per_day: Ratio = option(1.25, doc="Most a sized quota grows in a day")
    max_growth_per_month: Ratio = option(3.0, doc="Most it grows over any 30 days; beyond it an operator decides")
    max_shrink_per_day: Annotated[float, real(0, 1, above=True)] = option(0.9, doc="Most it shrinks in a day")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Slots are counted in tens of seconds, and half an hour holds at least one; a window holds days."""
        if self.peak_interval % 10_000_000 or not 10_000_000 <= self.peak_interval <= 1800_000_000:
            yield "peak_interval", "expected a multiple of 10s up to 30m, found another duration"
        if not 86_400_000_000 <= self.window <= 400 * 86_400_000_000:
            yield "window", "expected a duration from 1d to 400d, found one outside"


class RefusalSection(Table):
    """How refusals are written."""

    headers: Annotated[str, choice("draft-11", "legacy", "off")] = option(
        "draft-11", doc="RateLimit fields; legacy: X-RateLimit-Limit, -Remaining, -Reset"
    )
    cors: tuple[Origin, ...] = option((), doc="Origins that may read our refusals")


class WebsocketSection(Table):
    """Upgraded connections."""

    origins: tuple[Origin, ...] = option(("*",), doc="Origins that may open one")
    max_per_tenant: Annotated[int, count(1, 1_000_000)] = option(1000, doc="Most open at once, per tenant")
    max_message: Annotated[int, size(1)] = option("1MiB", doc="Longest message")
    idle_timeout: Wait = option("5m", doc="Without a message either way")
    max_lifetime: Wait = option("24h", doc="Of one connection")


class TelemetrySection(Table):
    """What is recorded."""

    top_tenants: Annotated[int, count(0, 1_000)] = option(
        50, doc="Tenants with series of their own; the rest is `other`"
    )
    decision_log: OutputPath = option("stderr", doc="stderr, off, or a path from the working directory")
    decision_log_format: Annotated[str, choice("json", "common", "combined")] = option("json", doc="Form of its lines")
    admit_sample: Part = option(0.01, doc="Part of admitted requests that is logged")
    otlp: Collector = option("", doc="OpenTelemetry collector (OTLP over HTTP): a span for each logged request")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Export nothing but what is logged."""
        if self.otlp and self.decision_log == "off":
            yield "otlp", 'expected a decision_log other than "off": what it logs is what is exported'
