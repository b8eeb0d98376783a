"""A key set at an address (`jwks_url`): what verifies never fetches, what fetches never makes a request wait.

Rules
1. `find` is a look-up in the last good set. It is called on the data plane's thread and can only *ask* for a refresh.
2. A set is refreshed every `REFRESH`, and at least four times before it would be stale. If that fails, the last good
   one serves until it is `jwks_stale` old; then the issuer's tokens prove nothing until a fetch succeeds.
3. A kid that is not in the set asks for a refresh, but only once in `COOL_DOWN` for all of them together, and once in
   `UNKNOWN_FOR` for each: kids are made up for free. Those longer than `MAX_KID` are never asked for.
4. A set that changed, or went stale, ends what was remembered of tokens (`changed`): a withdrawn key verifies nothing
   any more, and a token signed with a new one need not wait.

    none --good--> fresh --fault...--> ageing --jwks_stale--> stale
                     ^------good----------+-------good----------+
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import orjson

from gateway.clock import Clock
from gateway.errors import ConfigError
from gateway.identity.cache import Generations
from gateway.identity.fetch import FetchError, Resolve, fetch
from gateway.identity.keys import FixedKeys, Key, keys_of_set
from policies.units import SECOND, Micros

__all__ = ["COOL_DOWN", "REFRESH", "UNKNOWN_FOR", "KeySet"]

_LOG = logging.getLogger("evenhand.identity")

#: Precedents: Envoy's jwt_authn 10 minutes, Istio 20, go-oidc on demand only.
REFRESH: Micros = 300 * SECOND
#: Between two refreshes that tokens asked for; PyJWT's client has none, jwks-rsa allows ten a minute.
COOL_DOWN: Micros = 30 * SECOND
UNKNOWN_FOR: Micros = 300 * SECOND
MAX_KID = 256
_UNKNOWN_KIDS = 1024
_FIRST_RETRY: Micros = SECOND


class _Held(NamedTuple):
    keys: FixedKeys
    digest: bytes
    fetched_us: Micros
    ends_us: Micros


class KeySet:
    """The keys of one issuer, wherever its set is. `changed` is called, on the fetching thread, as rule 4 says."""

    def __init__(
        self,
        issuer: str,
        url: str,
        algorithms: Sequence[str],
        *,
        stale_us: Micros,
        allow_private: bool,
        clock: Clock,
        changed: Callable[[], None],
        resolve: Resolve | None = None,
    ) -> None:
        self.issuer = issuer
        self._url = url
        self._algorithms = tuple(algorithms)
        self._stale_us = stale_us
        self._allow_private = allow_private
        self._clock = clock
        self._changed = changed
        self._resolve = resolve
        self._held: _Held | None = None
        self._since = clock.now()
        self._fault = ""
        self._unknown: Generations[str, Micros] = Generations(_UNKNOWN_KIDS)
        self._asked_until: Micros = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = asyncio.Event()
        #: Set once the first fetch has ended, well or not.
        self.tried = asyncio.Event()

    # The data plane's thread

    def find(self, kid: str | None, algorithm: str) -> Key | None:
        """Return the key of this id if it is pinned to `algorithm` and the set is not stale."""
        held = self._held
        now = self._clock.now()
        if held is None or now >= held.ends_us:
            return None
        key = held.keys.find(kid, algorithm)
        if key is None and kid is not None and len(kid) <= MAX_KID:
            self._miss(kid, now)
        return key

    def _miss(self, kid: str, now: Micros) -> None:
        loop = self._loop
        until = self._unknown.get(kid)
        if loop is None or now < self._asked_until or (until is not None and now < until):
            return
        self._unknown.put(kid, now + UNKNOWN_FOR)
        self._asked_until = now + COOL_DOWN
        loop.call_soon_threadsafe(self._asked.set)

    # Any thread

    def age_us(self) -> Micros:
        """Return how old the set in use is; of one never fetched, how long it has been wanted."""
        held = self._held
        return self._clock.now() - (self._since if held is None else held.fetched_us)

    def warning(self) -> str | None:
        """Return what an operator should know of now."""
        if not self._fault:
            return None
        held, age = self._held, self.age_us() // SECOND
        if held is None:
            effect = "there is none yet, so its tokens are refused"
        elif self._clock.now() >= held.ends_us:
            effect = f"the last one is {age} s old, beyond jwks_stale, so its tokens are refused"
        else:
            effect = f"the one in use is {age} s old"
        return f"the key set of issuer {self.issuer} cannot be refreshed: {self._fault}; {effect}"

    def adopt(self, other: KeySet) -> None:
        """Go on with what `other`, of the configuration before, holds, if it is the same set."""
        if (other._url, other._algorithms) == (self._url, self._algorithms):
            held = other._held
            self._held = None if held is None else held._replace(ends_us=held.fetched_us + self._stale_us)

    # The fetching thread

    async def run(self) -> None:
        """Keep the set fresh until cancelled."""
        self._loop = asyncio.get_running_loop()
        failures = 0
        while True:
            self._asked.clear()
            failures = 0 if await self._refresh() else failures + 1
            self.tried.set()
            await self._wait(failures)

    async def _refresh(self) -> bool:
        try:
            document = await fetch(self._url, allow_private=self._allow_private, resolve=self._resolve)
            self._take(document)
        except (FetchError, ConfigError) as error:
            fault = str(error) if isinstance(error, FetchError) else error.faults[0].message
            if fault != self._fault:
                _LOG.warning("the key set of issuer %s cannot be refreshed: %s", self.issuer, fault)
            self._fault = fault
            return False
        self._fault = ""
        return True

    def _take(self, document: bytes) -> None:
        digest = hashlib.sha256(document).digest()
        held, now = self._held, self._clock.now()
        if held is not None and held.digest == digest:
            keys = held.keys
        else:
            try:
                keys = keys_of_set(orjson.loads(document), self._algorithms, self.issuer)
            except orjson.JSONDecodeError as error:
                raise FetchError("it is not JSON") from error
        renewed = held is None or held.digest != digest or now >= held.ends_us
        self._held = _Held(keys, digest, now, now + self._stale_us)
        if renewed:
            self._changed()

    async def _wait(self, failures: int) -> None:
        """Wait for the next refresh; wake up in between when the set goes stale."""
        every = min(REFRESH, max(self._stale_us // 4, 1))
        pause = min(every, _FIRST_RETRY << min(failures - 1, 20)) if failures else every
        until = self._clock.now() + pause
        while (left := until - self._clock.now()) > 0:
            held = self._held
            ends_in = -1 if held is None else held.ends_us - self._clock.now()
            try:
                async with asyncio.timeout(min(left, ends_in if ends_in > 0 else left) / SECOND):
                    await self._asked.wait()
                    return
            except TimeoutError:
                if 0 < ends_in <= left:
                    self._changed()
