"""Who shares the backstop: one member per listed tenant, and a bounded number of those that nobody listed.

Rules
1. A listed tenant comes with a full share bucket, so it is dropped only once nothing would be lost by it.
2. An unlisted one comes with an empty bucket, or minting tenants would pay. It is kept for a minute without demand.
3. Above `max_unlisted` the next unlisted tenants share one member.
4. What a tenant's asks say of its weight, its limits and whether it is listed holds from the ask that says it. Equal
   asks are best one object: only another object is looked at closely.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from hashlib import blake2b
from typing import Final

from policies.kernels.member import FOREVER, Low, Member
from policies.kernels.share import Ask
from policies.kernels.waterfill import LIFE_US, Waterline
from policies.units import SECOND, Micros

__all__ = ["Roster", "mark_of"]

#: An unlisted tenant is forgotten after this long without demand; it comes back with an empty bucket.
FORGET_US: Final = 60 * SECOND
#: Which part of a burst a tenant does not bring along that is followed in other processes.
LENT: Final = 0.75
#: Members looked at by one sweep for idle ones; it takes about 0.05 ms.
SWEEP: Final = 64
#: Virtual time is set back before it is so large that its rounding could be noticed.
REBASE_AT: Final = 1e9


def mark_of(tenant: str) -> bytes:
    """Return what processes call a tenant among themselves: eight octets, none of which says who it is."""
    return blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=8).digest()


class Roster:
    """All members: `line` is the level of listed tenants and of the group, `inner` that of those in the group.

    `guarded` are the classes with more to ask than a share, `lower` those that have a higher one above them.
    """

    __slots__ = (
        "_marked", "_order", "_overflow", "_unlisted", "elsewhere", "group", "guarded", "inner", "line", "lower",
        "marks", "max_unlisted", "members",
    )  # fmt: skip

    def __init__(self, rate_us: float, unlisted_weight: float, max_unlisted: int, now: Micros) -> None:
        self.members: dict[str, Member] = {}
        #: The same by what other processes know them by, if there are any.
        self.marks: dict[bytes, Member] = {}
        self._marked = False
        #: Those that have been noticed anywhere else: they come with a part of a burst.
        self.elsewhere: Container[bytes] = ()
        self.line = Waterline(rate_us, now)
        self.inner = Waterline(rate_us, now)
        self.group = Member(unlisted_weight, self.line, now, full=True)
        self.guarded: frozenset[int] = frozenset()
        self.lower: frozenset[int] = frozenset()
        self.max_unlisted = max_unlisted
        self._order: deque[Member] = deque()
        self._unlisted = 0
        self._overflow: Member | None = None

    def meet(self, ask: Ask, now: Micros) -> Member:
        """Return the member of `ask`, made or brought up to date with the weight and limits that came with it."""
        member = self.members.get(ask.tenant)
        if member is None or (member.group is None) is not ask.listed:
            member = self._join(ask, now)
        if ask.weight != member.whole and member is not self._overflow:
            self.weigh(member, ask.weight, member.part, now)
        if ask.own_rate_us != member.own_rate_us or ask.own_burst != member.own_burst:
            member.own(ask.own_rate_us, ask.own_burst, now)
        low = ask.cls in self.lower
        # A tenant of one class has none to order; most are.
        if member.low is None and (member.had_high if low else member.had_low):
            member.low = Low(member.small)
        if low:
            member.had_low = True
        else:
            member.had_high = True
        member.ask, member.cost = ask, ask.cost
        member.plain = member.group is None and member.low is None
        if ask.cls in self.guarded:
            member.light_at = FOREVER
        elif member.low is None:
            member.light_at = member.heavy_until if member.plain else FOREVER
        else:
            member.light_at = member.low_light_at(member.low) if low else FOREVER
        return member

    def begin_marks(self) -> None:
        """Keep from now on what other processes know members by."""
        self._marked = True
        for tenant, member in self.members.items():
            self._mark(tenant, member)

    def _mark(self, tenant: str, member: Member) -> None:
        member.mark = mark_of(tenant)
        self.marks[member.mark] = member

    def weigh(self, member: Member, whole: float, part: float, now: Micros) -> None:
        """Give `member` the weight `whole`, of which `part` counts here; what is known of it is kept."""
        weight = whole * part
        if member is not self.group or self._unlisted:
            member.line.weight += weight - member.weight
        member.whole, member.part = whole, part
        member.reweigh(weight, now)

    def resize(self, unlisted_weight: float, max_unlisted: int, now: Micros) -> None:
        """Follow a reload, and look closely at everybody's next ask."""
        self.max_unlisted = max_unlisted
        self.weigh(self.group, unlisted_weight, self.group.part, now)
        for member in self.members.values():
            member.ask = None
        if self._overflow is not None:
            self._overflow.ask = None

    @property
    def has_unlisted(self) -> bool:
        """Return whether there is anybody in the group."""
        return self._unlisted > 0

    def sweep(self, now: Micros) -> None:
        """Drop those of the next few members that are idle."""
        for _ in range(min(SWEEP, len(self._order))):
            member = self._order.popleft()
            if member.gone:
                continue  # it was listed, or is no longer, and has another member
            if member.idle(FORGET_US if member.group is not None else LIFE_US, now):
                self._drop(member)
            else:
                self._order.append(member)

    def rebase(self) -> None:
        """Set virtual time back, with every share bucket, once it is very large: hours or months apart."""
        for line in (self.line, self.inner):
            if line.virtual_base > REBASE_AT:
                back, line.virtual_base = line.virtual_base, 0.0
                for member in (*self.members.values(), self.group):
                    if member.line is line:
                        member.rebase(back)

    def _join(self, ask: Ask, now: Micros) -> Member:
        """Make a member for `ask`, in place of one that was listed and no longer is, or the other way round."""
        before = self.members.get(ask.tenant)
        if before is not None:
            self._drop(before)
        if ask.listed:
            member = Member(ask.weight, self.line, now, full=True, name=ask.tenant)
        elif self._unlisted < self.max_unlisted:
            member = self._minted(ask.weight, now, ask.tenant)
            if not self._unlisted:
                self.line.join(self.group.weight)
            self._unlisted += 1
        else:
            if self._overflow is None:
                self._overflow = self._minted(1.0, now)
            return self._overflow
        member.line.join(member.weight)
        self.members[ask.tenant] = member
        if self._marked:
            self._mark(ask.tenant, member)
            if member.mark in self.elsewhere:
                member.spend(LENT * member.small * member.weight, now)
        self._order.append(member)
        return member

    def _minted(self, weight: float, now: Micros, name: str = "") -> Member:
        member = Member(weight, self.inner, now, full=False, name=name)
        member.group = self.group
        return member

    def _drop(self, member: Member) -> None:
        """Let go of a member; whoever has kept it meets another at the next ask."""
        member.gone, member.ask = True, None
        member.leave()
        member.line.part(member.weight)
        del self.members[member.name]
        if member.mark:
            del self.marks[member.mark]
        if member.group is not None:
            self._unlisted -= 1
            if self._overflow is not None:
                self._overflow.ask = None  # there is room now for one of those who share it
            if not self._unlisted:
                self.line.part(self.group.weight)
