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
    Size,
    StoreUrl,
    Token,
    Trusted,
    WritablePath,
    choice,
    count,
    real,
)
from gateway.config.table import Table

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

    listen: Listener = Field("127.0.0.1:8080", description="host:port or unix:/path; $EVENHAND_LISTEN wins where set")
    admin: Listener = Field("127.0.0.1:8081", description="Dashboard, metrics, health and admin API: host:port")
    admin_token: Token = Field("", description="Bearer token of the admin listener; required if it is not loopback")
    mode: Annotated[str, choice("enforce", "shadow")] = Field(
        "enforce", description="shadow: decide, count and log everything, refuse nothing"
    )
    workers: Annotated[int, count(1, 64)] = Field(1, description="Processes; more than one needs a shared store")
    trusted_proxies: tuple[Trusted, ...] = Field(
        (), description='CIDRs, or "unix", whose Forwarded or X-Forwarded-For is believed, walked from the right'
    )
    tls_certificate: ReadableFile = Field("", description="PEM file of the certificate chain for TLS on listen")
    tls_key: ReadableFile = Field("", description="PEM file of its key")
    max_header_bytes: Size = Field("32KiB", description="Longest request head")
    max_headers: Annotated[int, count(1, 10_000)] = Field(100, description="Most fields in a request head")
    max_body_bytes: Size = Field("64MiB", description="Longest request body")
    max_connections_per_address: Annotated[int, count(1, 1_000_000)] = Field(
        2000, description="Most open connections of one address; trusted proxies excepted"
    )
    header_timeout: Duration = Field("10s", description="For a whole request head to arrive")
    body_timeout: Duration = Field("30s", description="To each further 16 KiB of a request body, or its end")
    keepalive_timeout: Duration = Field("75s", description="Idle connections of callers")
    grace: Duration = Field("0s", description="After SIGTERM: not ready, but still accepting")
    drain_timeout: Duration = Field("30s", description="After that: for running requests to end")
    ipv6_prefix: Annotated[int, count(1, 128)] = Field(
        64, description="Leading bits of an IPv6 address that are one caller"
    )

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """One listener is not the other, an admin listener others can reach has a token, TLS has both its files."""
        if self.listen.clashes(self.admin):
            yield "admin", f"expected another address than listen, found {self.admin} beside {self.listen}"
        if not self.admin.loopback and not self.admin_token.get_secret_value():
            yield "admin_token", f"expected a token, since {self.admin} is not loopback, found none"
        if (self.tls_certificate is None) != (self.tls_key is None):
            lone, other = ("tls_key", "tls_certificate") if self.tls_key else ("tls_certificate", "tls_key")
            yield other, f"expected a file beside {lone}, found none"
        elif self.tls_certificate and self.tls_key and (fault := tls_fault(self.tls_certificate, self.tls_key)):
            yield "tls_certificate", fault


class UpstreamSection(Table):
    """A service that requests are forwarded to: `[upstream]`, and `[upstreams.NAME]` for routes that name it."""

    url: Address | None = Field(
        None, description="http://host:port/base, https://..., or unix:/path; a path is prefixed"
    )
    urls: tuple[Address, ...] = Field((), description="Several addresses instead of url")
    host: Annotated[str, choice("upstream", "preserve")] = Field(
        "upstream", description="The Host that is sent: the upstream's own, or the caller's"
    )
    max_connections: Annotated[int, count(1, 100_000)] = Field(
        512, description="Most connections, all addresses together"
    )
    concurrency: Annotated[int, count(0, 1_000_000)] = Field(0, description="Most requests in flight; 0 is no cap")
    connect_timeout: Duration = Field("2s", description="To connect, TLS included, and for a free connection")
    first_byte_timeout: Duration = Field("60s", description="From the request's end to the head of the response")
    idle_timeout: Duration = Field("5m", description="Between bytes of a response")
    total_timeout: Duration = Field("0s", description="For the whole exchange; 0s is none")
    keepalive_timeout: Duration = Field("4s", description="Idle pooled connections: keep below the upstream's own")
    retry_budget: Part = Field(0.1, description="Retries, as a part of requests")
    ca_file: CaFile = Field("", description="PEM file of the authorities to trust instead of the system's")
    forward_credential: Flag = Field(False, description="Leave the consumed credential in the request")
    trace_headers: Flag = Field(True, description="Send Via, X-Request-Id and trace context")

    @property
    def addresses(self) -> tuple[UpstreamUrl, ...]:
        """All addresses, `url` or `urls`."""
        return self.urls or ((self.url,) if self.url else ())

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Every wait but the total one ends."""
        for key in ("connect_timeout", "first_byte_timeout", "idle_timeout"):
            if not getattr(self, key):
                yield key, "expected a duration above 0s, found 0s, which would never allow an answer"


class BackstopSection(Table):
    """What the service behind can really serve; shared max-min by tenant weight when contended."""

    quota: Quota = Field(description="Capacity of the service, in request units")
    status: Annotated[int, count(429, 503)] = Field(429, description="429 or 503, of share and backstop refusals")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Two statuses say it, none between."""
        if self.status not in {429, 503}:
            yield "status", f"expected 429 or 503, found {self.status}"


