"""What is allowed, and probably not meant: told at every check and start, and never an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.config.places import Finding
from gateway.config.settings import Settings
from gateway.config.values import quoted
from policies.units import SECOND, Micros

__all__ = ["SOON", "advice"]

#: How long before its end an exemption is warned of.
SOON: Micros = 7 * 86_400 * SECOND


def advice(settings: Settings, now: Micros) -> Iterator[Finding]:
    """Yield all that deserves a second look at the wall-clock instant `now`."""
    for source in _SOURCES:
        yield from source(settings)
    yield from _expired(settings, now)


def _nobody_vouches(settings: Settings) -> Iterator[Finding]:
    auth = settings.auth
    pats = any(credential.pat for tenant in settings.tenants for credential in tenant.credentials)
    if auth.unknown == "reject" and not (pats or auth.jwt or auth.job or auth.introspection):
        message = (
            "no PAT, issuer or introspection is configured, so every caller with a credential gets 401;"
            ' "anonymous" would forward it'
        )
        yield ("auth", "unknown"), message


def _everybody_believed(settings: Settings) -> Iterator[Finding]:
    for index, network in enumerate(settings.server.trusted_proxies):
        if not isinstance(network, str) and network.prefixlen == 0:
            yield (
                ("server", "trusted_proxies", index),
                "trusts everybody, so any caller can choose the address it is charged to",
            )


def _any_namespace(settings: Settings) -> Iterator[Finding]:
    for index, issuer in enumerate(settings.auth.job):
        if "*" in issuer.tenants:
            message = "lets whoever registers a namespace at this issuer speak for any tenant of that name"
            yield ("auth", "job", index, "tenants"), message


def _off(settings: Settings) -> Iterator[Finding]:
    for index, policy in enumerate(settings.policies):
        if policy.mode == "off":
            yield ("policies", index, "mode"), f"policy {quoted(policy.name)} is off and limits nothing"


def _unlimited_and_limited(settings: Settings) -> Iterator[Finding]:
    for index, route in enumerate(settings.routes):
        covering = [policy.name for policy in settings.policies if policy.match.reaches(route) and policy.mode != "off"]
        if route.unlimited and covering:
            message = f"says that no named policy covers route {quoted(route.name)}, and {quoted(covering[0])} does"
            yield ("routes", index, "unlimited"), message


def _expired(settings: Settings, now: Micros) -> Iterator[Finding]:
    for number, tenant in enumerate(settings.tenants):
        for index, credential in enumerate(tenant.credentials):
            if credential.expires is not None and credential.expires <= now:
                yield ("tenants", number, "credentials", index, "expires"), "is past, so this credential proves nothing"
    for index, exemption in enumerate(settings.exemptions):
        if exemption.expires <= now:
            yield ("exemptions", index, "expires"), "is past, so this exemption raises nothing"
        elif exemption.expires <= now + SOON:
            told = f"is less than a week away: exemption {quoted(exemption.name)} of {exemption.owner} ends then"
            yield ("exemptions", index, "expires"), told


_SOURCES: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    _nobody_vouches,
    _everybody_believed,
    _any_namespace,
    _off,
    _unlimited_and_limited,
)
