"""Who may use the admin listener (contract, section 7). A plain ASGI class in front of everything else.

Rules
1. `/livez` and `/readyz` are open to whoever can connect, by any Host. `/readyz` tells its details to those only who
   may read everything else (`KNOWN`).
2. Without a token the Host names loopback or the configured address, port ignored, else 421: a page that a browser on
   this machine has open cannot read us through a name of its own (DNS rebinding).
3. What changes something (any method but GET and HEAD) is 403 if its Origin or Sec-Fetch-Site says that it comes from
   another site. One that has neither does not come from a page.
4. With a token everything else needs it, as a bearer token or as the cookie of the login page, else 401; a browser
   that asks for a page is led to the login instead. Wrong tokens are counted (`guesses.py`): 429 while none is read.
5. The cookie is not the token: it holds an expiry and a MAC of it under the token. Comparisons take constant time.

References: RFC 6750 (bearer), RFC 6265bis (SameSite), RFC 9110 section 15.5.20 (421), Fetch Metadata.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.admin.answers import problem_answer
from gateway.admin.guesses import Guesses
from gateway.clock import Clock
from gateway.config.addresses import Listen
from policies.units import SECOND, Micros

__all__ = ["COOKIE", "KNOWN", "LOGIN", "SESSION", "Access", "Keys", "address_of", "held"]

COOKIE = "evenhand_admin"
LOGIN = "/login"
SESSION: Micros = 12 * 3600 * SECOND
#: In the scope of `/readyz`: whether whoever asks may read everything.
KNOWN = "evenhand.known"

_OPEN = frozenset({"/livez", "/readyz"})
_SAFE = frozenset({"GET", "HEAD"})
_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^:@/\[\]]*))(?::[0-9]*)?")


class Keys:
    """The token, and what is derived from it. Without one, everything is open to whoever can connect."""

    __slots__ = ("_clock", "_token")

    def __init__(self, token: str, clock: Clock) -> None:
        self._token = token.encode("utf-8")
        self._clock = clock

    def __repr__(self) -> str:
        return f"Keys(set={self.needed})"

    @property
    def needed(self) -> bool:
        """True if a token is set."""
        return bool(self._token)

    def is_token(self, presented: str) -> bool:
        """Return whether `presented` is the token, in a time that does not tell how much of it was right."""
        return self.needed and hmac.compare_digest(presented.encode("utf-8", "surrogatepass"), self._token)

    def session(self) -> str:
        """Return the value of a fresh cookie."""
        expires = str(self._clock.wall() + SESSION)
        return f"{expires}.{self._mac(expires)}"

    def is_session(self, cookie: str) -> bool:
        """Return whether `cookie` is one of ours that has not expired."""
        expires, _, mac = cookie.partition(".")
        genuine = hmac.compare_digest(mac.encode("utf-8", "surrogatepass"), self._mac(expires).encode("ascii"))
        return self.needed and genuine and int(expires) > self._clock.wall()

    def _mac(self, expires: str) -> str:
        message = b"evenhand admin session " + expires.encode("utf-8", "surrogatepass")
        return hmac.new(self._token, message, hashlib.sha256).hexdigest()


class Access:
    """Lets in who may come in. `address` is `[server] admin`."""

    def __init__(self, app: ASGIApp, keys: Keys, guesses: Guesses, address: Listen) -> None:
        self._app = app
        self._keys = keys
        self._guesses = guesses
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer ourselves or pass the request on."""
        answer = None
        if scope["type"] == "http":
            connection = HTTPConnection(scope)
            if scope["path"] in _OPEN and scope["method"] in _SAFE:
                scope[KNOWN] = scope["path"] == "/readyz" and self._fault(connection, scope["method"]) is None
            else:
                answer = self._fault(connection, scope["method"])
        await (answer or self._app)(scope, receive, send)

    def _fault(self, connection: HTTPConnection, method: str) -> Response | None:
        if not self._keys.needed and not all(map(self._names_us, connection.headers.getlist("host") or [""])):
            detail = "Without admin_token the admin listener answers only to loopback names and its own address."
            return problem_answer(connection, 421, detail=detail)
        if method not in _SAFE and _from_elsewhere(connection):
            return problem_answer(connection, 403, detail="This request comes from a page of another site.")
        if self._keys.needed and connection.scope["path"] != LOGIN:
            return self._unproven(connection, method)
        return None

    def _unproven(self, connection: HTTPConnection, method: str) -> Response | None:
        """Return None if the token or its cookie is there."""
        presented = connection.headers.getlist("authorization")
        if presented:
            address = address_of(connection)
            if wait := self._guesses.wait(address):
                return held(connection, wait)
            scheme, _, token = presented[0].partition(" ")
            if len(presented) == 1 and scheme.lower() == "bearer" and self._guesses.fits(token.strip(" "), address):
                return None
            challenge = {"www-authenticate": 'Bearer error="invalid_token"'}
            return problem_answer(connection, 401, "invalid-credential", headers=challenge)
        if any(map(self._keys.is_session, _cookies(connection))):
            return None
        if method in _SAFE and "text/html" in connection.headers.get("accept", ""):
            return RedirectResponse(LOGIN, 303, {"cache-control": "no-store"})
        detail = "The admin listener needs its token, as a bearer token or by way of /login."
        return problem_answer(connection, 401, "credential-required", detail, {"www-authenticate": "Bearer"})

    def _names_us(self, host: str) -> bool:
        name = _host_of(host)
        if name == "localhost" or (self._address.host and name == _host_of(self._address)):
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


def address_of(connection: HTTPConnection) -> str:
    """Return whom a request is counted to."""
    return connection.client.host if connection.client else "unix"


def held(connection: HTTPConnection, wait: Micros) -> Response:
    """Answer whoever has presented too many wrong tokens."""
    detail = "Too many wrong tokens were presented; for a moment none is looked at."
    return problem_answer(connection, 429, detail=detail, headers={"retry-after": str(-(-wait // SECOND))})


def _host_of(authority: str) -> str:
    """Return the host of `host[:port]` in lower case, without brackets and without the final dot of a full name."""
    found = _AUTHORITY.fullmatch(authority.lower())
    return "" if found is None else (found["v6"] or found["name"]).removesuffix(".")


def _from_elsewhere(connection: HTTPConnection) -> bool:
    """Return whether a browser says that a page of another origin, or nobody's page, sent this."""
    sites = connection.headers.getlist("sec-fetch-site")
    if any(site != "same-origin" for site in sites):
        return True
    return any(not _same_origin(origin, connection) for origin in connection.headers.getlist("origin"))


def _same_origin(origin: str, connection: HTTPConnection) -> bool:
    """Compare authorities only: a proxy in front may have ended TLS, so the scheme we see need not be the browser's."""
    hosts = connection.headers.getlist("host")
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and [parts.netloc.lower()] == [host.lower() for host in hosts]


def _cookies(connection: HTTPConnection) -> list[str]:
    """Return the values of our cookie; a browser may send one per path."""
    found = []
    for field in connection.headers.getlist("cookie"):
        for pair in field.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == COOKIE:
                found.append(value)
    return found
