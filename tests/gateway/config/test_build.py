"""Settings become the documents of the core: what depends on something else is settled here."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from policies.policy import Characteristic, ClassRule, Exemption, Match, Mode, Policy, PolicySet, Quota, Route
from policies.request import Class, Kind
from policies.units import Rate
from tests.gateway.config.documents import VALID_PAT, failures, loaded

__all__: list[str] = []


def policies(folder: Path, text: str) -> PolicySet:
    """Return what a document decides by."""
    return loaded(folder, text).policies


def quota(rate: float, burst: float) -> Quota:
    """Return an allowance of `rate` a second."""
    return Quota(Rate(Fraction(rate)), burst)


def test_two_keys_are_enough(tmp_path: Path) -> None:
    """All else has the default that is documented."""
    made = policies(tmp_path, '[backstop]\nquota = "2000/s"\n')
    assert made.classes == (ClassRule(0), ClassRule(1, 0.25, 0.05, 1.0))
    assert (made.default_class, made.mode, made.backstop_status) == (Class.INTERACTIVE, Mode.ENFORCE, 429)
    assert made.backstop == quota(2000, 2000)
    assert (made.anonymous, made.rejected, made.preflight) == (quota(5, 20), quota(1, 60), quota(10, 50))
    assert (made.sizing.initial, made.sizing.floor, made.sizing.window_us) == (
        quota(20, 20),
        quota(5, 5),
        30 * 86_400_000_000,
    )
    assert (made.unlisted_weight, made.max_unlisted_tenants, made.anonymous_weight) == (1.0, 10_000, 1.0)
    assert (made.tenants, made.routes, made.policies, made.exemptions) == ({}, (), (), ())


ENTRIES = f"""
[server]
mode = "shadow"
[classes]
default = "batch"
[upstreams.reports]
url = "http://127.0.0.1:9100"
[[tenants]]
id = "acme"
weight = 3
quota = "200/s"
concurrency = 100
[[tenants.credentials]]
id = "ci"
pat = "{VALID_PAT}"
quota = "80/s burst 160"
classes = ["batch"]
concurrency = 20
[[tenants.credentials]]
id = "worker-7"
[[tenants]]
id = "beta"
quota = "sized"
[[routes]]
name = "exports"
path = "/v1/exports/**"
methods = ["GET", "POST"]
class = "batch"
cost = 50
upstream = "reports"
strip_prefix = "/v1"
posture = "closed"
[[routes]]
name = "login"
path = "/login"
unlimited = "tests"
[[policies]]
name = "login-per-address"
match = {{ route = "login", identity = "anonymous", class = "interactive", method = "POST" }}
key = ["address", "route"]
quota = "10/min"
mode = "shadow"
percent = 25
[[exemptions]]
name = "launch"
match = {{ tenant = "acme", credential = "ci", identity = "user" }}
multiplier = 4
policies = ["login-per-address"]
reason = "launch week"
owner = "sre@example.com"
expires = 2035-01-01T00:00:00Z
[[exemptions]]
name = "move"
match = {{ tenant = "beta" }}
quota = "60/min"
reason = "moving"
owner = "sre@example.com"
expires = 2035-01-01T00:00:00Z
"""


def test_entries_become_documents(tmp_path: Path) -> None:
    """Field by field; default bursts are at least the dearest route's cost, 50."""
    made = policies(tmp_path, ENTRIES)
    assert (made.mode, made.default_class, made.unlisted_weight) == (Mode.SHADOW, Class.BATCH, 4.0)
    acme, beta = made.tenants["acme"], made.tenants["beta"]
    assert (acme.weight, acme.quota, acme.sized, acme.concurrency) == (3.0, quota(200, 200), False, 100)
    assert (beta.quota, beta.sized) == (None, True)
    ci, worker = acme.credentials["ci"], acme.credentials["worker-7"]
    assert (ci.quota, ci.highest, ci.concurrency) == (quota(80, 160), Class.BATCH, 20)
    assert (worker.quota, worker.highest, worker.concurrency) == (None, Class.INTERACTIVE, None)
    assert made.routes == (
        Route("exports", "/v1/exports/**", frozenset({"GET", "POST"}), Class.BATCH, 50.0, "closed"),
        Route("login", "/login", unlimited="tests"),
    )
    match = Match(Kind.ANONYMOUS, route="login", cls=Class.INTERACTIVE, method="POST")
    key = (Characteristic.ADDRESS, Characteristic.ROUTE)
    sixth = Quota(Rate(Fraction(1, 6)), 50.0)
    assert made.policies == (Policy("login-per-address", match, key, sixth, Mode.SHADOW, 25.0),)
    until = 2_051_222_400_000_000
    who, why = "sre@example.com", "launch week"
    of_acme, of_beta = Match(Kind.USER, "acme", "ci"), Match(tenant="beta")
    assert made.exemptions == (
        Exemption("launch", of_acme, why, who, until, multiplier=4.0, policies=("login-per-address",)),
        Exemption("move", of_beta, "moving", who, until, quota=quota(1, 50)),
    )


def test_routes_stand_in_the_order_of_the_settings(tmp_path: Path) -> None:
    """An index into one is an index into the other; what only forwards stays in the settings."""
    made = loaded(tmp_path, ENTRIES)
    assert [route.name for route in made.settings.routes] == [route.name for route in made.policies.routes]
    exports = made.settings.routes[0]
    assert (exports.upstream, exports.strip_prefix, exports.first_byte_timeout) == ("reports", "/v1", None)


