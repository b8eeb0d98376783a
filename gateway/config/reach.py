"""What no request can ever meet: routes behind others, and entries about tenants or credentials nobody can prove.

Rules
1. Nothing here is an error: what cannot be met today may be met by a token of tomorrow's issuer. It is told.
2. Told is only what is certain from the file alone. Tenants that a wildcard may speak for are as good as listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gateway.config.entries import MatchTable, RouteEntry
from gateway.config.places import Finding, Place
from gateway.config.settings import Settings
from gateway.config.suggest import near
from gateway.config.values import RESERVED, quoted

__all__ = ["unmet"]

#: What other routers give a meaning to, as it stands in a canonical path: [a-z], {id}, <id>, (a|b), ^, $, :id.
_FOREIGN = re.compile(r"%(?:5B|5D|5E|7B|7C|7D|3C|3E)|\(.*\)|\$(?:/|$)|/:")


def unmet(settings: Settings) -> Iterator[Finding]:
    """Yield all that nothing meets, and all that looks as if it were written for another router."""
    yield from _routes(settings.routes)
    proofs = _Proofs(settings)
    for name in ("policies", "exemptions"):
        for index, entry in enumerate(getattr(settings, name)):
            yield from proofs.missing((name, index, "match"), entry.match)
    yield from proofs.unusable()
    yield from proofs.namespaces()


def _routes(routes: tuple[RouteEntry, ...]) -> Iterator[Finding]:
    for index, route in enumerate(routes):
        if _FOREIGN.search(route.path):
            message = 'is matched as it is written: "*" is any one segment, "**" the rest, and there is nothing else'
            yield ("routes", index, "path"), message
        before = [other for other in routes[:index] if _covers(other.path, route.path)]
        if _all_taken(route, before):
            names = ", ".join(quoted(other.name) for other in before)
            yield ("routes", index, "path"), f"never matches, since every such request meets {names} before it"


def _all_taken(route: RouteEntry, before: Iterable[RouteEntry]) -> bool:
    """Return whether routes that cover its path leave it none of its methods."""
    taken = [other.methods for other in before]
    if None in taken:
        return True
    return route.methods is not None and set(route.methods) <= {method for methods in taken for method in methods or ()}


def _covers(wide: str, narrow: str) -> bool:
    """Return whether every path that `narrow` matches is matched by `wide`."""
    ours, theirs = wide.split("/"), narrow.split("/")
    open_ended = theirs[-1] == "**"
    rest = theirs[:-1] if open_ended else theirs
    if ours[-1] == "**":
        ours = ours[:-1]
        return len(rest) >= len(ours) and all(map(_takes, ours, rest))
    return not open_ended and len(ours) == len(rest) and all(map(_takes, ours, rest))


def _takes(ours: str, theirs: str) -> bool:
    return ours == theirs or (ours == "*" and theirs != "")


class _Proofs:
    """Which tenants and credentials somebody can prove to be."""

    def __init__(self, settings: Settings) -> None:
        auth = settings.auth
        self._settings = settings
        self._listed = {tenant.id: tenant for tenant in settings.tenants}
        self._users = [pattern for issuer in auth.jwt for pattern in issuer.tenants]
        self._users += auth.introspection.tenants if auth.introspection else ()
        self._jobs = [pattern for issuer in auth.job for pattern in issuer.tenants]

    def missing(self, place: Place, match: MatchTable) -> Iterator[Finding]:
        """Yield what keeps a match from covering anybody."""
        tenant, credential = match.tenant, match.credential
        known = tenant is None or tenant in self._listed or tenant in RESERVED
        # A job token of `POST /api/jobs` can name any tenant.
        if tenant is not None and not known and match.identity != "job" and not self._spoken_for(tenant):
            told = f"covers nobody: tenant {quoted(tenant)} is not listed, and no issuer may speak for it"
            yield (*place, "tenant"), f"{told}{near(tenant, self._listed)}"
        elif credential is not None and known and not self._users_of(tenant):
            holders = [holder for holder in self._listed.values() if tenant in {None, holder.id}]
            names = sorted({entry.id for holder in holders for entry in holder.credentials})
            if credential not in names:
                told = f"covers nobody: credential {quoted(credential)} is not listed, and no issuer may name one"
                yield (*place, "credential"), f"{told}{near(credential, names)}"

    def unusable(self) -> Iterator[Finding]:
        """Yield the credentials that nobody can present."""
        for number, tenant in enumerate(self._settings.tenants):
            for index, entry in enumerate(tenant.credentials):
                if not entry.pat and not self._users_of(tenant.id):
                    message = f"nobody can present it: it has no pat, and no issuer may speak for {quoted(tenant.id)}"
                    yield ("tenants", number, "credentials", index), message

    def namespaces(self) -> Iterator[Finding]:
        """Yield the tenants of job issuers that are no tenants, where others are listed."""
        for number, issuer in enumerate(self._settings.auth.job if self._listed else ()):
            for index, name in enumerate(issuer.tenants):
                if "*" not in name and name not in self._listed and not self._users_of(name):
                    message = f"names tenant {quoted(name)}, which is not listed{near(name, self._listed)}"
                    yield ("auth", "job", number, "tenants", index), message

    def _spoken_for(self, tenant: str) -> bool:
        return any(_names(pattern, tenant) for pattern in (*self._users, *self._jobs))

    def _users_of(self, tenant: str | None) -> bool:
        """Return whether an issuer may name credentials of `tenant`, or of any tenant at all."""
        return bool(self._users) if tenant is None else any(_names(pattern, tenant) for pattern in self._users)


def _names(pattern: str, tenant: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), tenant, re.DOTALL) is not None
