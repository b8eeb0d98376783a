"""Whether this process lives, and whether it should be sent requests.

Rules
1. Alive means that the data plane's loop turns: `beat` is called from it every tick. Nothing outside this process makes
   it dead, or an upstream's outage would restart every gateway.
2. Ready means that new requests are welcome: started, not draining, and able to decide. A lost store is a warning as
   long as the posture of some request still admits, and so is a failing canary.
3. Whatever is off or in shadow is listed, so that nobody takes a limit for granted that does not hold; so are routes
   that no named policy covers and policies that nothing has met for 30 days. The counts are those of `evenhand
   inventory`.
4. An exemption is warned of a week before it ends, and reported once it has, until it is taken out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from gateway.clock import Clock
from gateway.config import Loaded, Settings
from gateway.config.inventory import counts, exemptions, standings
from gateway.telemetry import Telemetry
from policies.cost import UNMATCHED
from policies.policy import Mode, PolicySet
from policies.posture import admits_nothing, chosen
from policies.request import Kind, Principal
from policies.sizing import effective_key
from policies.units import SECOND, Micros

__all__ = ["STALLED", "Health"]

#: A loop that has not turned for so long is taken for dead.
STALLED: Micros = 30 * SECOND
_COUNTED: Micros = 60 * SECOND

#: What the file's reader says and is said here anew at every look.
_ANEW = re.compile(r"exemptions\[\d+\]\.expires: |policies\[\d+\]\.mode: ")


class Health:
    """What `/livez` and `/readyz` say. Attributes are set from the data plane's thread, read from the admin's."""

    def __init__(
        self, settings: Settings, policies: PolicySet, telemetry: Telemetry, clock: Clock, warnings: Iterable[str] = ()
    ) -> None:
        #: Set when serving has begun.
        self.started = False
        #: Set at SIGTERM.
        self.draining = False
        #: More sources of warnings: each is asked at every look.
        self.sources: list[Callable[[], Iterable[str]]] = [telemetry.warnings]
        #: More checks, each a name and what is wrong, "" if nothing is.
        self.checks: list[Callable[[], tuple[str, str]]] = []
        #: Names the policies that have applied to nothing in 30 days.
        self.unused: Callable[[], Iterable[str]] = tuple
        self._clock = clock
        self._gauges = telemetry.gauges
        self._beat: Micros | None = None
        #: The policies in force, acts included; and the kind of fault while the store does not answer. Set by whoever
        #: composes the house.
        self.policies: Callable[[], PolicySet] = lambda: policies
        self.cause: Callable[[], str] = str
        self.reload(settings, policies, warnings)

    def reload(self, settings: Settings, policies: PolicySet, warnings: Iterable[str] = ()) -> None:
        """Look at another configuration from now on."""
        # Whether an exemption has ended, say, is asked at every look, not only when the file was read.
        self._configured = tuple(warning for warning in warnings if not _ANEW.search(warning))
        self._loaded = Loaded(settings, policies)
        self._counted: tuple[tuple[str, ...], Micros, dict[str, dict[str, int]]] | None = None
        self._without = [row.route for row in standings(self._loaded) if row.standing == "without"]
        self._off = [policy.name for policy in policies.policies if policy.mode is Mode.OFF]
        self._shadow = list(_in_shadow(policies))

    def resized(self, policies: PolicySet) -> None:
        """Look at other numbers for sized quotas; more of them may be enforced now."""
        self._shadow = list(_in_shadow(policies))

    def beat(self, now: Micros) -> None:
        """Note that the data plane's loop turns."""
        self._beat = now

    @property
    def stalled_us(self) -> Micros:
        """For how long the data plane's loop has not turned."""
        return 0 if self._beat is None else max(0, self._clock.now() - self._beat)

    def live(self) -> dict[str, object]:
        """Return the members of `/livez`; its `status` is `ok` or `failing`."""
        return _report([("loop", self._stalled())], [])

    def notable(self) -> dict[str, object]:
        """Return what does not hold as usual: the members of `/readyz` that cost nothing to tell every second."""
        lost = self._store_lost()
        members = {"off": self._off, "shadow": self._shadow, "degraded": [lost] if lost else []}
        return _report(self._checks(), list(dict.fromkeys(self.warnings()))) | members

    def brief(self) -> dict[str, object]:
        """Return the members of `/readyz` for those who may not know more: the status, and which checks hold."""
        checks = self._checks()
        failing = any(fault for _, fault in checks)
        named = [{"name": name, "ok": not fault} for name, fault in checks]
        return {"status": "failing" if failing else "ok", "checks": named}

    def _checks(self) -> list[tuple[str, str]]:
        return [
            ("loop", self._stalled()),
            ("started", "" if self.started else "serving has not begun"),
            ("draining", "shutting down: send new requests elsewhere" if self.draining else ""),
            ("store", self._store_lost() if self._closed() else ""),
            *(check() for check in self.checks),
        ]

    def ready(self) -> dict[str, object]:
        """Return the members of `/readyz`."""
        unused = list(self.unused())
        return self.notable() | {
            "routes_without_policy": self._without,
            "policies_unused": unused,
            "counts": self._counts(tuple(unused)),
        }

    def _counts(self, unused: tuple[str, ...]) -> dict[str, dict[str, int]]:
        """Return how many limits there are; kept for a while, since ten thousand tenants take 90 ms to count."""
        now = self._clock.wall()
        kept = self._counted
        if kept is None or kept[0] != unused or not 0 <= now - kept[1] < _COUNTED:
            kept = self._counted = (unused, now, counts(self._loaded, now, unused))
        return kept[2]

    def warnings(self) -> Iterator[str]:
        """Yield what an operator should know, one sentence each."""
        yield from self._configured
        yield from (f"policy {name} is off: it limits nobody" for name in self._off)
        if not self._closed() and (lost := self._store_lost()):
            yield lost
        canaries = {} if self._gauges.canary_ok is None else self._gauges.canary_ok()
        yield from (f"the canary {name} does not find what it expects" for name, ok in canaries.items() if not ok)
        yield from (f"policy {name} has applied to nothing in 30 days" for name in self.unused())
        for exemption in exemptions(self._loaded, self._clock.wall()):
            if exemption.state != "in force":
                verb = "has ended and raises nothing" if exemption.state == "ended" else "ends within a week"
                yield f"exemption {exemption.name} of {exemption.owner} {verb}: {exemption.ends}"
        for source in self.sources:
            yield from source()

    def _stalled(self) -> str:
        beat = self._beat
        if beat is None or self._clock.now() - beat < STALLED:
            return ""
        return f"the data plane has not turned for {(self._clock.now() - beat) // SECOND} s"

    def _store_lost(self) -> str:
        up = self._gauges.store_up
        if up is None or up():
            return ""
        default = chosen(self.policies(), UNMATCHED, self._clock.wall())
        return f"the store does not answer ({self.cause() or 'down'}): {default} decides where no route says otherwise"

    def _closed(self) -> bool:
        return admits_nothing(self.policies(), self._clock.wall())


def _report(checks: list[tuple[str, str]], warnings: list[str]) -> dict[str, object]:
    failing = any(fault for _, fault in checks)
    return {
        "status": "failing" if failing else "ok",
        "checks": [{"name": name, "ok": not fault, "detail": fault} for name, fault in checks],
        "warnings": warnings,
    }


def _in_shadow(policies: PolicySet) -> Iterator[str]:
    if policies.mode is not Mode.ENFORCE:
        yield "server: every limit is decided and counted, none is enforced"
    for policy in policies.policies:
        if policy.mode is Mode.SHADOW:
            yield f"policy {policy.name}"
        elif policy.mode is Mode.ENFORCE and policy.percent < 100:
            yield f"policy {policy.name}, for {100 - policy.percent:g} % of its keys"
    sized = sum(
        effective_key(policies, Principal(Kind.USER, tenant.id, one.id)).mode is Mode.SHADOW
        for tenant in policies.tenants.values()
        for one in tenant.credentials.values()
    )
    if sized:
        yield f"the sized quotas of {sized} credentials, until they are learnt"
