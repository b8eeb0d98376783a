"""Scenarios in which more is wanted than there is, by tenants that all keep to their own limits."""

from __future__ import annotations

from loadtest.sim.model import (
    OBEY,
    Arrivals,
    Check,
    Loop,
    Mint,
    Mode,
    Rate,
    Scenario,
    TenantLoad,
    hammer,
)
from policies.request import Class

__all__ = ["SCENARIOS"]

BACKSTOP = Rate(2_000)
BOTH = (Mode.KEYS_ONLY, Mode.EVENHAND)


def small(count: int, rate: float = 5.0, *, start: float = 0.0) -> tuple[TenantLoad, ...]:
    """Return tenants that ask for a little and never come back."""
    return tuple(
        TenantLoad(f"small-{index:03}", (Arrivals(rate, start=start),), group="small", quota=Rate(20, burst=20))
        for index in range(count)
    )


def large(count: int, rate: float = 400.0, *, start: float = 0.0) -> tuple[TenantLoad, ...]:
    """Return tenants that each ask for a fifth of everything."""
    return tuple(
        TenantLoad(f"large-{index:02}", (Arrivals(rate, start=start),), group="large", quota=Rate(500))
        for index in range(count)
    )


BUSY_HOUR = Scenario(
    name="busy-hour",
    about="92 tenants at 5/s beside 20 at 400/s, each within its own limit",
    backstop=BACKSTOP,
    tenants=(*small(92), *large(20)),
    seconds=35.0,
    measure_from=5.0,
    checks=(
        Check("worst small tenant per call", lambda f: f.lowest_call_success("small"), most=0.25, mode=Mode.KEYS_ONLY),
        Check("worst small tenant per call", lambda f: f.lowest_call_success("small"), least=1.0),
        Check("large tenants off max-min, at most", lambda f: f.off_fair("large"), most=0.05),
        Check("utilisation over 30 s", lambda f: f.utilisation, least=0.98),
    ),
    modes=BOTH,
)

EVERYONE_INTERACTIVE = Scenario(
    name="everyone-interactive",
    about="twenty tenants of equal demand: ten call half of it batch, ten call everything interactive",
    backstop=BACKSTOP,
    tenants=(
        *small(92),
        *(
            TenantLoad(
                f"honest-{index}", (Arrivals(200), Arrivals(200, cls=Class.BATCH)), group="honest", quota=Rate(500)
            )
            for index in range(10)
        ),
        *(TenantLoad(f"greedy-{index}", (Arrivals(400),), group="greedy", quota=Rate(500)) for index in range(10)),
    ),
    seconds=20.0,
    checks=(
        Check("greedy over honest", lambda f: f.rate("greedy") / f.rate("honest"), 0.95, 1.05),
        Check("worst small tenant per call", lambda f: f.lowest_call_success("small"), least=1.0),
    ),
)

MINTED_KEYS = Scenario(
    name="minted-keys",
    about="one tenant spreads its calls over 100 keys, nineteen use one each",
    backstop=BACKSTOP,
    tenants=(
        *small(92),
        TenantLoad("minting", (Arrivals(2_000),), quota=Rate(50), keys=100),
        *large(19),
    ),
    seconds=20.0,
    checks=(
        Check("the hundred keys against one share", lambda f: f.group("minting")[0].against_fair, most=1.05),
        Check("worst small tenant per call", lambda f: f.lowest_call_success("small"), least=1.0),
    ),
    modes=BOTH,
)

MINTED_TENANTS = Scenario(
    name="minted-tenants",
    about="an issuer mints a fresh tenant for each of 1,700 calls a second, beside the busy hour",
    backstop=BACKSTOP,
    tenants=(
        *small(92),
        *large(20),
        TenantLoad("minted", (Mint(1_700),), listed=False),
    ),
    seconds=15.0,
    checks=(
        Check("worst small tenant per call", lambda f: f.lowest_call_success("small"), least=1.0),
        Check("minted ones together, of their share", lambda f: f.group("minted")[0].against_fair, most=1.05),
        Check("large tenants, of what is theirs", lambda f: min(r.against_fair for r in f.group("large")), least=0.95),
    ),
    modes=BOTH,
)

