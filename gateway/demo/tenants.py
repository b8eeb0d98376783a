"""The cast of the demo: a dozen light tenants and one that starts a backfill.

Rules
1. The night is the recorded one, scaled: the light tenants together want 14 % of what the service can do, each call of
   theirs waits at most 0.36 s, and the backfill keeps so many calls in flight that, first come first served, a light
   call gets through three times in ten. Design 1 has the original: 2,000/s, 280/s, 1,900 calls.
2. A refused call comes straight back, whatever it was told. That is what the callers of that night did.
3. Everything follows from one number, the capacity of the backstop, which is measured to fit the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.identity.pat import digest, mint
from policies.units import Micros

__all__ = ["BACKFILL", "RETRY_US", "Night", "Tenant", "night", "toml"]

BACKFILL = "backfill"

#: A refused call comes back after this, give or take half of it.
RETRY_US: Micros = 40_000

_LIGHT = ("aster", "birch", "cedar", "dahlia", "elm", "fern", "gorse", "hazel", "iris", "juniper", "kelp", "larch")
_LIGHT_PART = 0.14
_DEADLINE_US: Micros = 360_000
#: Of the backstop: the quota of the backfill under Evenhand. With that of the light tenants it leaves a tenth free.
_BACKFILL_PART = 0.75
#: Calls in flight for each unit per second of the backstop: what makes 30 % of the light calls get through (rule 1).
_IN_FLIGHT = 1.07


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant: calls that arrive at random (`per_second`), or that are always in flight (`in_flight`)."""

    id: str
    token: str
    quota: str
    per_second: float = 0.0
    in_flight: int = 0
    deadline_us: Micros | None = None


@dataclass(frozen=True, slots=True)
class Night:
    """Everybody, and what the service can do: `backstop` requests a second, the origin itself a little more."""

    backstop: int
    light: tuple[Tenant, ...]
    backfill: Tenant

    @property
    def tenants(self) -> tuple[Tenant, ...]:
        """All of them, the backfill last."""
        return (*self.light, self.backfill)

    @property
    def origin(self) -> float:
        """What the origin can do: the backstop is set where it still does well."""
        return self.backstop * 1.25


def night(backstop: int) -> Night:
    """Return the night for a service of `backstop` requests a second."""
    each = backstop * _LIGHT_PART / len(_LIGHT)
    quota = max(10, round(each * 4))
    light = tuple(
        Tenant(name, mint(), f"{quota}/s burst {2 * quota}", per_second=each, deadline_us=_DEADLINE_US)
        for name in _LIGHT
    )
    own = f"{round(backstop * _BACKFILL_PART)}/s burst {max(10, round(backstop * _BACKFILL_PART / 10))}"
    return Night(backstop, light, Tenant(BACKFILL, mint(), own, in_flight=round(backstop * _IN_FLIGHT)))


def toml(cast: Night, *, listen: str, admin: str, upstream: str, quotas: bool) -> str:
    """Return the gateway.toml of the night. Without `quotas` keys are sized, which is shadow while they learn."""
    head = f"""\
[server]
listen = "{listen}"
admin = "{admin}"
drain_timeout = "1s"

[upstream]
url = "{upstream}"

[backstop]
quota = "{cast.backstop}/s burst {max(1, cast.backstop // 4)}"

[telemetry]
decision_log = "off"
"""
    return head + "".join(_entry(tenant, quotas=quotas) for tenant in cast.tenants)


def _entry(tenant: Tenant, *, quotas: bool) -> str:
    quota = f'quota = "{tenant.quota}"\n' if quotas else ""
    return f"""
[[tenants]]
id = "{tenant.id}"
[[tenants.credentials]]
id = "main"
pat = "{digest(tenant.token)}"
{quota}"""
