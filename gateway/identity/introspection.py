"""Opaque tokens known to another service (RFC 7662): asked beside the request, remembered by digest.

Rules
1. Who asks first asks for all who come with the same token meanwhile (single flight); they go on when it is known. The
   data plane's loop waits for nothing: `ask` says that it has begun, and calls back.
2. An answer holds for `cache`, a good one at most until its `exp`. So long lives a revoked token.
3. Bounded: `TIMEOUT_SECONDS` for an answer, `_PARALLEL` questions at a time, `_WAITING` tokens waiting, of one address
   `_PER_ADDRESS`: whoever invents tokens keeps nobody else's from being asked for.
4. When it does not answer, its posture does, at once for `_DOWN` after a failure: `closed` is 503 (the token may be
   good, so 401 would be a lie); `open` lets the caller go on as nobody, charged to its address, its credential left for
   the upstream to judge; `deny:N` closes to N per cent of tokens; `safe-capacity` goes on with what was last known of a
   token, up to `_LAST_KNOWN`, and is closed to others.
5. The token travels in a form body to the configured address, and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import orjson

from gateway.clock import Clock
from gateway.config.auth import IntrospectionSection
from gateway.identity.answer import Answer, Finding, proven
from gateway.identity.background import Background
from gateway.identity.cache import TokenCache
from gateway.identity.fetch import FetchError, read, trusted
from gateway.identity.roster import Claimed, Roster, glob, is_id
from gateway.ports import Resolution
from policies.request import Kind
from policies.units import SECOND, Micros

__all__ = ["TIMEOUT_SECONDS", "Introspection", "could_be_opaque"]

_LOG = logging.getLogger("evenhand.identity")

TIMEOUT_SECONDS = 2.0
_PARALLEL = 32
_WAITING = 1024
_PER_ADDRESS = 16
_REMEMBERED = 32_768
_REMEMBERED_BAD = 8192
_DOWN: Micros = SECOND
_LAST_KNOWN: Micros = 3600 * SECOND
#: Those who waited must find the answer, even where `cache` is 0s.
_LEAST: Micros = 50_000
#: A token without `exp` ends with what was remembered of it.
_NO_END: Micros = 9_000_000_000 * SECOND

#: RFC 6749, A.12: what an access token is made of.
_TOKEN = re.compile(rb"[\x20-\x7e]+")


class _Told(NamedTuple):
    """What the service said of one token."""

    active: bool
    tenant: Any = None
    key: Any = None
    exp: Any = None


class Introspection:
    """One service. `bind` gives it the two loops; without them every token that is not remembered is unavailable."""

    def __init__(self, section: IntrospectionSection, roster: Roster, clock: Clock) -> None:
        self._section = section
        self._roster = roster
        self._clock = clock
        self._speaks_for = glob(section.tenants)
        self._good: TokenCache[Resolution] = TokenCache(_REMEMBERED)
        self._bad: TokenCache[Answer] = TokenCache(_REMEMBERED_BAD)
        self._last_known: TokenCache[Resolution] = TokenCache(_REMEMBERED)
        self._waiting: dict[bytes, list[Callable[[], None]]] = {}
        self._of_address: dict[str, int] = {}
        self._down_until: Micros = 0
        self._client: httpx.AsyncClient
        self._ready = asyncio.Event()
        self._background: Background | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns = asyncio.Semaphore(_PARALLEL)
        self.fault = ""

    def bind(self, background: Background, loop: asyncio.AbstractEventLoop) -> None:
        """Ask by way of `background` and hand answers to `loop`, that of the data plane, which calls this."""
        self._background, self._loop = background, loop

    def warning(self) -> str | None:
        """Return what an operator should know of now."""
        return f"introspection fails: {self.fault}; posture {self._section.posture} decides" if self.fault else None

    # The data plane's thread

    def known(self, digest: bytes, wall: Micros) -> Finding:
        """Return what is remembered of a token, or else what the posture says."""
        return self._good.get(digest, wall) or self._bad.get(digest, wall) or self._by_posture(digest, wall)

    def ask(self, token: bytes, digest: bytes, address: str, resume: Callable[[], None]) -> Callable[[], None] | None:
        """Begin to find out, and call `resume` when it is known; None if it is, or if nobody can be asked now.

        What is returned takes the wish back.
        """
        wall, background = self._clock.wall(), self._background
        if self._good.get(digest, wall) is not None or self._bad.get(digest, wall) is not None:
            return None
        waiting = self._waiting.get(digest)
        if waiting is None:
            if background is None or self._clock.now() < self._down_until or not self._room(address):
                return None
            waiting = self._waiting[digest] = []
            self._of_address[address] = self._of_address.get(address, 0) + 1
            background.submit(self._ask(token, digest, address))
        waiting.append(resume)
        return lambda: waiting.remove(resume) if resume in waiting else None

    def _room(self, address: str) -> bool:
        return len(self._waiting) < _WAITING and self._of_address.get(address, 0) < _PER_ADDRESS

    def _by_posture(self, digest: bytes, wall: Micros) -> Finding:
        posture = self._section.posture
        if posture == "open":
            return Answer.UNJUDGED
        if posture == "safe-capacity":
            return self._last_known.get(digest, wall) or Answer.UNAVAILABLE
        if posture.startswith("deny:") and int.from_bytes(digest[:4], "big") % 100 >= int(posture[5:]):
            return Answer.UNJUDGED
        return Answer.UNAVAILABLE

    def _answered(self, digest: bytes, address: str, told: _Told | None) -> None:
        left = self._of_address.pop(address) - 1
        if left:
            self._of_address[address] = left
        if told is None:
            self._down_until = self._clock.now() + _DOWN
        else:
            self._remember(digest, told)
        for resume in self._waiting.pop(digest):
            resume()

    def _remember(self, digest: bytes, told: _Told) -> None:
        wall = self._clock.wall()
        until = wall + max(self._section.cache, _LEAST)
        finding = self._finding(told, wall)
        if isinstance(finding, Answer):
            self._bad.put(digest, finding, until)
            self._last_known.drop(digest)
            return
        ends = finding.principal.expires_us or _NO_END
        self._good.put(digest, finding, min(until, ends))
        self._last_known.put(digest, finding, min(wall + _LAST_KNOWN, ends))

    def _finding(self, told: _Told, wall: Micros) -> Finding:
        tenant, key, exp = told.tenant, told.key, told.exp
        if exp is not None and (isinstance(exp, bool) or not isinstance(exp, int | float) or exp != exp):  # noqa: PLR0124 - NaN
            return Answer.INVALID
        expires_us = _NO_END if exp is None else int(min(max(exp, 0), _NO_END // SECOND)) * SECOND
        speaks = told.active and is_id(tenant) and is_id(key) and self._speaks_for.fullmatch(tenant)
        if not speaks or expires_us <= wall:
            return Answer.INVALID
        principal = self._roster.principal(Claimed(Kind.USER, tenant, key, expires_us), wall)
        return Answer.INVALID if principal is None else proven(principal)

    # The background's thread

    async def run(self) -> None:
        """Hold the connections until cancelled."""
        section = self._section
        auth = httpx.BasicAuth(section.client_id, section.client_secret.get_secret_value())
        limits = httpx.Limits(max_connections=_PARALLEL, max_keepalive_connections=_PARALLEL)
        async with httpx.AsyncClient(
            auth=auth, verify=trusted(), trust_env=False, limits=limits, timeout=TIMEOUT_SECONDS
        ) as client:
            self._client = client
            self._ready.set()
            try:
                await asyncio.Event().wait()
            finally:
                self._ready.clear()

    async def _ask(self, token: bytes, digest: bytes, address: str) -> None:
        told: _Told | None = None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS), self._turns:
                told = await self._post(token)
            self.fault = ""
        except TimeoutError:
            self._failed(f"it does not answer within {TIMEOUT_SECONDS:g} s")
        except httpx.HTTPError as error:
            self._failed(f"it cannot be reached ({type(error).__name__})")
        except FetchError as error:
            self._failed(str(error))
        finally:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._answered, digest, address, told)

    def _failed(self, fault: str) -> None:
        if fault != self.fault:
            _LOG.warning("introspection fails: %s", fault)
        self.fault = fault

    async def _post(self, token: bytes) -> _Told:
        """Ask about one token (RFC 7662, 2.1)."""
        await self._ready.wait()
        form = {"token": token.decode("ascii"), "token_type_hint": "access_token"}
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        async with self._client.stream("POST", self._section.url, data=form, headers=headers) as response:
            body = await read(response)
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise FetchError("it does not answer in JSON") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("active"), bool):
            raise FetchError('its answer has no boolean "active"')
        if not answer["active"]:
            return _Told(active=False)
        section = self._section
        return _Told(True, answer.get(section.tenant_field), answer.get(section.key_field), answer.get("exp"))


def could_be_opaque(token: bytes) -> bool:
    """Return whether `token` can be an access token at all."""
    return _TOKEN.fullmatch(token) is not None
