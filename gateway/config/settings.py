"""The whole of gateway.toml, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.config.auth import AuthSection
from gateway.config.entries import ExemptionEntry, PolicyEntry, RouteEntry, TenantEntry
from gateway.config.kinds import Id, Text
from gateway.config.sections import (
    BackstopSection,
    ClassesSection,
    RefusalSection,
    ServerSection,
    SizingSection,
    StoreSection,
    TelemetrySection,
    UpstreamSection,
    WebsocketSection,
)
from gateway.config.table import Table, option

__all__ = ["Settings"]


class Settings(Table):
    """Everything an operator configured. Durations are microseconds, sizes bytes, instants Unix microseconds."""

    include: tuple[Text, ...] = option((), doc="Further files, as patterns relative to this one")
    server: ServerSection = Field(default_factory=ServerSection)
    upstream: UpstreamSection
    upstreams: Annotated[Mapping[Id, UpstreamSection], AfterValidator(MappingProxyType)] = Field(
        default_factory=dict, description="Further upstreams, chosen by routes"
    )
    backstop: BackstopSection
    store: StoreSection = Field(default_factory=StoreSection)
    classes: ClassesSection = Field(default_factory=ClassesSection)
    sizing: SizingSection = Field(default_factory=SizingSection)
    auth: AuthSection = Field(default_factory=AuthSection)
    refusal: RefusalSection = Field(default_factory=RefusalSection)
    websocket: WebsocketSection = Field(default_factory=WebsocketSection)
    telemetry: TelemetrySection = Field(default_factory=TelemetrySection)
    tenants: tuple[TenantEntry, ...] = option((), doc="Customers that fairness is owed to")
    routes: tuple[RouteEntry, ...] = option((), doc="Named sets of requests; the first match wins")
    policies: tuple[PolicyEntry, ...] = option((), doc="Named limits besides the buckets that every key has")
    exemptions: tuple[ExemptionEntry, ...] = option((), doc="Higher quotas that still count, each with an end")
