"""Opaque tokens known to another service (RFC 7662): asked beside the request, remembered by digest.

Rules
1. Who asks first asks for all who come with the same token meanwhile (single flight); they go on when it is known. The
   data plane's loop waits for nothing: `ask` says that it has begun, and calls back.
2. An answer holds for `cache`, a good one at most until its `exp`. So long lives a revoked token.
3. Bounded: `TIMEOUT_SECONDS` for an answer, counted from when it is asked; `_PARALLEL` questions at a time and
   `_WAITING` that wait, served by address in turn (`turns.py`): whoever invents tokens waits behind its own.
4. A token in use is asked about again before its answer ends, by turns of its own: what works goes on working, whatever
   strangers ask. A token whose question failed is left alone for `_DOWN`.
5. Any status but 200 is a failure of that token alone. Only where nobody can be reached, or 5xx, 429 or silence meets
   several addresses in a row, is nobody asked for `_DOWN` (`Circuit`).
6. Without an answer the posture decides: `closed` is 503 (the token may be good, so 401 would be a lie); `open` lets
   the caller go on as nobody, charged to its address, its credential left for the upstream to judge; `deny:N` closes to
   N per cent of tokens; `safe-capacity` goes on with what was last known of a token, up to `_LAST_KNOWN`, and is closed
   to others.
7. The token travels in a form body to the configured address, and nowhere else.
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
from gateway.identity.turns import Circuit, Turns
from gateway.ports import Resolution
from policies.request import Kind
from policies.units import SECOND, Micros

__all__ = ["TIMEOUT_SECONDS", "Introspection", "could_be_opaque"]

_LOG = logging.getLogger("evenhand.identity")

TIMEOUT_SECONDS = 2.0
_PARALLEL = 32
_WAITING = 1024
_PER_ADDRESS = 16
_RENEWALS = 8
_RENEWALS_PER_ADDRESS = 256
_PATIENCE: Micros = 10 * SECOND
_REMEMBERED = 32_768
_REMEMBERED_BAD = 8192
_DOWN: Micros = SECOND
_TOLD_EVERY_SECONDS = 10.0
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


class _Held(NamedTuple):
    """What is remembered of a good token, and from when on it is asked about anew."""

    resolution: Resolution
    renew: Micros


class _Question(NamedTuple):
    """One token to ask about."""

    token: bytes
    digest: bytes
    address: str
    turns: Turns[_Question]


class _UnwellError(FetchError):
    """The service answers that it cannot answer: not what one token makes of it."""


class Introspection:
    """One service. `bind` gives it the two loops; without them every token that is not remembered is unavailable."""

    def __init__(self, section: IntrospectionSection, roster: Roster, clock: Clock) -> None:
        self._section = section
        self._roster = roster
        self._clock = clock
        self._speaks_for = glob(section.tenants)
        self._good: TokenCache[_Held] = TokenCache(_REMEMBERED)
        self._bad: TokenCache[Answer] = TokenCache(_REMEMBERED_BAD)
        self._last_known: TokenCache[Resolution] = TokenCache(_REMEMBERED)
        self._waiting: dict[bytes, list[Callable[[], None]]] = {}
        self._failed_lately: TokenCache[bool] = TokenCache(_REMEMBERED_BAD)
        self._circuit = Circuit(_DOWN)
        self._turns: Turns[_Question] = Turns(_PARALLEL, _PER_ADDRESS, _WAITING, _PATIENCE)
        self._renewals: Turns[_Question] = Turns(_RENEWALS, _RENEWALS_PER_ADDRESS, _WAITING, _PATIENCE)
        self._client: httpx.AsyncClient
        self._ready = asyncio.Event()
        self._background: Background | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told_at = -_TOLD_EVERY_SECONDS
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
        good = self._good.get(digest, wall)
        return good.resolution if good else self._bad.get(digest, wall) or self._by_posture(digest, wall)

    def ask(self, token: bytes, digest: bytes, address: str, resume: Callable[[], None]) -> Callable[[], None] | None:
        """Begin to find out, and call `resume` when it is known; None if it is, or if nobody can be asked now.

        What is returned takes the wish back.
        """
        wall = self._clock.wall()
        good = self._good.get(digest, wall)
        if good is not None:
            if wall >= good.renew:
                self._begin(_Question(token, digest, address, self._renewals), wall, good=True)
            return None
        if self._bad.get(digest, wall) is not None:
            return None
        if digest not in self._waiting:
            # Whoever invents tokens does not stand in the line of those that were good before.
            turns = self._turns if self._last_known.get(digest, wall) is None else self._renewals
            self._begin(_Question(token, digest, address, turns), wall)
        waiting = self._waiting.get(digest)
        if waiting is None:
            return None
        waiting.append(resume)
        return lambda: waiting.remove(resume) if resume in waiting else None

    def _begin(self, question: _Question, wall: Micros, *, good: bool = False) -> None:
        """Let a question wait for its turn, if it may be asked at all."""
        digest, address, turns = question.digest, question.address, question.turns
        if self._background is None or digest in self._waiting or self._failed_lately.get(digest, wall):
            return
        now = self._clock.now()
        # What is known to be good is asked about in any case: nobody waits for it, and it tells when all is well again.
        if not good and not self._circuit.lets(address, now):
            return
        waits, evicted = turns.enter(address, question, now)
        if waits:
            self._waiting[digest] = []
            if evicted is not None:
                self._resume(evicted.digest)
            self._proceed(turns)

    def _proceed(self, turns: Turns[_Question]) -> None:
        """Ask whatever has its turn."""
        background = self._background
        while background is not None:
            question, late = turns.next(self._clock.now())
            for one in late:
                self._resume(one.digest)
            if question is None:
                return
            background.submit(self._ask(question))

    def _resume(self, digest: bytes) -> None:
        for resume in self._waiting.pop(digest, ()):
            resume()

    def _by_posture(self, digest: bytes, wall: Micros) -> Finding:
        posture = self._section.posture
        if posture == "open":
            return Answer.UNJUDGED
        if posture == "safe-capacity":
            return self._last_known.get(digest, wall) or Answer.UNAVAILABLE
        if posture.startswith("deny:") and int.from_bytes(digest[:4], "big") % 100 >= int(posture[5:]):
            return Answer.UNJUDGED
        return Answer.UNAVAILABLE

    def _answered(self, question: _Question, told: _Told | None, failure: BaseException | None) -> None:
        question.turns.done(question.address)
        if told is not None:
            self._remember(question.digest, told)
        else:
            self._failed_lately.put(question.digest, True, self._clock.wall() + _DOWN)
        if isinstance(failure, asyncio.CancelledError):
            self._background = None  # it ends, and asks nobody any more
            for digest in list(self._waiting):
                self._resume(digest)
        elif failure is None or (isinstance(failure, FetchError) and not isinstance(failure, _UnwellError)):
            self._circuit.answered()
        else:
            unreachable = isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout)
            self._circuit.failed(question.address, self._clock.now(), unreachable=unreachable)
        self._resume(question.digest)
        self._proceed(question.turns)

    def _remember(self, digest: bytes, told: _Told) -> None:
        wall = self._clock.wall()
        until = wall + max(self._section.cache, _LEAST)
        finding = self._finding(told, wall)
        if isinstance(finding, Answer):
            self._good.drop(digest)
            self._bad.put(digest, finding, until)
            self._last_known.drop(digest)
            return
        ends = finding.principal.expires_us or _NO_END
        # What ends by itself is not asked about again.
        renew = ends if ends <= until else until - (until - wall) // 4
        self._good.put(digest, _Held(finding, renew), min(until, ends))
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
        limits = httpx.Limits(max_connections=_PARALLEL + _RENEWALS, max_keepalive_connections=_PARALLEL + _RENEWALS)
        async with httpx.AsyncClient(
            auth=auth, verify=trusted(), trust_env=False, limits=limits, timeout=TIMEOUT_SECONDS
        ) as client:
            self._client = client
            self._ready.set()
            try:
                await asyncio.Event().wait()
            finally:
                self._ready.clear()

    async def _ask(self, question: _Question) -> None:
        told: _Told | None = None
        failure: BaseException | None = None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                told = await self._post(question.token)
            self.fault = ""
        except TimeoutError as error:
            failure = error
            self._failed(f"it does not answer within {TIMEOUT_SECONDS:g} s")
        except httpx.HTTPError as error:
            failure = error
            self._failed(f"it cannot be reached ({type(error).__name__})")
        except FetchError as error:
            failure = error
            self._failed(str(error))
        except BaseException as error:
            failure = error
            raise
        finally:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._answered, question, told, failure)

    def _failed(self, fault: str) -> None:
        now = asyncio.get_running_loop().time()
        if fault != self.fault and now - self._told_at >= _TOLD_EVERY_SECONDS:
            self._told_at = now
            _LOG.warning("introspection fails: %s", fault)
        self.fault = fault

    async def _post(self, token: bytes) -> _Told:
        """Ask about one token (RFC 7662, 2.1)."""
        await self._ready.wait()
        form = {"token": token.decode("ascii"), "token_type_hint": "access_token"}
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        async with self._client.stream("POST", self._section.url, data=form, headers=headers) as response:
            if response.status_code >= 500 or response.status_code == 429:
                raise _UnwellError(f"it answers with status {response.status_code}")
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
