"""The composition root: read this first.

From a loaded configuration to one gateway: who decides (pipeline, store, identity), who forwards (front, upstreams),
who counts (telemetry), and the two apps that are served. Nothing is decided here.

    Loaded --compose--> Gateway --start()--> upstreams open --tick()...--> drain() --stop()--> closed
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.applications import Starlette

from gateway.admin import Health, build_admin
from gateway.admin.acts import act_routes
from gateway.admin.reload import reload_routes
from gateway.clock import Clock
from gateway.config import Loaded, Settings
from gateway.config.sections import ServerSection, StoreSection, UpstreamSection
from gateway.dashboard import Dashboard
from gateway.errors import Fault, ReloadError
from gateway.history.kept import open_history
from gateway.identity.live import Identity
from gateway.identity.resolver import CredentialResolver
from gateway.pipeline import Pipeline
from gateway.proxy.asgi import Proxy
from gateway.proxy.canary import Canary
from gateway.proxy.crowd import room
from gateway.proxy.front import Front
from gateway.proxy.guard import Limits
from gateway.proxy.lane import Door
from gateway.proxy.upstream import Upstream
from gateway.proxy.websocket import Sockets
from gateway.stores import open_store, place_of
from gateway.stores.acts import Acts
from gateway.stores.guard import GuardedStore
from gateway.stores.leased.shares import LeasedBackstop
from gateway.stores.memory import Backstop, MemoryStore
from gateway.stores.registry import Registry
from gateway.stores.usage import PolicyUse
from gateway.telemetry import Telemetry
from policies.kernels.fairshare import Shares
from policies.policy import Mode, PolicySet, Sized

if TYPE_CHECKING:
    from gateway.telemetry.fleet import Fleet

__all__ = ["NO_FILE", "Gateway", "compose"]

#: Why a gateway that its own program composed is not reloaded.
NO_FILE = (
    "The program that composed this gateway named no file to read again, so there is nothing to reload: "
    "to change its configuration, restart that program."
)

#: Of an equal part of the backstop, how much a process that joins waits for before it serves.
_ROOM = 0.25

#: `[upstream]` under None, `[upstreams.NAME]` under its name.
Sections = Mapping[str | None, UpstreamSection]


class Gateway:
    """One gateway. `endpoint` and `admin` are its two ASGI apps; the rest of its life is four calls.

    `door` is where a listener of our own hands its requests in, from `start` on; any other server takes `endpoint`.

    `backstop` replaces the fair shares, as the demo's negative control does. Of an instance of several processes the
    workers are `deciding` and the parent is `showing`; one process alone is both.
    """

    #: How many descriptors this process may have, 0 for as many as it likes; set by whoever knows, before `start`.
    files = 0

    def __init__(
        self, loaded: Loaded, backstop: Backstop | None = None, *, deciding: bool = True, showing: bool = True
    ) -> None:
        settings, policies = loaded.settings, loaded.policies
        self._clock = clock = Clock()
        self.settings = settings
        self.telemetry = Telemetry(settings, policies, clock)
        # Who decides nothing takes no part in the leases of a shared store.
        self.store = (
            open_store(settings, policies, clock.now, backstop)
            if deciding
            else MemoryStore(policies, settings.store.max_keys, clock.now())
        )
        self._place = place_of(settings.store)
        self.identity = Identity(settings, clock, self._place)
        self.acts = Acts(self._place, clock)
        self.history = open_history(
            self._place,
            settings.store.max_keys,
            clock,
            lambda: self.pipeline.policies,
            self._sized,
        )
        self.pipeline = Pipeline(
            policies, self.identity.resolver, self.store, self.telemetry, clock, random.random, self.history.meter
        )
        #: Reads the configuration again; set by whoever knows where it comes from.
        self.reload: Callable[[], tuple[Fault, ...]] = _nowhere
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self.health = Health(settings, policies, self.telemetry, clock, map(str, loaded.warnings))
        self.health.policies = lambda: self.pipeline.policies
        self.dashboard = self._dashboard()
        self.admin = self._admin()
        if deciding:
            self.telemetry.follow(self.history.offer)
            self.history.tenants_now = self.telemetry.slot_now
        self._acted = self.acts.version
        self.pipeline.overlay = self.acts.over
        self.endpoint = Proxy()
        #: How many sockets callers hold; set by the server, which alone knows.
        self.callers: Callable[[], int] = int
        #: How the store stands; of several processes the parent asks its workers.
        self.standing: Callable[[], Mapping[str, object] | None] = self._store_standing
        self.door: Door
        self.sockets: Sockets
        self._upstreams: Mapping[str | None, Upstream] = {}
        self._gauges()
        self.fleet = _fleet(self.telemetry, settings.store) if showing else None
        self._usage = PolicyUse(self._place)
        self._canary = Canary(settings)
        self._watched(showing=showing)

    def _watched(self, *, showing: bool) -> None:
        """Let health tell of what may go wrong, and what is looked at every minute be looked at."""
        self.health.sources += [
            self.identity.warnings, self._usage.warnings, self.acts.warnings, self.history.warnings,
        ]  # fmt: skip
        if self.fleet is not None:
            self.health.sources.append(self.fleet.warnings)
        self.health.unused = lambda: self._usage.unused
        self.identity.minutely.append(self._note_use)
        if showing:
            self.identity.minutely.append(lambda: self._canary.run(self.pipeline.policies))
        self.telemetry.gauges.canary_ok = lambda: self._canary.found
        self.telemetry.summarises = showing

    def _admin(self) -> Starlette:
        def policies() -> PolicySet:
            return self.pipeline.policies

        return build_admin(
            self.settings,
            policies,
            self.telemetry,
            self.health,
            self._clock,
            self.identity.jobs,
            [
                *self.dashboard.routes(),
                *act_routes(self.acts, policies, self.telemetry, self._clock, self._stands),
                *reload_routes(self._asked),
            ],
            self.history,
        )

    async def start(self) -> None:
        """Open the upstreams and serve; to be called on the data plane's loop."""
        self._loop = asyncio.get_running_loop()
        self._upstreams = {name: Upstream(name or "upstream", one) for name, one in _sections(self.settings).items()}
        front = self._front(self.settings, self.pipeline.policies, self._upstreams)
        self.sockets = Sockets(self.settings.websocket)
        self.endpoint.front, self.endpoint.sockets = front, self.sockets
        self.door = Door(front, limits_of(self.settings.server, self._room(self.settings)))
        self.pipeline.resize(self.history.open())
        self.history.start()
        await asyncio.to_thread(self.acts.start)
        self.follow_acts()
        self.telemetry.start()
        if not isinstance(self.store, MemoryStore):
            await self.store.start()
        if self.fleet is not None:
            self.fleet.start()
        await self.identity.start()
        self.health.started = True

    def _front(self, settings: Settings, policies: PolicySet, upstreams: Mapping[str | None, Upstream]) -> Front:
        return Front(
            settings,
            policies,
            self.pipeline,
            upstreams,
            self._clock,
            forwarder=self.telemetry.untrusted_forwarder,
            doubtful=self.telemetry.doubtful_proxy,
        )

    def adopt(self, loaded: Loaded, resolver: CredentialResolver) -> None:
        """Go over to another configuration, between two requests; on the data plane's loop. Cannot fail half-way."""
        settings = loaded.settings
        policies = replace(loaded.policies, sized=self.history.sized)
        upstreams = self._pools(_sections(settings))
        front, canary = self._front(settings, policies, upstreams), Canary(settings)
        # From here on nothing fails.
        gone = [upstream for name, upstream in self._upstreams.items() if upstreams.get(name) is not upstream]
        self.settings, self._upstreams, self._canary = settings, upstreams, canary
        self.pipeline.reload(policies, resolver)
        self.door.front.become(front)
        self.door.post.limits = limits_of(settings.server, self._room(settings))
        self.sockets.become(settings.websocket)
        self.identity.follow(resolver)
        self.telemetry.reload(settings, self.pipeline.policies)
        self.health.reload(settings, self.pipeline.policies, map(str, loaded.warnings))
        self.history.recompute()
        for upstream in gone:
            upstream.close()
            task = asyncio.get_running_loop().create_task(upstream.wait_closed())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _pools(self, wanted: Sections) -> Mapping[str | None, Upstream]:
        """Return the pools of some sections: those there are where a section stays as it is, new ones else."""
        had = _sections(self.settings)
        return {
            name: self._upstreams[name] if had.get(name) == section else Upstream(name or "upstream", section)
            for name, section in wanted.items()
        }

    def _room(self, settings: Settings) -> int:
        """Return how many connections callers may have, 0 for any number."""
        pooled = sum(section.max_connections for section in _sections(settings).values())
        return room(self.files, pooled) if self.files else 0

    def _asked(self) -> tuple[Fault, ...]:
        return self.reload()

    def _sized(self, sized: Mapping[str, Sized]) -> None:
        """Take over new numbers, from the history's thread; what looks at every key of them is done there."""
        self.health.resized(replace(self.pipeline.policies, sized=sized))
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.pipeline.resize, sized)

    def tick(self) -> None:
        """Do the next slice of what happens between requests."""
        now = self._clock.now()
        self.health.beat(now)
        self.store.tick(now)
        self.pipeline.tick(now)
        self.telemetry.turn(now)
        self.history.meter.turn(now)
        self.follow_acts()

    @property
    def warm(self) -> bool:
        """False until others have made room for this process: a quarter of an equal part of the backstop is its own.

        True where nobody has to, or the store does not answer. While all of it is in use there is no such part.
        """
        backstop = self.store.backstop
        if not isinstance(backstop, LeasedBackstop) or (isinstance(self.store, GuardedStore) and not self.store.up):
            return True
        return backstop.lease_share * backstop.processes >= _ROOM

    def drain(self) -> None:
        """Say that no new requests are welcome; they are served all the same, on connections that close then."""
        self.health.draining = True
        self.door.post.draining = True

    async def stop(self) -> None:
        """End what is still under way, and write down what was counted."""
        for upstream in self._upstreams.values():
            upstream.abort()
        for upstream in self._upstreams.values():
            await upstream.wait_closed()
        if not isinstance(self.store, MemoryStore):
            await self.store.stop()
        self.identity.stop()
        self._note_use()
        self.dashboard.stop()
        self.telemetry.stop()
        if self.fleet is not None:
            self.fleet.stop()
        self.telemetry.tenants.advance(self._clock.now())
        self.history.stop()
        self.acts.close()

    @property
    def registries(self) -> Mapping[str, Registry]:
        """What is put in while the gateway runs, by name."""
        return {"jobs": self.identity.jobs.registry, "acts": self.acts.registry}

    def _dashboard(self) -> Dashboard:
        shares = self.store.backstop
        return Dashboard(
            self.telemetry,
            lambda: self.pipeline.policies,
            self.health.notable,
            self.acts.ids,
            shares if isinstance(shares, Shares) else None,
            self._clock,
            history=self.history,
            offers=[name for name, there in self._offers() if there],
        )

    def _offers(self) -> Iterable[tuple[str, bool]]:
        yield "token", bool(self.settings.server.admin_token.get_secret_value())
        yield "postures", self.settings.store.url != "memory:"

    def follow_acts(self) -> None:
        """Decide by the acts as they are now, if they changed."""
        if self.acts.version != self._acted:
            self._acted = self.acts.version
            self.pipeline.refresh()

    def _note_use(self) -> None:
        pipeline = self.pipeline
        names = [policy.name for policy in pipeline.policies.policies if policy.mode is not Mode.OFF]
        self._usage.note(names, pipeline.applied, self._clock.now())

    def _gauges(self) -> None:
        gauges, store = self.telemetry.gauges, self.store
        gauges.keys = lambda: store.keys
        gauges.overflow_requests = lambda: store.overflow_requests
        gauges.store_up = lambda: True
        if isinstance(store, GuardedStore):
            gauges.store_up, gauges.store_errors = lambda: store.up, lambda: store.errors
            self.health.cause = lambda: store.degraded
            self.health.sources.append(store.warnings)
        if not isinstance(store, MemoryStore):
            store.leases.noted = self.telemetry.store_wait.observe
        gauges.in_flight = lambda: self.pipeline.in_flight
        gauges.connections = self._connections
        gauges.starved_keys = self.history.starved
        gauges.jwks_age_seconds = self.identity.ages_seconds
        if isinstance(shares := store.backstop, Shares):
            gauges.backstop_contended = lambda: shares.view(self._clock.now()).contended
            gauges.backstop_used_ratio = lambda: shares.view(self._clock.now()).used_ratio

    def _stands(self) -> Mapping[str, object] | None:
        return self.standing()

    def _store_standing(self) -> Mapping[str, object] | None:
        return self.store.standing(self._clock.now()) if isinstance(self.store, GuardedStore) else None

    def _connections(self) -> dict[str, int]:
        stats = [upstream.stats() for upstream in self._upstreams.values()]
        return {"caller": self.callers(), "upstream": sum(one.idle + one.active for one in stats)}


