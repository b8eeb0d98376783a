"""The canary finds what broke in public: an exemption that exempts nobody, or everybody; a limit that limits nobody."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.config import Loaded, load
from gateway.proxy import canary
from gateway.proxy.answer import lines
from gateway.proxy.canary import CHECKS, Canary
from gateway.proxy.headers import RequestFields
from policies import admit
from policies.policy import Exemption, Match, Mode, PolicySet
from policies.sizing import effective_key
from policies.units import SECOND
from tests.gateway.proxy.house import write

__all__: list[str] = []

FINE = dict.fromkeys(CHECKS, True)
FAR = 4_000_000_000 * SECOND


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    """Return a configuration with named policies, routes and an exemption."""
    more = """
[[routes]]
name = "exports"
path = "/**"
cost = 5
class = "batch"
[[policies]]
name = "nothing"
key = ["tenant"]
quota = "0/s"
[[exemptions]]
name = "launch"
match = { tenant = "acme", route = "exports", method = "POST", class = "batch" }
multiplier = 3
reason = "launch week"
owner = "sre@example.com"
expires = 2090-01-01T00:00:00Z
"""
    return load(write(tmp_path, more=more, server='trusted_proxies = ["192.0.2.0/24"]'), {})


def found(loaded: Loaded, policies: PolicySet | None = None) -> dict[str, bool]:
    """Return what a fresh canary finds."""
    one = Canary(loaded.settings)
    assert one.found == {}
    one.run(policies or loaded.policies)
    return dict(one.found)


@pytest.mark.parametrize("auth", ["", "anonymous = false", 'unknown = "anonymous"'])
@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_a_house_in_order_is_fine(tmp_path: Path, auth: str, mode: str) -> None:
    """However it is configured: by trusted proxies, without anonymous callers, in shadow, run after run."""
    server = f'mode = "{mode}"\ntrusted_proxies = ["10.0.0.0/8", "unix"]'
    one = load(write(tmp_path, auth=auth, server=server), {})
    bird = Canary(one.settings)
    for _ in range(3):
        bird.run(one.policies)
        assert bird.found == FINE


def test_policies_routes_and_trust_do_not_confuse_it(loaded: Loaded) -> None:
    """A policy that refuses everything and a proxy where the canary would be are no fault."""
    assert found(loaded) == FINE


def test_where_everybody_is_trusted_there_is_no_forger(tmp_path: Path) -> None:
    """The configuration is warned of; there is nobody whose word could be forged."""
    everybody = load(write(tmp_path, server='trusted_proxies = ["0.0.0.0/0", "::/0"]'), {})
    assert found(everybody) == FINE


@pytest.mark.parametrize(
    "broken",
    [
        {"match": Match(tenant="nobody-we-know", identity=None), "multiplier": None, "quota": None},
        {"multiplier": 1.0},
        {"match": Match(tenant="acme", credential="ci"), "multiplier": 1.0},
    ],
)
def test_an_exemption_that_raises_nothing_is_found(loaded: Loaded, broken: dict[str, Any]) -> None:
    """Whoever it is for has no more by it."""
    (launch,) = loaded.policies.exemptions
    policies = replace(loaded.policies, exemptions=(launch, replace(launch, name="broken", **broken)))
    raised = found(loaded, policies)
    assert raised == FINE | {"exempt": broken["multiplier"] is not None and "match" not in broken}


@pytest.mark.parametrize("match", [Match(credential="ci"), Match(tenant="acme"), Match(tenant="new"), Match()])
def test_every_kind_of_exemption_is_tried(loaded: Loaded, match: Match) -> None:
    """By credential, by tenant, listed or not; one that has ended is reported elsewhere."""
    one = Exemption("one", match, "r", "o", FAR, multiplier=2.0)
    ended = replace(one, name="ended", expires_us=1, multiplier=1.0)
    assert found(loaded, replace(loaded.policies, exemptions=(one, ended))) == FINE


def test_an_exemption_machinery_that_is_off_is_found(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the configuration did not change."""
    monkeypatch.setattr(admit, "in_force", lambda *_: ())
    assert found(loaded) == FINE | {"exempt": False}


def test_a_limit_that_limits_nobody_is_found(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when every quota were in shadow."""
    real = effective_key
    monkeypatch.setattr(admit, "effective_key", lambda *of: replace(real(*of), mode=Mode.SHADOW))
    assert found(loaded) == FINE | {"limited": False}


@pytest.mark.interpreted
def test_belief_in_a_stranger_is_found(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its address is believed, or its word about who it is goes on."""
    bird = Canary(loaded.settings)
    monkeypatch.setattr(bird, "_addresses", Believing())
    bird.run(loaded.policies)
    assert bird.found == FINE | {"forged": False}
    bird = Canary(loaded.settings)
    monkeypatch.setattr(bird, "_fields", Passing(loaded))
    bird.run(loaded.policies)
    assert bird.found == FINE | {"forged": False}


class Believing:
    """Addresses that believe anybody."""

    def trusts(self, peer: str) -> bool:
        return False

    def caller(self, peer: str, fields: dict[bytes, bytes]) -> str:
        return fields.get(b"x-forwarded-for", peer.encode()).decode()


class Passing:
    """Fields that keep what the caller sent."""

    def __init__(self, loaded: Loaded) -> None:
        self._fields = RequestFields(loaded.settings.upstream, b"x")

    def write(self, head: Any, parsed: Any, decision: Any) -> bytes:
        return lines(head.headers) + self._fields.write(head, parsed, decision)


def test_a_check_that_raises_has_failed_and_is_told_once(
    loaded: Loaded, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on, and coming back is seen at once."""
    bird = Canary(loaded.settings)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(canary, "Planner", None)
        bird.run(loaded.policies)
        bird.run(loaded.policies)
    assert bird.found == FINE | {"exempt": False}
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told == ["the canary exempt does not find what it expects"]
    bird.run(loaded.policies)
    assert bird.found == FINE