def test_a_weight_of_the_unlisted_can_be_given(tmp_path: Path) -> None:
    """Otherwise it is the sum of the listed, at least 1."""
    assert policies(tmp_path, "[auth]\nunlisted_weight = 0.5\n").unlisted_weight == 0.5
    assert policies(tmp_path, '[[tenants]]\nid = "a"\nweight = 0.1\n').unlisted_weight == 1.0


def test_zero_refuses_everything(tmp_path: Path) -> None:
    """It is never another word for no limit (case 37)."""
    made = policies(tmp_path, '[backstop]\nquota = "0/s"\n[auth]\nanonymous_quota = "0/min"\n')
    assert made.backstop.rate.per_us == made.anonymous.rate.per_us == 0.0


def test_a_default_grows_with_the_dearest_route(tmp_path: Path) -> None:
    """Bursts that nobody wrote never make a route unreachable."""
    route = '[[routes]]\nname = "r"\npath = "/r"\ncost = 500\n'
    made = policies(tmp_path, route + '[auth]\nrejected_quota = "1/s burst 5000"\n')
    assert made.backstop.burst == made.anonymous.burst == made.preflight.burst == made.sizing.initial.burst == 500.0
    assert made.rejected.burst == 5000.0


DEAR = '[[routes]]\nname = "dear"\npath = "/dear"\ncost = 50\nmethods = ["POST"]\n'
BATCH = '[[routes]]\nname = "b"\npath = "/b"\ncost = 80\nclass = "batch"\n'
POLICY = '[[policies]]\nname = "p"\nkey = ["tenant"]\nquota = "1/s burst 10"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    (
        (DEAR + '[backstop]\nquota = "9/s burst 49.5"', 'backstop.quota: 50, the cost of route "dear", found 49.5'),
        (DEAR + '[sizing]\ninitial = "9/s burst 9"', 'sizing.initial: 50, the cost of route "dear", found 9'),
        (
            DEAR + '[auth]\nanonymous_quota = "9/s burst 9"',
            'auth.anonymous_quota: 50, the cost of route "dear", found 9',
        ),
        (DEAR + '[auth]\nrejected_quota = "9/s burst 9"', 'auth.rejected_quota: 50, the cost of route "dear", found 9'),
        (DEAR + '[auth]\npreflight_quota = "9/s burst 9"', ""),
        (BATCH + '[auth]\npreflight_quota = "9/s burst 9"', 'auth.preflight_quota: 80, the cost of route "b", found 9'),
        (
            DEAR + '[[tenants]]\nid = "a"\nquota = "9/s burst 9"',
            'tenants[0].quota: 50, the cost of route "dear", found 9',
        ),
        (
            DEAR + '[[tenants]]\nid = "a"\n[[tenants.credentials]]\nid = "c"\nquota = "9/s burst 9"',
            'tenants[0].credentials[0].quota: 50, the cost of route "dear", found 9',
        ),
        (DEAR + POLICY, 'policies[0].quota: 50, the cost of route "dear", found 10'),
        (DEAR + POLICY + 'match = { method = "GET" }', ""),
        (DEAR + POLICY + 'match = { method = "POST" }', 'policies[0].quota: 50, the cost of route "dear", found 10'),
        (DEAR + BATCH + POLICY + 'match = { route = "b" }', 'policies[0].quota: 80, the cost of route "b", found 10'),
        (BATCH + POLICY + 'match = { class = "interactive" }', ""),
        (BATCH + POLICY + 'match = { class = "batch" }', 'policies[0].quota: 80, the cost of route "b", found 10'),
        (
            '[classes]\ndefault = "batch"\n' + DEAR + POLICY + 'match = { class = "interactive" }',
            "",
        ),
        (POLICY.replace("10", "0.5"), "policies[0].quota: 1, the cost of a request that no route matches, found 0.5"),
        (POLICY.replace("10", "0.5") + 'match = { route = "r" }\n[[routes]]\nname="r"\npath="/"\ncost=0.5', ""),
        (POLICY.replace("1/s", "0/s") + DEAR, ""),
    ),
)
def test_a_burst_below_a_cost_it_can_meet_is_refused(text: str, told: str, tmp_path: Path) -> None:
    """Written on purpose it is a mistake; what a quota cannot meet does not count."""
    path, _, rest = told.partition(": ")
    assert failures(tmp_path, text) == ([f"{path}: expected a burst of at least {rest}"] if told else [])


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    """Nor can anything inside them: what was checked is what is served."""
    made = loaded(tmp_path, ENTRIES)
    settings: Any = made.settings
    with pytest.raises(ValidationError):
        settings.server.mode = "enforce"
    with pytest.raises(ValidationError):
        settings.tenants[0].credentials[0].id = "x"
    with pytest.raises(TypeError):
        settings.upstreams["x"] = settings.upstream
    with pytest.raises(TypeError):
        settings.tenants[0] = settings.tenants[1]
    tenants: Any = made.policies.tenants
    with pytest.raises(TypeError):
        tenants["x"] = tenants["acme"]
    with pytest.raises(TypeError):
        tenants["acme"].credentials["x"] = None


def test_every_array_is_a_tuple(tmp_path: Path) -> None:
    """A list inside a frozen model could still be changed."""
    assert "[" not in repr(loaded(tmp_path, ENTRIES).settings).replace("<IPv", "")