def _fleet(telemetry: Telemetry, section: StoreSection) -> Fleet | None:
    """Return what shows all instances on a store; None where none is shared, which needs no library for it."""
    if section.url == "memory:":
        return None
    from gateway.telemetry.fleet import open_fleet  # noqa: PLC0415 - with the library, which few need

    return open_fleet(telemetry, section)


def _sections(settings: Settings) -> Sections:
    named: dict[str | None, UpstreamSection] = dict(settings.upstreams.items())
    return {None: settings.upstream} | named


def _nowhere() -> tuple[Fault, ...]:
    raise ReloadError(NO_FILE)


def limits_of(server: ServerSection, most: int = 0) -> Limits:
    """Return what a caller may take of a connection, and that there may be `most` of them."""
    return Limits(
        max_header_bytes=server.max_header_bytes,
        max_headers=server.max_headers,
        header_timeout_us=server.header_timeout,
        body_timeout_us=server.body_timeout,
        keepalive_timeout_us=server.keepalive_timeout,
        max_connections_per_address=server.max_connections_per_address,
        max_connections=most,
    )


def compose(
    loaded: Loaded, backstop: Backstop | None = None, *, deciding: bool = True, showing: bool = True
) -> Gateway:
    """Put a gateway together; nothing is listening yet. Raises ConfigError where the log cannot be written."""
    return Gateway(loaded, backstop, deciding=deciding, showing=showing)
