"""Classes that may use only a part of the service: each has a backstop of its own, shared as the whole is.

A ceiling drained by arrival would hand the class to whoever asks most, so it is a backstop like the real one, with the
same tenants and weights, at a part of its capacity.

Rules
1. The ceiling is asked before the share; what it granted goes back when the share or the backstop then refuses.
2. Without any capacity everything is refused, for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from policies.kernels.share import Ask, ClassPart, Plain, ShareRefusal
from policies.units import NEVER, Micros, RequestUnits

__all__ = ["Ceilings", "Make", "Service"]


class Service(Protocol):
    """A backstop: `fairshare.Shares`."""

    over: bool

    def take(self, ask: Ask, now: Micros) -> ShareRefusal | None:
        """Take, or say why not."""
        ...

    def give_back(self, ask: Ask, now: Micros, *, over: bool = False) -> None:
        """Undo a take."""
        ...

    def rebuild(
        self, rate_us: float, burst: RequestUnits, classes: Sequence[ClassPart], unlisted_weight: float, now: Micros,
        max_unlisted: int,
    ) -> None:  # fmt: skip
        """Follow a reload."""
        ...


Make: TypeAlias = Callable[[float, RequestUnits, Sequence[ClassPart], float, Micros, int], Service]


class Ceilings:
    """The backstops of classes, `services` by index of the class; `guarded` are those that have to be asked for."""

    __slots__ = ("_closed", "guarded", "services")

    def __init__(self) -> None:
        self.services: dict[int, Service] = {}
        self._closed = False
        self.guarded: frozenset[int] = frozenset()

    def resize(
        self, make: Make, rate_us: float, burst: RequestUnits, classes: Sequence[ClassPart], unlisted_weight: float,
        now: Micros, max_unlisted: int,
    ) -> None:  # fmt: skip
        """Follow the documents: `rate_us` and `burst` are the whole service's. Those that stay forget nothing."""
        before, self.services = self.services, {}
        plain = (Plain(),) * len(classes)
        for index, rule in enumerate(classes):
            if rule.ceiling >= 1.0:
                continue
            part = (rate_us * rule.ceiling, burst * rule.ceiling)
            if (service := before.get(index)) is None:
                service = make(*part, plain, unlisted_weight, now, max_unlisted)
            else:
                service.rebuild(*part, plain, unlisted_weight, now, max_unlisted)
            self.services[index] = service
        self._closed = rate_us <= 0.0
        self.guarded = frozenset(range(len(classes)) if self._closed else self.services)

    def take(self, ask: Ask, now: Micros) -> ShareRefusal | None:
        """Take from the ceiling of a guarded class."""
        if self._closed:
            return ShareRefusal("backstop", NEVER)
        refusal = self.services[ask.cls].take(ask, now)
        if refusal is not None:
            refusal.limit, refusal.over = "class", False
        return refusal

    def undo(self, ask: Ask, now: Micros) -> None:
        """Give back what was just taken."""
        if (service := self.services.get(ask.cls)) is not None:
            service.give_back(ask, now, over=service.over)

    def give_back(self, ask: Ask, now: Micros, *, over: bool) -> None:
        """Give back what was taken some time ago."""
        if (service := self.services.get(ask.cls)) is not None:
            service.give_back(ask, now, over=over)