WEIGHTS = Scenario(
    name="weights",
    about="weights 1, 2 and 5, all wanting more than their part",
    backstop=BACKSTOP,
    tenants=tuple(
        TenantLoad(f"weight-{weight}-{index}", (Arrivals(800),), group=f"weight {weight}", weight=float(weight))
        for weight in (1, 2, 5)
        for index in range(3)
    ),
    seconds=15.0,
    checks=(
        Check("off max-min, at most", lambda f: max(f.off_fair(f"weight {weight}") for weight in (1, 2, 5)), most=0.05),
        Check("weight 5 over weight 1", lambda f: f.rate("weight 5") / f.rate("weight 1"), 4.75, 5.25),
    ),
)


def tiny(name: str, wait: str, begin: float, end: float, least: float) -> Scenario:
    """Return the scenario of tiny shares, looked at from `begin` to `end`."""
    return Scenario(
        name=name,
        about=f"1,000 tenants over 300/s, half asking for 0.2/s, half for 3/s, {wait}; 0.3/s each would be even",
        backstop=Rate(300),
        tenants=(
            *(TenantLoad(f"modest-{index:03}", (Arrivals(0.2),), group="modest") for index in range(500)),
            *(TenantLoad(f"avid-{index:03}", (Arrivals(3.0),), group="avid") for index in range(500)),
        ),
        seconds=end,
        measure_from=begin,
        checks=(
            Check("modest tenants per call", lambda f: f.call_success("modest"), least=least),
            Check("avid ones counted as refused within their share", lambda f: f.within("avid"), most=0),
        ),
        modes=BOTH,
    )


POISSON = Scenario(
    name="poisson-80",
    about="fifty tenants whose Poisson arrivals come to 80 % of a share of 11/s, beside fifty that want four shares",
    backstop=Rate(1_000),
    tenants=(
        *(TenantLoad(f"poisson-{index}", (Arrivals(8.9),), group="poisson") for index in range(50)),
        *(TenantLoad(f"avid-{index}", (Arrivals(44.0),), group="avid") for index in range(50)),
    ),
    seconds=60.0,
    measure_from=20.0,
    checks=(Check("Poisson tenants per call", lambda f: f.call_success("poisson"), least=0.999),),
    modes=BOTH,
)

LASTING = Scenario(
    name="lasting-overload",
    about="four tenants that obey beside four that hammer every 10 ms, each with 40 calls in flight",
    backstop=Rate(400),
    tenants=(
        *(TenantLoad(f"obeys-{index}", (Loop(40, OBEY),), group="obeys", quota=Rate(200)) for index in range(4)),
        *(
            TenantLoad(f"hammers-{index}", (Loop(40, hammer(0.01)),), group="hammers", quota=Rate(200))
            for index in range(4)
        ),
    ),
    seconds=45.0,
    measure_from=15.0,
    checks=(
        Check("worst obedient tenant, of exact share", lambda f: f.least("obeys") / 50, least=0.92),
        Check("obedient tenants, of exact share", lambda f: f.rate("obeys") / 200, least=0.95),
        Check("utilisation", lambda f: f.utilisation, least=0.98),
    ),
    modes=BOTH,
)

SCENARIOS = (
    BUSY_HOUR, EVERYONE_INTERACTIVE, MINTED_KEYS, MINTED_TENANTS, WEIGHTS, POISSON,
    tiny("tiny-shares", "after 15 s", 15.0, 45.0, 0.95),
    tiny("tiny-shares-later", "after 45 s", 45.0, 75.0, 0.98),
    LASTING,
)  # fmt: skip
