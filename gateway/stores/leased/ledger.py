"""The calls of the leases: many buckets in one script call, each call for records that lie together.

Rules
1. What is asked for in one turn of the loop goes out together. On one server everything can; in a cluster what has the
   same slot.
2. A call holds the server up for as long as its script runs, so it has at most `MOST` records.
3. A call is answered once. What comes after its deadline was charged all the same, so it is taken in all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from gateway.stores.leased.codec import Claim, lease_call, read_grants, read_rooms, seats_call
from gateway.stores.leased.places import SEATS_FOR
from gateway.stores.link import Script, StoreFault, load_script
from gateway.stores.link.link import Link, slot_of
from policies.kernels.lease import Grant, Want
from policies.kernels.seats import Room
from policies.units import Micros, RequestUnits

__all__ = ["MOST", "Asked", "Claim", "Ledger", "LinkLedger", "batches"]

#: Records of one call: well under 1 ms of the server's time.
MOST = 32

_T = TypeVar("_T")


class Asked(NamedTuple):
    """What one call asks of one bucket: its record, its rate and burst as of today, and what is wanted."""

    key: bytes
    rate_us: float
    burst: RequestUnits
    want: Want


class Ledger(Protocol):
    """Where leases are kept. `answer` is called once, `late` with grants that come after that."""

    @property
    def up(self) -> bool:
        """False while it is known that nobody would answer."""
        ...

    def group(self, key: bytes) -> int:
        """Return what records have in common that one call can be about."""
        ...

    def lease(
        self,
        asked: Sequence[Asked],
        dearest: RequestUnits,
        answer: Callable[[list[Grant] | StoreFault], None],
        late: Callable[[list[Grant]], None],
    ) -> None:
        """Ask for all of `asked`, which are of one group, in one call."""
        ...

    def seat(
        self,
        claims: Sequence[Claim],
        answer: Callable[[list[Room] | StoreFault], None],
        late: Callable[[list[Room]], None],
    ) -> None:
        """Ask for all of `claims`, which are of one group, in one call."""
        ...

    def overdue(self) -> None:
        """Note a call whose answer came too late for somebody who waited for it."""
        ...


class LinkLedger:
    """A ledger over a link. `process` names this one, `deadline` is how long an answer may take."""

    __slots__ = ("_deadline", "_lease", "_link", "_process", "_seats", "_slots")

    def __init__(self, link: Link, process: int, deadline: Micros) -> None:
        self._link = link
        self._process = process
        self._deadline = deadline
        self._slots = link.address.kind == "cluster"
        self._lease: Script = load_script("lease")
        self._seats: Script = load_script("seats")

    @property
    def up(self) -> bool:
        """False while the link is known to be down."""
        return self._link.up

    def group(self, key: bytes) -> int:
        """Return the slot of a record in a cluster; on one server all go together."""
        return slot_of(key) if self._slots else 0

    def lease(
        self,
        asked: Sequence[Asked],
        dearest: RequestUnits,
        answer: Callable[[list[Grant] | StoreFault], None],
        late: Callable[[list[Grant]], None],
    ) -> None:
        """Ask for all of `asked` in one call of `lease.lua`."""
        count = len(asked)
        keys, args = lease_call(asked, self._process, dearest)
        self._ask(self._lease, keys, args, lambda reply: read_grants(reply, count), answer, late)

    def seat(
        self,
        claims: Sequence[Claim],
        answer: Callable[[list[Room] | StoreFault], None],
        late: Callable[[list[Room]], None],
    ) -> None:
        """Ask for all of `claims` in one call of `seats.lua`."""
        count = len(claims)
        keys, args = seats_call(claims, self._process, SEATS_FOR)
        self._ask(self._seats, keys, args, lambda reply: read_rooms(reply, count), answer, late)

    def _ask(
        self,
        script: Script,
        keys: Sequence[bytes],
        args: Sequence[bytes],
        read: Callable[[object], list[_T]],
        answer: Callable[[list[_T] | StoreFault], None],
        late: Callable[[list[_T]], None],
    ) -> None:
        """Run a script once, and hand on what `read` makes of its reply."""
        self._link.run(
            script, keys, args, lambda reply: answer(_read(reply, read)), self._deadline,
            lambda reply: _late(_read(reply, read), late),
        )  # fmt: skip

    def overdue(self) -> None:
        """Count it with the calls that the link gave up, in `evenhand_store_errors_total`."""
        self._link.errors["timeout"] += 1


def _read(reply: object, read: Callable[[object], list[_T]]) -> list[_T] | StoreFault:
    if isinstance(reply, StoreFault):
        return reply
    try:
        return read(reply)
    except ValueError as error:
        return StoreFault("protocol", str(error))


def _late(found: list[_T] | StoreFault, late: Callable[[list[_T]], None]) -> None:
    if not isinstance(found, StoreFault):
        late(found)


class _Grouped(Protocol):
    @property
    def group(self) -> int: ...


_G = TypeVar("_G", bound=_Grouped)


def batches(found: Iterable[_G]) -> Iterator[list[_G]]:
    """Return pockets or places by what one call can be about."""
    groups: dict[int, list[_G]] = {}
    for one in found:
        group = groups.setdefault(one.group, [])
        group.append(one)
        if len(group) >= MOST:
            yield groups.pop(one.group)
    yield from groups.values()