class StoreSection(Table):
    """Where buckets are kept, and the answer when that is gone."""

    url: StoreUrl = Field(
        "memory:", repr=False, description="memory:, redis://, rediss://, redis+sentinel://, redis+cluster://"
    )
    namespace: Id = Field("evenhand", description="Prefix of every name in a shared store")
    ca_file: CaFile = Field("", description="PEM file of the authorities to trust instead of the system's")
    path: WritablePath = Field(
        "evenhand.sqlite3", description="Embedded history and registries; from the working directory"
    )
    posture: Posture = Field(
        "safe-capacity", description="Without a store: open, closed, safe-capacity, or deny:N per cent"
    )
    safe_fraction: Part = Field(0.5, description="The part of each limit that safe-capacity allows")
    deadline: Duration = Field("20ms", description="For an answer of the store")
    max_connections: Annotated[int, count(1, 1_000)] = Field(4, description="Most connections to the store")
    max_keys: Annotated[int, count(1, 100_000_000)] = Field(
        200_000, description="Most buckets in memory; beyond it new ones share one"
    )


class InteractiveSection(Table):
    """The class of callers who wait."""

    priority: Annotated[int, count(0, 1_000)] = Field(0, description="The lower number goes first")
    reserve: Part = Field(
        0.0, description="Part of a bucket that this class may not take while a higher one has demand"
    )
    floor: Part = Field(0.0, description="Part of the rate that higher classes leave it")
    ceiling: Part = Field(1.0, description="Part of the backstop it may use over the whole service")


class BatchSection(InteractiveSection):
    """The class of work that can wait."""

    priority: Annotated[int, count(0, 1_000)] = Field(1, description="The lower number goes first")
    reserve: Part = Field(
        0.25, description="Part of a bucket that this class may not take while a higher one has demand"
    )
    floor: Part = Field(0.05, description="Part of the rate that higher classes leave it")


class ClassesSection(Table):
    """Traffic classes: priority inside a key, a tenant and a share, never across tenants."""

    default: ClassName = Field("interactive", description="The class of a request whose route names none")
    interactive: InteractiveSection = Field(default_factory=InteractiveSection)
    batch: BatchSection = Field(default_factory=BatchSection)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Interactive goes before batch."""
        if self.interactive.priority >= self.batch.priority:
            yield (
                "batch",
                f"expected a priority number above interactive's {self.interactive.priority}, found {self.batch.priority}",
            )


class SizingSection(Table):
    """The quota of a key that has none of its own, from its past."""

    window: Duration = Field("30d", description="How much of the past counts")
    peak_interval: Duration = Field("10s", description="The slots in which peaks are measured")
    multiplier: Ratio = Field(2.0, description="Quota over peak")
    initial: Quota = Field(
        "20/s", description="Shown, and counted as shadow, until the key has `learn` of history; then enforced"
    )
    learn: Duration = Field("7d", description="History that a key needs before its sized quota is enforced")
    floor: Quota = Field("5/s", description="No sized quota is below this")
    ceiling: Annotated[float, real(0, 1, above=True)] = Field(
        0.5, description="Of the backstop; where it is below floor, it holds"
    )
    max_growth_per_day: Ratio = Field(1.25, description="Most a sized quota grows in a day")
    max_growth_per_month: Ratio = Field(
        3.0, description="Most it grows over any 30 days; beyond it an operator decides"
    )
    max_shrink_per_day: Annotated[float, real(0, 1, above=True)] = Field(0.9, description="Most it shrinks in a day")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Slots have a length and fit into the window."""
        if not 1_000_000 <= self.peak_interval <= self.window:
            yield "peak_interval", "expected a duration from 1s to window, found one outside"


class RefusalSection(Table):
    """How refusals are written."""

    headers: Annotated[str, choice("draft-11", "legacy", "off")] = Field(
        "draft-11", description="RateLimit fields; legacy: X-RateLimit-Limit, -Remaining, -Reset"
    )
    cors: tuple[Origin, ...] = Field((), description="Origins that may read our refusals")


class WebsocketSection(Table):
    """Upgraded connections."""

    origins: tuple[Origin, ...] = Field(("*",), description="Origins that may open one")
    max_per_tenant: Annotated[int, count(1, 1_000_000)] = Field(1000, description="Most open at once, per tenant")
    max_message: Size = Field("1MiB", description="Longest message")
    idle_timeout: Duration = Field("5m", description="Without a frame either way")
    max_lifetime: Duration = Field("24h", description="Of one connection")


class TelemetrySection(Table):
    """What is recorded."""

    top_tenants: Annotated[int, count(0, 1_000)] = Field(
        50, description="Tenants with series of their own; the rest is `other`"
    )
    decision_log: OutputPath = Field("stderr", description="stderr, off, or a path from the working directory")
    decision_log_format: Annotated[str, choice("json", "common", "combined")] = Field(
        "json", description="Form of its lines"
    )
    admit_sample: Part = Field(0.01, description="Part of admitted requests that is logged")
