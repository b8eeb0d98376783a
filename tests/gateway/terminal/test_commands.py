"""`top`, `pause` and `exempt` against a running gateway, as an operator types them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from gateway import cli
from tests.wire.caller import Response, request
from tests.wire.gateway import Gateway, running, tenant, token
from tests.wire.load import at_once
from tests.wire.origin import Origin, serving
from tests.wire.script import Answer
from tests.wire.waiting import SLACK, until

__all__: list[str] = []

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def up() -> Iterator[Origin]:
    """Run an upstream."""
    with serving() as origin:
        origin.on("/", Answer())
        yield origin


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, up: Origin) -> Iterator[Gateway]:
    """Run a gateway whose admin listener needs a token."""
    config = {
        "server": {"admin_token": TOKEN},
        "tenants": [tenant("acme", quota="1000/s"), tenant("bulk", quota="1000/s", classes=["batch"])],
        "store": {"path": "acts.sqlite3"},
    }
    with running(tmp_path_factory.mktemp("terminal"), up, config) as started:
        yield started


Typed = Callable[..., tuple[int, str]]


@pytest.fixture
def type_in(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Return what runs a command line, and gives its exit code and what it said."""

    def run(*words: str) -> tuple[int, str]:
        code = cli.run([*words, "-c", str(gateway.file)])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


async def sent(gateway: Gateway, name: str) -> Response:
    """Send one request as `name`."""
    tally = await at_once(gateway.address, [request(token=token(name))])
    return tally.answers[0][1]


async def reached(gateway: Gateway, name: str, holds: Callable[[Response], bool]) -> Response:
    """Ask until an act has reached who decides, of which `holds` tells; return the last answer."""
    deadline = time.monotonic() + SLACK
    while not holds(answer := await sent(gateway, name)) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return answer


def quota_of(answer: Response) -> str | None:
    """Return what an answer says of the quota."""
    return answer.header("ratelimit-policy")


async def test_top_shows_who_was_served(gateway: Gateway, type_in: Typed) -> None:
    """Shown once where there is no terminal, and never without the worst."""
    assert (await sent(gateway, "acme")).status == 200
    code, said = type_in("top")
    assert code == 0
    assert "aggregate 100.0 %" in said
    assert "worst - (nobody)" in said
    assert "o acme" in said
    assert type_in("top", "--window", "2y")[0] == 1


async def test_a_pause_holds_from_the_next_request_on(gateway: Gateway, type_in: Typed) -> None:
    """Batch is refused with the true wait while interactive goes on, until the pause is ended; both are in the log."""
    code, said = type_in("pause", "--class", "batch", "--for", "10m", "--reason", "backfill", "--owner", "sre")
    assert (code, "class batch" in said) == (0, True)
    id = said.split()[0]
    refused = await reached(gateway, "bulk", lambda answer: answer.status == 429)
    assert (refused.status, refused.header("evenhand-refused")) == (429, "paused")
    assert 590 <= refused.json()["retry_after_ms"] / 1000 <= 600
    assert refused.json()["type"] == "https://evenhand.dev/problems/paused"
    assert int(refused.header("retry-after") or 0) >= 590
    assert (await sent(gateway, "acme")).status == 200
    await until(lambda: "! paused: class batch until" in type_in("top")[1], "the pause is shown")
    assert id in type_in("pause", "--list")[1]
    assert type_in("pause", "--end", id) == (0, f"{id}: ended\n")
    assert (await reached(gateway, "bulk", lambda answer: answer.status == 200)).status == 200
    assert type_in("pause", "--list") == (0, "none is in force\n")
    assert type_in("pause", "--end", id)[0] == 1

    def acts() -> list[str]:
        return [line["act"] for line in gateway.log_lines() if line["event"] == "act" and line["id"] == id]

    await until(lambda: acts() == ["made", "ended"], "both acts are in the log")


async def test_a_tenants_batch_alone(gateway: Gateway, type_in: Typed) -> None:
    """A pause can be of one tenant's batch."""
    said = type_in("pause", "--class", "batch", "--tenant", "acme")[1]
    await asyncio.sleep(0.1)
    assert (await sent(gateway, "bulk")).status == 200
    assert (await sent(gateway, "acme")).status == 200
    assert type_in("pause", "--end", said.split()[0])[0] == 0


async def test_a_raised_quota_shows_at_once(gateway: Gateway, type_in: Typed) -> None:
    """An exemption raises what the next answer says of the quota."""
    words = ("exempt", "--tenant", "acme", "--multiplier", "4", "--for", "1h", "--reason", "launch", "--owner", "sre")
    code, said = type_in(*words)
    assert (code, "tenant acme x 4" in said) == (0, True)
    raised = '"key";q=4000;w=1'
    assert quota_of(await reached(gateway, "acme", lambda answer: quota_of(answer) == raised)) == raised
    assert type_in("exempt", "--end", said.split()[0])[0] == 0
    own = '"key";q=1000;w=1'
    assert quota_of(await reached(gateway, "acme", lambda answer: quota_of(answer) == own)) == own
    assert "none is in force" in type_in("exempt", "--list")[1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("pause",), 2, "say whom or what"),
        (("exempt", "--tenant", "acme"), 2, "--multiplier or --quota"),
        (("posture",), 2, "open, closed, safe-capacity or deny:N"),
        (("posture", "open"), 1, "answered 409: [store] url is memory:"),
        (("pause", "--class", "batch", "--for", "soon"), 1, "answered 400: for: expected a duration"),
        (("top", "--admin", "127.0.0.1:1"), 1, "does not answer"),
        (("pause", "--list", "--admin", "127.0.0.1:1"), 1, "does not answer"),
        (("top", "--admin", "http://h:port"), 1, "is no address"),
    ],
)
def test_what_is_wrong_is_one_sentence(type_in: Typed, words: tuple[str, ...], code: int, said: str) -> None:
    """A fault is one sentence and an exit code."""
    found, told = type_in(*words)
    assert found == code
    assert said in told


def test_the_token_is_needed(gateway: Gateway, type_in: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the file's token the variable's is used, and a wrong one says what to do."""
    assert type_in("top", "--admin", gateway.admin)[0] == 1
    monkeypatch.setenv("EVENHAND_ADMIN_TOKEN", "another-token-than-the-file")
    assert "EVENHAND_ADMIN_TOKEN" in type_in("pause", "--list")[1]
    monkeypatch.setenv("EVENHAND_ADMIN_TOKEN", TOKEN)
    assert type_in("top", "--admin", gateway.admin)[0] == 0
