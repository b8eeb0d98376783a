"""A gateway without a server: everything real between a request head and an upstream call, which is scripted.

`House` composes what `gateway/app.py` composes, except that the upstream only notes what it is asked and says what the
test wants, and that settled decisions are kept in a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.clock import Clock
from gateway.config import Settings, load
from gateway.identity.resolver import build_resolver
from gateway.pipeline import Pipeline
from gateway.ports import Decision, Headers
from gateway.proxy.answer import Answer
from gateway.proxy.answer import fields as taken_apart
from gateway.proxy.call import Caller, Receiver, Sent
from gateway.proxy.exchange import Exchange
from gateway.proxy.failure import Failure, FailureKind
from gateway.proxy.front import Front
from gateway.proxy.headers import Lines, one_by_one
from gateway.proxy.parse import Head
from gateway.proxy.sink import Sink
from gateway.stores import open_store
from tests.wire.tokens import pat

__all__ = ["A", "B", "Books", "House", "ScriptedCall", "ScriptedUpstream", "Told", "head", "write"]

A, B = pat("a"), pat("b")

_TENANTS = f"""
[[tenants]]
id = "acme"
[[tenants.credentials]]
id = "ci"
pat = "{A.digest}"
quota = "{{quota}}"

[[tenants]]
id = "bolt"
[[tenants.credentials]]
id = "b é"
pat = "{B.digest}"
quota = "10/s burst 20"
"""


def write(
    tmp_path: Path, *, quota: str = "10/s burst 20", url: str = "http://127.0.0.1:9/", more: str = "", **keys: str
) -> Path:
    """Write a gateway.toml with two tenants; `more` is appended, `keys` are whole sections by name."""
    sections = {"upstream": f'url = "{url}"', "backstop": 'quota = "100000/s"', **keys}
    text = "\n".join(f"[{name}]\n{body}" for name, body in sections.items())
    path = tmp_path / "gateway.toml"
    path.write_text(text + _TENANTS.format(quota=quota) + more, encoding="utf-8")
    return path


def head(
    target: str = "/",
    method: str = "GET",
    *,
    token: str | None = A.token,
    peer: str = "192.0.2.7",
    **fields: str | None,
) -> Head:
    """Return a request head; `fields` are named with `_` for `-`, None leaves one out."""
    headers: dict[str, str | None] = {"host": "api.example.com"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    headers |= {name.replace("_", "-"): value for name, value in fields.items()}
    listed = [(name.encode(), value.encode("latin-1")) for name, value in headers.items() if value is not None]
    return Head(method.encode(), target.encode("latin-1"), listed, peer)


@dataclass
class Books:
    """A recorder that keeps what it is given."""

    settled: list[Decision] = field(default_factory=list)

    def record(self, decision: Decision, now: int) -> None:
        self.settled.append(decision)

    @property
    def ends(self) -> list[tuple[str, int, str]]:
        """Outcome, status and limit of each request."""
        return [(str(one.outcome), one.status, one.limit) for one in self.settled]


@dataclass
class ScriptedCall(Sent):
    """One call as it was asked for, and what became of it."""

    method: bytes
    target: bytes
    headers: Headers
    length: int | None
    receiver: Receiver
    options: dict[str, Any]
    body: bytearray = field(default_factory=bytearray)
    did: list[str] = field(default_factory=list)

    def write(self, chunk: bytes) -> None:
        self.body += chunk

    def finish(self) -> None:
        self.did.append("finish")

    def pause(self) -> None:
        self.did.append("pause")

    def resume(self) -> None:
        self.did.append("resume")

    def cancel(self) -> None:
        self.did.append("cancel")

    def field(self, name: str) -> bytes | None:
        """Return the only value of a field that was sent, None without one."""
        values = [value for key, value in self.headers if key.decode() == name]
        assert len(values) <= 1
        return values[0] if values else None

    def respond(self, status: int = 200, headers: Headers | None = None, *chunks: bytes) -> None:
        """Answer in full."""
        self.receiver.on_response(status, headers or [])
        for chunk in chunks:
            self.receiver.on_data(chunk)
        self.receiver.on_done()

    def fail(self, kind: FailureKind) -> None:
        """End in a failure."""
        self.receiver.on_failed(Failure(kind, "It did not work."))


class ScriptedUpstream(Caller):
    """Notes calls; writes their heads at once unless `connects` is false."""

    def __init__(self) -> None:
        self.calls: list[ScriptedCall] = []
        self.connects = True

    def call(
        self,
        method: bytes,
        target: bytes,
        fields: bytes,
        length: int | None,
        receiver: Receiver,
        **options: Any,
    ) -> Any:
        made = ScriptedCall(method, target, taken_apart(fields), length, receiver, options)
        self.calls.append(made)
        if self.connects:
            receiver.on_sent()
        return made

    async def place(self) -> None:
        """Return nowhere."""


@dataclass
class Told(Sink):
    """A sink that keeps what it is told, as a caller would see it."""

    status: int = 0
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    end_: str = ""
    close: bool = False
    interims: list[tuple[int, Headers]] = field(default_factory=list)
    wanted: list[bool] = field(default_factory=list)

    def answer(self, answer: Answer) -> None:
        assert not self.status
        self.status, self.headers, self.body, self.close = answer.status, answer.headers, answer.body, answer.close
        self.end_ = "end"

    def interim(self, status: int, headers: Headers) -> None:
        self.interims.append((status, headers))

    def start(self, status: int, lines: Lines, length: int, body: bytes) -> None:
        assert not self.status
        self.status, self.headers, self.body = status, one_by_one(lines), body
        announced = self.field("content-length")
        assert length == (-1 if announced is None else int(announced))

    def data(self, chunk: bytes) -> None:
        assert self.status
        assert not self.end_
        self.body += chunk

    def end(self) -> None:
        assert self.status
        assert not self.end_
        self.end_ = "end"

    def abort(self) -> None:
        assert self.status
        assert not self.end_
        self.end_ = "abort"

    def want_body(self, wanted: bool) -> None:
        self.wanted.append(wanted)

    def field(self, name: str) -> str | None:
        """Return the only value of a field, None without one."""
        values = [value.decode("latin-1") for key, value in self.headers if key.decode() == name]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None


class House:
    """What one gateway.toml composes to. `upstream` takes the calls of every way, `books` the settled decisions."""

    def __init__(self, path: Path, clock: Clock | None = None, random: Callable[[], float] = lambda: 0.0) -> None:
        loaded = load(path, {})
        self.settings: Settings = loaded.settings
        self.clock = clock or Clock()
        self.books = Books()
        self.upstream = ScriptedUpstream()
        self.named = {name: ScriptedUpstream() for name in loaded.settings.upstreams}
        self.forwarders: list[str] = []
        self.store = open_store(loaded.settings, loaded.policies, self.clock.now)
        resolver = build_resolver(loaded.settings, self.clock)
        self.pipeline = Pipeline(loaded.policies, resolver, self.store, self.books, self.clock, random)
        self.policies = loaded.policies
        upstreams: dict[str | None, Caller] = {None: self.upstream}
        upstreams.update(self.named)
        self.behind(upstreams)

    def behind(self, upstreams: Mapping[str | None, Caller]) -> None:
        """Send requests to `upstreams` from now on."""
        self.front = Front(
            self.settings, self.policies, self.pipeline, upstreams, self.clock, forwarder=self.forwarders.append
        )

    def begin(self, of: Head) -> tuple[Exchange, Told]:
        """Begin an exchange and return it with its sink."""
        told = Told()
        exchange = Exchange(self.front, of, told)
        exchange.begin()
        return exchange, told

    def ask(self, of: Head) -> Told:
        """Begin an exchange that ends at once."""
        exchange, told = self.begin(of)
        assert exchange.over
        return told

    @property
    def call(self) -> ScriptedCall:
        """The last call of the default upstream."""
        return self.upstream.calls[-1]

    def relayed(self, of: Head, status: int = 200, headers: Headers | None = None, *chunks: bytes) -> Told:
        """Run an exchange whose upstream answers in full."""
        _, told = self.begin(of)
        self.call.respond(status, headers, *chunks)
        return told
