"""The leased store: the contract of every store, on the kernels and on real servers, and what is its own."""

from __future__ import annotations

from gateway.ports import Store
from policies.policy import PolicySet
from policies.units import Micros
from tests.clock import StandingClock
from tests.stores.contract import StoreContract
from tests.stores.leases import Patient, opened

__all__: list[str] = []


class TestLeased(StoreContract):
    """The contract, with the kernels for a store: the clock stands, so everything is exact."""

    reloads_at_once = False

    def open(self, policies: PolicySet, now: Micros) -> Store:
        """Return a new leased store, for which every take waits if it has to."""
        store, turns, _ = opened(policies, StandingClock(now))
        return Patient(store, turns)
