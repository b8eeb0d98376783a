"""The admin API as `evenhand top`, `pause` and `exempt` use it.

Rules
1. Where it is and what opens it come from the same gateway.toml as the gateway's; `--admin` and $EVENHAND_ADMIN_TOKEN
   stand before that, for a gateway on another machine.
2. Whatever goes wrong is a GatewayError of one sentence. The token is in the Authorization field and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import orjson

from gateway.config import load
from gateway.errors import GatewayError

__all__ = ["TOKEN_VARIABLE", "Admin", "reached"]

TOKEN_VARIABLE = "EVENHAND_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
_SECONDS = 10.0


def reached(config: Path, address: str) -> Admin:
    """Return the admin API of the gateway that `config` is of, or of `address`. Raises ConfigError, GatewayError."""
    token = os.environ.get(TOKEN_VARIABLE, "")
    if address:
        return Admin(address if "://" in address else f"http://{address}", token)
    settings = load(config, os.environ).settings
    token = token or settings.server.admin_token.get_secret_value()
    listen = settings.server.admin
    if listen.unix:
        return Admin("http://localhost", token, listen.unix)
    host = listen.host
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - what is bound, not bound here
    return Admin(f"http://{f'[{host}]' if ':' in host else host}:{listen.port}", token)


class Admin:
    """One admin API; a context manager."""

    def __init__(self, url: str, token: str, unix: str | None = None) -> None:
        self.url = url
        headers = {"authorization": f"Bearer {token}"} if token else {}
        transport = httpx.HTTPTransport(uds=unix) if unix else None
        try:
            self._client = httpx.Client(
                base_url=url, headers=headers, timeout=_SECONDS, transport=transport, trust_env=False
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise GatewayError(f"{url} is no address of an admin listener ({error})") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        """Return the JSON at `path`."""
        return self._ask("GET", path)

    def post(self, path: str, members: Mapping[str, object]) -> Any:
        """Send `members` and return the answer."""
        return self._ask("POST", path, members)

    def delete(self, path: str) -> None:
        """End what is at `path`."""
        self._ask("DELETE", path)

    def stream(self, path: str) -> Generator[dict[str, Any], None, None]:
        """Yield the data of server-sent events until the other side ends."""
        try:
            with self._client.stream("GET", path, headers={"accept": "text/event-stream"}) as answer:
                if answer.is_error:
                    answer.read()
                    raise GatewayError(_fault(self.url, answer))
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        yield orjson.loads(line[6:])
        except httpx.HTTPError as error:
            raise GatewayError(f"{self.url} does not answer ({_words(error)})") from error

    def _ask(self, method: str, path: str, members: Mapping[str, object] | None = None) -> Any:
        content = None if members is None else orjson.dumps(members)
        try:
            answer = self._client.request(method, path, content=content, headers={"accept": "application/json"})
        except httpx.HTTPError as error:
            raise GatewayError(f"{self.url} does not answer ({_words(error)})") from error
        if answer.is_error:
            raise GatewayError(_fault(self.url, answer))
        return None if answer.status_code == 204 else orjson.loads(answer.content)


def _words(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__


def _fault(url: str, answer: httpx.Response) -> str:
    """Return what a problem says, in one sentence."""
    try:
        said = orjson.loads(answer.content)
        detail = said.get("detail") or said.get("title")
    except (orjson.JSONDecodeError, AttributeError):
        detail = None
    if answer.status_code == 401:
        return f"{url} needs its token: set ${TOKEN_VARIABLE}, or use the gateway's own gateway.toml"
    return f"{url} answered {answer.status_code}: {detail or 'no reason given'}"
