"""Several gateways in simulated time: one store each, their leases of the backstop through one simulated server.

The server runs the Python twin of `shares.lua`; what travels is packed and read by the code that serves. Own limits are
one for all here, which is what their leases come to.

Rules
1. A call reaches the server after half the round trip, and its answer the process after the other half.
2. Processes tick as the gateway does, each at its own phase.
3. A process that died answers nothing, keeps its entry until that lapses, and callers find another.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

from gateway.stores.leased.shares import LeasedBackstop
from gateway.stores.link import Answer, Script
from gateway.stores.memory import Backstop, MemoryStore, ShareRefusal
from loadtest.sim.callers import people
from loadtest.sim.figures import Figures, figures
from loadtest.sim.gate import TICK_US, Gate
from loadtest.sim.model import Mode, Scenario
from loadtest.sim.world import World
from policies.charge import Plan, Reading, ShareCharge
from policies.kernels.fairshare import Shares
from policies.kernels.rates import Claim, Table, renew
from policies.policy import ClassRule
from policies.units import SECOND, Micros

__all__ = ["Fleet", "FleetGate", "Process", "Server", "simulate_fleet"]


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many processes there are, and where whose calls arrive.

    `spread` is the part of each process by group of tenants (evenly unless said); `joins` and `dies` are the seconds at
    which a process does, by its index. If `fixed`, each has an even part for good: the control.
    """

    processes: int = 4
    spread: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    joins: Mapping[int, float] = field(default_factory=dict)
    dies: Mapping[int, float] = field(default_factory=dict)
    round_trip: float = 0.001
    fixed: bool = False


class Server:
    """The record of one backstop, and the calls that it had."""

    def __init__(self, world: World, round_trip_us: Micros) -> None:
        self._world = world
        self._half_us = round_trip_us // 2
        self.table: Table = {}
        self.commands = 0
        self.up = True

    def send(self, args: Sequence[bytes], answer: Answer, now: Micros) -> None:
        """Let a call arrive."""
        self._world.at(now + self._half_us, partial(self._run, args, answer))

    def _run(self, args: Sequence[bytes], answer: Answer, now: Micros) -> None:
        self.commands += 1
        process, ttl_us, _, _ = struct.unpack("<4d", args[0])
        claims = [Claim(int(pool), *numbers) for pool, *numbers in struct.iter_unpack("<4d", args[1])]
        fresh, count, granted, reports = renew(self.table, int(process), int(ttl_us), claims, args[2], now)
        reply: list[bytes] = [struct.pack(f"<{2 + len(granted)}d", fresh, count, *granted), *reports]
        self._world.at(now + self._half_us, lambda _: answer(reply))


class _Switch:
    """The backstop of whichever process a call arrived at."""

    def __init__(self, backstop: Backstop) -> None:
        self.to = backstop
        self.over = False

    def take(self, ask: ShareCharge, now: Micros) -> ShareRefusal | None:
        """Take there."""
        refusal = self.to.take(ask, now)
        self.over = self.to.over
        return refusal

    def give_back(self, ask: ShareCharge, now: Micros, *, over: bool = False) -> None:
        """Undo a take there."""
        self.to.give_back(ask, now, over=over)

    def tick(self, now: Micros) -> None:
        """Do nothing: processes tick by themselves."""

    def rebuild(
        self, rate_us: float, burst: float, classes: tuple[ClassRule, ...], unlisted_weight: float, now: Micros,
        max_unlisted: int,
    ) -> None:  # fmt: skip
        """Nothing is reloaded here."""


class Process:
    """One gateway: its backstop, and its way to the server."""

    def __init__(self, gate: FleetGate, index: int, now: Micros) -> None:
        self.now = now
        self._gate = gate
        self.alive = True
        self.backstop = LeasedBackstop(gate.policies, self, b"shares", index + 1, lambda: self.now)
        if gate.fleet.fixed:
            rate_us, burst = gate.policies.backstop.rate.per_us / gate.fleet.processes, gate.policies.backstop.burst
            self.backstop.lease(rate_us, burst / gate.fleet.processes, rate_us * SECOND / 2, now)
            self.backstop.fill(now)

    def run(
        self,
        _script: Script,
        _keys: Sequence[bytes],
        args: Sequence[bytes],
        answer: Answer,
        _within_us: Micros,
        _late: Callable[[object], None] | None = None,
    ) -> None:
        """Send a call; a process that is dead when the answer comes does not hear it."""
        self._gate.server.send(args, partial(self._heard, answer), self.now)

    def _heard(self, answer: Answer, reply: object) -> None:
        self.now = self._gate.clock
        if self.alive:
            answer(reply)

    @property
    def ready(self) -> bool:
        """Return whether calls come here: as `/readyz` says, not before it holds a part of the backstop."""
        return self.alive and (self._gate.fleet.fixed or self.backstop.lease_share > 0.0)

    def tick(self, now: Micros) -> None:
        """Do what the gateway's timer does."""
        self.now = now
        self.backstop.tick(now)


