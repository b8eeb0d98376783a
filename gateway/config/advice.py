"""What is allowed, and probably not meant: told at every check and start, and never an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.config.addresses import Listen, UpstreamUrl
from gateway.config.places import Finding, Place
from gateway.config.reach import unmet
from gateway.config.sections import UpstreamSection
from gateway.config.settings import Settings
from gateway.config.values import quoted
from policies.units import SECOND, Micros

__all__ = ["SOON", "advice"]

#: Fewer characters than that of an admin token can be guessed by whoever may try for long enough.
_GUESSED = 16
_ANYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound
_THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "::1"})

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


def _unix_never_comes(settings: Settings) -> Iterator[Finding]:
    for index, network in enumerate(settings.server.trusted_proxies):
        if network == "unix" and not settings.server.listen.unix:
            message = "is the peer of a unix socket, and [server] listen is none, so this entry trusts nobody"
            yield ("server", "trusted_proxies", index), message


def _guessable(settings: Settings) -> Iterator[Finding]:
    server = settings.server
    length = len(server.admin_token.get_secret_value())
    who = "whoever is on this machine" if server.admin.loopback else "others than this machine"
    if length < _GUESSED and (length or not server.admin.loopback):
        yield ("server", "admin_token"), f"is shorter than {_GUESSED} characters, and {who} may try"


def _own_listener(settings: Settings) -> Iterator[Finding]:
    """Tell of an upstream that is the gateway itself: every request would come back, and end as 508."""
    sections: list[tuple[Place, UpstreamSection]] = [(("upstream",), settings.upstream)]
    sections += [(("upstreams", name), section) for name, section in settings.upstreams.items()]
    for place, section in sections:
        for index, url in enumerate(section.addresses):
            for key in ("listen", "admin"):
                if _reaches(url, getattr(settings.server, key)):
                    at: Place = (*place, "urls", index) if section.urls else (*place, "url")
                    yield at, f"is [server] {key}, the gateway's own address, which is no service behind it"


def _reaches(url: UpstreamUrl, listen: Listen) -> bool:
    if url.unix or listen.unix:
        return url.unix == listen.unix
    here = url.host in _THIS_MACHINE and listen.host in _THIS_MACHINE | _ANYWHERE
    return url.port == listen.port != 0 and (here or url.host == listen.host)


def _same_issuer(settings: Settings) -> Iterator[Finding]:
    first: dict[tuple[str, str], str] = {}
    for kind in ("jwt", "job"):
        for index, entry in enumerate(getattr(settings.auth, kind)):
            there = first.setdefault((entry.issuer, entry.audience), f"auth.{kind}[{index}]")
            if there != f"auth.{kind}[{index}]":
                message = f"has issuer and audience of {there}, and only sees the tokens that that one refuses"
                yield ("auth", kind, index, "issuer"), message


def _shut(settings: Settings) -> Iterator[Finding]:
    for name in ("interactive", "batch"):
        if getattr(settings.classes, name).ceiling == 0:
            yield ("classes", name, "ceiling"), f"is 0, so every request of class {name} is refused"


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
    _unix_never_comes,
    _guessable,
    _own_listener,
    _any_namespace,
    _same_issuer,
    _shut,
    _off,
    _unlimited_and_limited,
    unmet,
)
