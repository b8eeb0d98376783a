"""A fixed quota whose burst is below the cost of a route that it can meet is refused (contract, section 3).

A full bucket would admit such a request and go into debt; written on purpose, that is always a mistake. A default is
never too small: it grows with the dearest route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gateway.config.auth import AuthSection
from gateway.config.drafts import Draft
from gateway.config.entries import MatchTable
from gateway.config.places import Finding, Place
from gateway.config.sections import BackstopSection, SizingSection
from gateway.config.table import Table
from gateway.config.values import QuotaText, quoted
from policies.units import RequestUnits

__all__ = ["too_small"]


class _Cost(NamedTuple):
    """What one kind of request costs, and how a sentence calls it."""

    name: str | None
    methods: tuple[str, ...] | None
    batch: bool
    units: RequestUnits
    words: str


def too_small(made: Draft) -> Iterator[Finding]:
    """Yield every fixed quota with a burst of its own that is below a cost it can meet."""
    costs = list(_costs(made))
    for place, quota, match in _quotas(made):
        met = [cost for cost in costs if _meets(match, cost)]
        most = max(met, key=lambda cost: cost.units, default=None)
        if quota.rate.per_second and quota.burst is not None and most is not None and quota.burst < most.units:
            message = (
                f"expected a burst of at least {most.units:g}, the cost of {most.words}, found {float(quota.burst):g}"
            )
            yield place, message


def _costs(made: Draft) -> Iterator[_Cost]:
    classes = made.parts.get(("classes",))
    default_batch = classes is not None and classes.default == "batch"
    yield _Cost(None, None, default_batch, 1.0, "a request that no route matches")
    for _, route in made.entries("routes"):
        batch = route.cls == "batch" if route.cls else default_batch
        yield _Cost(route.name, route.methods, batch, route.cost, f"route {quoted(route.name)}")


def _meets(match: MatchTable, cost: _Cost) -> bool:
    """Return whether a request of this cost can be covered by `match`; a caller may lower its class, never raise it."""
    method = "OPTIONS" if match.identity == "preflight" else match.method
    return (
        (match.route is None or match.route == cost.name)
        and (method is None or cost.methods is None or method in cost.methods)
        and not (match.cls == "interactive" and cost.batch)
    )


def _quotas(made: Draft) -> Iterator[tuple[Place, QuotaText, MatchTable]]:
    """Yield (place, quota, what it covers) of all that the operator wrote."""
    anyone = MatchTable()
    sections: tuple[tuple[str, type[Table], str, Callable[[], MatchTable]], ...] = (
        ("backstop", BackstopSection, "quota", MatchTable),
        ("sizing", SizingSection, "initial", MatchTable),
        ("auth", AuthSection, "anonymous_quota", MatchTable),
        ("auth", AuthSection, "rejected_quota", MatchTable),
        ("auth", AuthSection, "preflight_quota", lambda: MatchTable(identity="preflight")),
    )
    for name, kind, key, match in sections:
        section = made.parts.get((name,))
        if isinstance(section, kind) and key in section.model_fields_set:
            yield (name, key), getattr(section, key), match()
    for place, tenant in made.entries("tenants"):
        if isinstance(tenant.quota, QuotaText):
            yield (*place, "quota"), tenant.quota, anyone
        for index, credential in enumerate(tenant.credentials):
            if credential.quota is not None:
                yield (*place, "credentials", index, "quota"), credential.quota, anyone
    for name in ("policies", "exemptions"):
        for place, entry in made.entries(name):
            if entry.quota is not None:
                yield (*place, "quota"), entry.quota, entry.match