class FleetGate(Gate):
    """The gate of several processes: each attempt meets one of them."""

    def __init__(self, scenario: Scenario, fleet: Fleet) -> None:
        super().__init__(scenario, Mode.EVENHAND)
        self.fleet = fleet
        self.clock: Micros = 0
        self.processes: dict[int, Process] = {}
        groups = {load.id: load.group or load.id for load in scenario.tenants}
        self._spread = {
            tenant: tuple(accumulate(fleet.spread.get(group, (1.0,) * fleet.processes)))
            for tenant, group in groups.items()
        }
        self._even = tuple(accumulate((1.0,) * fleet.processes))
        #: Levels in force by process, every 20 ms, and what all leases in force sum up to at most.
        self.levels: list[tuple[Micros, list[float]]] = []
        self.leased = 0.0
        self._switch = _Switch(self.backstop)
        self._own = MemoryStore(self.policies, 1_000_000, 0, self._switch)
        self.take = self._take

    @property
    def shares(self) -> LeasedBackstop | None:
        """The backstop of any process that lives."""
        return next((process.backstop for process in self.processes.values() if process.alive), None)

    def begin(self, world: World) -> None:
        """Start the processes and their timers."""
        self._world = world
        self.server = Server(world, int(self.fleet.round_trip * SECOND))
        for index in range(self.fleet.processes):
            begin = int(self.fleet.joins.get(index, 0.0) * SECOND)
            if begin:
                world.at(begin, partial(self._join, index))
            else:
                self._join(index, 0)
        for index, dies in self.fleet.dies.items():
            world.at(int(dies * SECOND), partial(self._die, index))
        self._look(0)

    def _join(self, index: int, now: Micros) -> None:
        self.clock = now
        process = self.processes[index] = Process(self, index, now)
        self._timer(process, now + int(self._world.random.random() * TICK_US) if now else 0)

    def _die(self, index: int, _now: Micros) -> None:
        self.processes[index].alive = False

    def _timer(self, process: Process, now: Micros) -> None:
        self.clock = now
        if process.alive and not self.fleet.fixed:
            process.tick(now)
            self._world.at(
                now + TICK_US - 1_000 + int(2_000 * self._world.random.random()), partial(self._timer, process)
            )

    def _look(self, now: Micros) -> None:
        self._own.tick(now)
        alive = [process.backstop for process in self.processes.values() if process.alive]
        debt = sum(Shares.view(backstop, now).debt for backstop in alive)
        self._world.deepest_debt = max(self._world.deepest_debt, debt)
        self.levels.append((now, [backstop.level * backstop.processes for backstop in alive]))
        self.leased = max(self.leased, sum(backstop.lease_share for backstop in alive))
        self._world.at(now + TICK_US, self._look)

    def _take(self, plan: Plan, now: Micros) -> Reading:
        self.clock = now
        spread = self._spread.get(plan.tenant, self._even)
        draw = self._world.random.random() * spread[-1]
        index = next(at for at, upto in enumerate(spread) if draw < upto)
        process = self.processes.get(index)
        if process is None or not process.ready:
            ready = [each for each in self.processes.values() if each.ready]
            process = self._world.random.choice(ready or [each for each in self.processes.values() if each.alive])
        process.now = now
        self._switch.to = process.backstop
        return self._own.take(plan, now)


def simulate_fleet(scenario: Scenario, fleet: Fleet, seed: int = 1) -> tuple[Figures, FleetGate]:
    """Run a scenario over several processes; return its figures, and the gate that saw it."""
    gate = FleetGate(scenario, fleet)
    world = World(gate, seed, scenario.seconds, scenario.measure_from)
    for load in scenario.tenants:
        people(world, load)
    world.run()
    return figures(world, scenario, Mode.EVENHAND, seed), gate
