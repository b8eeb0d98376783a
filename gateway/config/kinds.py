"""The kinds of value that gateway.toml knows, as types of its models: the parser and the JSON Schema side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SecretStr
from pydantic_core import CoreSchema, core_schema

from gateway.config import addresses, files, patterns, secrets, store_url, values
from gateway.config.values import QuotaText
from policies.units import Micros, RequestUnits

__all__ = [
    "Address",
    "Algorithm",
    "CaFile",
    "Characteristics",
    "ClassName",
    "Classes",
    "Cost",
    "Duration",
    "Flag",
    "HttpUrl",
    "Id",
    "Instant",
    "KeySetFile",
    "Kind",
    "Listener",
    "Method",
    "Methods",
    "Note",
    "Origin",
    "OutputPath",
    "OwnId",
    "Part",
    "PatDigests",
    "PathPattern",
    "Posture",
    "Prefix",
    "Quota",
    "ReadableFile",
    "RefusalStatus",
    "Secret",
    "SharedSecret",
    "StoreUrl",
    "TenantPattern",
    "TenantQuota",
    "Text",
    "Token",
    "Trusted",
    "Wait",
    "Weight",
    "WritablePath",
    "choice",
    "count",
    "real",
    "size",
]


@dataclass(frozen=True, eq=False)
class Kind:
    """Makes a type of a parser: the value is whatever `parse` returns, the schema whatever `schema` says."""

    parse: Callable[[object], Any]
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate with the parser alone."""
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe what may stand in the file."""
        return dict(self.schema)


def count(low: int, high: int) -> Kind:
    """Return the kind of whole numbers from `low` to `high`."""
    return Kind(values.whole(low, high), {"type": "integer", "minimum": low, "maximum": high})


def real(low: float, high: float, *, above: bool = False) -> Kind:
    """Return the kind of numbers from `low` (from just above it, if `above`) to `high`."""
    schema = {"type": "number", "minimum": low, "maximum": high}
    return Kind(values.number(low, high, above=above), schema | ({"exclusiveMinimum": True} if above else {}))


def choice(*words: str) -> Kind:
    """Return the kind of a closed list of words."""
    return Kind(values.one_of(*words), {"type": "string", "enum": list(words)})


def size(low: int) -> Kind:
    """Return the kind of sizes of at least `low` bytes."""
    return _text(values.size(low), r"^\d+(B|KiB|MiB|GiB)$")


def _text(parse: Callable[[object], Any], pattern: str) -> Kind:
    return Kind(parse, {"type": "string", "pattern": pattern})


def _list(parse: Callable[[object], Any], items: dict[str, Any]) -> Kind:
    return Kind(parse, {"type": "array", "items": items, "minItems": 1, "uniqueItems": True})


def _one_or_more(item: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [item, {"type": "array", "items": item, "minItems": 1, "uniqueItems": True}]}


_DURATION = r"^\d+(\.\d+)?(ms|s|m|h|d)$"
_QUOTA = r"^\d+(\.\d+)?/(s|min|h|d)( +burst +\d+(\.\d+)?)?$"

Flag = Annotated[bool, Kind(values.parse_flag, {"type": "boolean"})]
Duration = Annotated[Micros, _text(values.parse_duration, _DURATION)]
Wait = Annotated[Micros, _text(values.parse_wait, _DURATION)]
Quota = Annotated[QuotaText, _text(values.parse_quota, _QUOTA)]
TenantQuota = Annotated[QuotaText | Literal["sized"], _text(values.parse_tenant_quota, rf"{_QUOTA}|^sized$")]
Part = Annotated[float, real(0, 1)]
# No smaller than a thousandth: nothing may round to nothing when it is divided or scaled (case 39).
Weight = Annotated[float, real(0.001, 1_000_000)]
Cost = Annotated[RequestUnits, real(0.001, 1_000_000)]
Instant = Annotated[Micros, Kind(values.parse_instant, {"type": "string", "format": "date-time"})]

RefusalStatus = Annotated[int, Kind(values.number_of(429, 503), {"type": "integer", "enum": [429, 503]})]

Text = Annotated[str, Kind(values.parse_text)]
Note = Annotated[str, Kind(values.parse_note)]
Id = Annotated[str, Kind(values.parse_id, {"type": "string", "minLength": 1, "maxLength": 128})]
OwnId = Annotated[str, Kind(values.parse_own_id, {"type": "string", "minLength": 1, "maxLength": 128})]
Method = Annotated[str, _text(values.parse_method, r"^[A-Z]")]
ClassName = Annotated[str, choice("interactive", "batch")]
Posture = Annotated[str, _text(values.parse_posture, r"^(open|closed|safe-capacity|deny:(100|\d{1,2}))$")]

Listener = Annotated[addresses.Listen, Kind(addresses.parse_listen)]
Address = Annotated[addresses.UpstreamUrl, _text(addresses.parse_upstream, r"^(https?://|unix:/)")]
HttpUrl = Annotated[str, _text(addresses.parse_http_url, "^https?://")]
Collector = Annotated[str, _text(addresses.parse_collector, "^($|https?://)")]
Origin = Annotated[str, Kind(addresses.parse_origin)]
StoreUrl = Annotated[
    str, _text(store_url.parse_store_url, r"^(memory:$|rediss?(\+(sentinel|cluster))?://|redis\+unix:///)")
]
Trusted = Annotated[values.Network | Literal["unix"], Kind(values.parse_network)]

PathPattern = Annotated[str, _text(patterns.parse_pattern, "^/")]
Prefix = Annotated[str, _text(patterns.parse_prefix, "^(/|$)")]
TenantPattern = Annotated[
    str, Kind(patterns.parse_tenant_pattern, {"type": "string", "minLength": 1, "maxLength": 128})
]
Methods = Annotated[tuple[str, ...], _list(patterns.parse_methods, {"type": "string", "pattern": "^[A-Z]"})]
Classes = Annotated[
    tuple[str, ...], _list(patterns.parse_classes, {"type": "string", "enum": ["interactive", "batch"]})
]
Characteristics = Annotated[
    tuple[str, ...], _list(patterns.parse_characteristics, {"type": "string", "enum": list(patterns.CHARACTERISTICS)})
]

Secret = Annotated[SecretStr, Kind(secrets.parse_secret)]
SharedSecret = Annotated[SecretStr, Kind(secrets.parse_shared)]
Token = Annotated[SecretStr, Kind(secrets.parse_token)]
PatDigests = Annotated[
    tuple[str, ...], Kind(secrets.parse_pats, _one_or_more({"type": "string", "pattern": secrets.PAT}))
]
Algorithm = Annotated[str, choice(*secrets.ALGORITHMS)]

CaFile = Annotated[Path | None, Kind(files.parse_authorities)]
ReadableFile = Annotated[Path | None, Kind(files.parse_readable)]
KeySetFile = Annotated[Path | None, Kind(files.parse_key_set)]
WritablePath = Annotated[Path, Kind(values.parse_path)]
OutputPath = Annotated[Path | Literal["stderr", "off"], Kind(values.parse_output)]
