"""Who holds the seats of one upstream: shared max-min by the weight of tenants once they are all wanted.

Rules
1. A seat is held by the tenant whose request it carries, from when the call leaves the line until it ends. Nobody's
   seat is taken away: what is shared is the next one.
2. A tenant that holds none may take any free seat. One that holds some may take another while it holds less than 15
   times what is free, by weight: `held / weight < 15 * free * tenants / weights`, of the tenants that hold a seat or
   wait for one. So the first tenant leaves a sixteenth of the seats free, however slow its requests are, and whoever
   comes next finds one at once; that one leaves a sixteenth of the rest. It is the dynamic threshold for shared buffers
   (Choudhury and Hahne, 1998).
3. Of fewer than sixteen seats rule 2 keeps none free, and a tenant alone has them all. Where requests of more than one
   were seen within `MEMORY`, the last seat of any number is for a tenant that holds none.
4. A free seat goes to the waiting tenant that holds the fewest by weight, of equals to the one that has waited longest.
   Tenants under rule 2 are in the same order, so the first of them is the only one to ask.
5. An account is kept while its tenant holds or waits; of the others sixteen thousand, so that a call makes none, be it
   that of another tenant each time.

A tenant nobody listed has an account of its own, of weight 1; all callers without a credential have one together.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from gateway.proxy.call import Account, Call
from policies.charge import Memo, ShareCharge

__all__ = ["MEMORY", "Seats"]

#: Seconds for which a tenant is reckoned with that asks for nothing.
MEMORY: Final = 60.0

#: How many times the free seats a tenant may hold.
_TIMES_FREE: Final = 15.0

#: Accounts kept of tenants that hold and want nothing: at most about 5 MB.
_IDLE: Final = 16_384
#: Entries of the queue beyond those that count.
_SPARE: Final = 1_024

_NUMBERS: Final = count(1)


class Seats:
    """The seats of one upstream. Times are loop time."""

    __slots__ = (
        "_accounts", "_active", "_arrivals", "_free", "_last", "_mixed_at", "_number", "_queue", "_seats", "_waiting",
        "_weights",
    )  # fmt: skip

    def __init__(self, seats: int) -> None:
        self._seats = seats
        #: No others of this process have it.
        self._number = next(_NUMBERS)
        self._accounts: dict[str | None, Account] = {}
        self._queue: list[tuple[float, int, Account]] = []
        self._waiting = self._active = self._arrivals = 0
        self._weights = 0.0
        self._last: Account | None = None
        self._mixed_at = -MEMORY
        self._free = seats

    def __len__(self) -> int:
        """How many accounts are kept."""
        return len(self._accounts)

    @property
    def taken(self) -> int:
        """Seats that are held."""
        return self._seats - self._free

    def account(self, share: ShareCharge | None, now: float, memo: Memo | None = None) -> Account:
        """Return the account of a tenant that asks, with the weight it has now.

        `memo` is that of the plan whose share it is: with ten thousand tenants a look-up by name is mostly waiting for
        memory. What it keeps is good while the account is one of these seats' own.
        """
        kept = None if memo is None else memo.account
        if isinstance(kept, Account) and kept.home == self._number:
            account = kept
        else:
            account = self._named(None if share is None else share.tenant)
            if memo is not None:
                memo.account = account
        if share is not None and share.weight != account.weight:
            self._reweigh(account, share.weight)
        if account is not self._last:
            if self._last is not None:
                self._mixed_at = now
            self._last = account
        return account

    def may(self, account: Account, now: float) -> bool:
        """Return whether `account` may take a seat now."""
        free = self._free
        if not account.held:
            return free > 0
        if free <= 1 and (free <= 0 or now - self._mixed_at < MEMORY):
            return False
        return account.held * self._weights < _TIMES_FREE * free * self._active * account.weight

    def within(self, account: Account) -> bool:
        """Return whether a waiting `account` holds less than its part of the seats, but for those kept free."""
        seats = self._seats - max(1, self._seats // 16) if self._seats > 1 else 1
        return account.held * self._weights < seats * account.weight

    def take(self, account: Account, now: float) -> bool:
        """Give it a seat, if it may take one (`may`, without the price of a call)."""
        free = self._free
        held = account.held
        if held:
            if free <= 1 and (free <= 0 or now - self._mixed_at < MEMORY):
                return False
            if held * self._weights >= _TIMES_FREE * free * self._active * account.weight:
                return False
        elif free <= 0:
            return False
        self._free = free - 1
        account.held = held + 1
        if account.line is not None:
            self._push(account)
        elif not held:
            self._active += 1
            self._weights += account.weight
        return True

    def give(self, account: Account) -> None:
        """Take its seat back."""
        self._free += 1
        account.held -= 1
        if account.line is not None:
            self._push(account)
        elif not account.held:
            self._rest(account)

    # The line

    def wait(self, account: Account, call: Call) -> None:
        """Let `call` wait behind those of its tenant."""
        line = account.line
        if line is None:
            line = account.line = OrderedDict()
            if not account.held:
                self._active += 1
                self._weights += account.weight
            self._waiting += 1
            self._arrivals += 1
            account.since = self._arrivals
            self._push(account)
        line[call] = None

    def back(self, account: Account, call: Call) -> None:
        """Let `call`, which was taken out of the line, wait before those of its tenant."""
        since = account.since
        self.wait(account, call)
        if account.line is not None:
            account.line.move_to_end(call, last=False)
        if since != account.since:
            account.since = since
            self._push(account)

    def leave(self, account: Account, call: Call) -> None:
        """Let it wait no more, if it does."""
        line = account.line
        if line is None or call not in line:
            return
        del line[call]
        if not line:
            account.line = None
            self._waiting -= 1
            if not account.held:
                self._rest(account)

    def first(self, now: float) -> Account | None:
        """Return whose turn it is, None if nobody waits who may take a seat."""
        queue = self._queue
        while queue:
            ratio, since, account = queue[0]
            if account.line is not None and ratio == account.ratio and since == account.since:
                return account if self.may(account, now) else None
            heappop(queue)
        return None

    def _push(self, account: Account) -> None:
        heappush(self._queue, (account.ratio, account.since, account))
        if len(self._queue) > 2 * self._waiting + _SPARE:
            waiting = [each for each in self._accounts.values() if each.line is not None]
            self._queue = [(each.ratio, each.since, each) for each in waiting]
            heapify(self._queue)

    # Accounts

    def _named(self, tenant: str | None) -> Account:
        account = self._accounts.get(tenant)
        if account is None:
            if len(self._accounts) >= _IDLE + self._active:
                self._forget()
            account = self._accounts[tenant] = Account(tenant, self._number)
        return account

    def _forget(self) -> None:
        """Forget who holds and wants nothing. Whoever keeps such an account is told by it."""
        kept: dict[str | None, Account] = {}
        for name, account in self._accounts.items():
            if account.held or account.line is not None:
                kept[name] = account
            else:
                account.home = 0
        self._accounts = kept

    def _reweigh(self, account: Account, weight: float) -> None:
        if account.held or account.line is not None:
            self._weights += weight - account.weight
        account.weight = weight
        if account.line is not None:
            self._push(account)

    def _rest(self, account: Account) -> None:
        self._active -= 1
        self._weights = self._weights - account.weight if self._active else 0.0
