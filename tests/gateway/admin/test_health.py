"""Liveness, readiness, and what they warn of."""

from __future__ import annotations

from pathlib import Path

from gateway.admin.health import STALLED
from gateway.telemetry.recorder import forwarder_warning
from policies.units import SECOND
from tests.gateway.admin.served import Served
from tests.gateway.telemetry.made import Event, configured

POLICIES = """
[store]
posture = "{posture}"
[[policies]]
name = "off-one"
match = {{ route = "login" }}
key = ["address"]
quota = "10/min"
mode = "off"
[[policies]]
name = "shadow-one"
match = {{ route = "login" }}
key = ["address"]
quota = "10/min"
mode = "shadow"
[[policies]]
name = "part"
match = {{ route = "login" }}
key = ["address"]
quota = "10/min"
percent = 25
[[policies]]
name = "whole"
match = {{ route = "login" }}
key = ["address"]
quota = "10/min"
[[routes]]
name = "login"
path = "/login"
[[tenants]]
id = "acme"
[[tenants.credentials]]
id = "sized"
[[tenants.credentials]]
id = "fixed"
quota = "80/s"
"""


def policies(posture: str = "safe-capacity") -> str:
    """Return TOML with a policy in every mode."""
    return POLICIES.format(posture=posture)


def test_what_is_off_is_told_once(tmp_path: Path) -> None:
    """By whoever looks now, and not by the file's reader too."""
    served = Served(tmp_path, POLICIES.format(posture="open"))
    served.health.reload(served.loaded.settings, served.policies, [str(one) for one in served.loaded.warnings])
    assert sum("off-one" in warning for warning in served.health.warnings()) == 1


async def test_ready_lists_what_is_off_or_in_shadow(tmp_path: Path) -> None:
    """Nobody takes a limit for granted that does not hold; what is off is a warning too (case 123)."""
    answer = await Served(tmp_path, policies()).ask("/readyz")
    assert answer.status_code == 200
    members = answer.json()
    assert members["status"] == "ok"
    assert members["off"] == ["off-one"]
    assert members["shadow"] == [
        "policy shadow-one",
        "policy part, for 75 % of its keys",
        "the sized quotas of 1 credentials, until they are learnt",
    ]
    assert members["warnings"] == ["tenants[0].weight: not ready", "policy off-one is off: it limits nobody"]


async def test_a_gateway_in_shadow_says_so(tmp_path: Path) -> None:
    """Deciding without refusing is a state that is seen from outside."""
    served = Served(tmp_path)
    loaded = configured(tmp_path, '[server]\nmode = "shadow"\n')
    served.health.reload(loaded.settings, loaded.policies)
    assert (await served.ask("/readyz")).json()["shadow"] == [
        "server: every limit is decided and counted, none is enforced"
    ]


async def test_not_ready_before_the_start_and_while_draining(tmp_path: Path) -> None:
    """503 sends new requests elsewhere; the process lives on."""
    served = Served(tmp_path)
    served.health.started = False
    answer = await served.ask("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "failing")
    served.health.started, served.health.draining = True, True
    answer = await served.ask("/readyz")
    assert answer.status_code == 503
    assert [check["name"] for check in answer.json()["checks"] if not check["ok"]] == ["draining"]
    assert (await served.ask("/livez")).status_code == 200


async def test_a_loop_that_does_not_turn_is_dead(tmp_path: Path) -> None:
    """Half a minute without a beat; a loop that turns again lives again."""
    served = Served(tmp_path)
    served.health.beat(served.clock.at)
    served.clock.at += STALLED - SECOND
    assert (await served.ask("/livez")).status_code == 200
    served.clock.at += SECOND
    assert (await served.ask("/livez")).json()["checks"] == [
        {"name": "loop", "ok": False, "detail": "the data plane has not turned for 30 s"}
    ]
    assert (await served.ask("/livez")).status_code == 503
    assert (await served.ask("/readyz")).status_code == 503
    served.health.beat(served.clock.at)
    assert (await served.ask("/livez")).status_code == 200


async def test_a_lost_store_is_a_warning_while_its_posture_admits(tmp_path: Path) -> None:
    """With posture closed nothing could be served, so new requests go elsewhere."""
    for posture, status in (("safe-capacity", 200), ("open", 200), ("closed", 503)):
        served = Served(tmp_path, policies(posture))
        served.telemetry.gauges.store_up, served.health.cause = lambda: False, lambda: "timeout"
        answer = await served.ask("/readyz")
        assert answer.status_code == status
        found = answer.json()["warnings"] + [check["detail"] for check in answer.json()["checks"]]
        lost = f"the store does not answer (timeout): {posture} decides where no route says otherwise"
        assert lost in found
        assert answer.json()["degraded"] == [lost]
        served.telemetry.gauges.store_up = lambda: True
        assert "the store" not in "".join((await served.ask("/readyz")).json()["warnings"])


async def test_what_goes_wrong_meanwhile_is_a_warning(tmp_path: Path) -> None:
    """A failing canary, a proxy nobody trusts, and whatever other parts have to say."""
    served = Served(tmp_path)
    served.telemetry.gauges.canary_ok = lambda: {"refuse": False, "admit": True}
    served.telemetry.untrusted_forwarder("198.51.100.7")
    served.health.sources.append(lambda: ["something else"])
    answer = await served.ask("/readyz")
    assert answer.status_code == 200
    assert answer.json()["warnings"][1:] == [
        "the canary refuse does not find what it expects",
        forwarder_warning("198.51.100.7"),
        "something else",
    ]


async def test_probes_are_no_part_of_any_figure(tmp_path: Path) -> None:
    """Case 119: they are answered whatever the limits say, and counted nowhere."""
    served = Served(tmp_path)
    served.record(Event())
    for _ in range(50):
        assert (await served.ask("/livez")).status_code == 200
        assert (await served.ask("/readyz")).status_code == 200
    assert served.telemetry.tenants.report("1m", served.clock.at).aggregate.offered == 1


def test_routes_and_policies_that_nothing_stands_behind_are_listed(tmp_path: Path) -> None:
    """Routes without a policy, policies that nothing meets; with the counts of `evenhand inventory`."""
    served = Served(tmp_path, POLICIES.format(posture="open") + '[[routes]]\nname = "bare"\npath = "/bare"\n')
    served.health.unused = lambda: ("part",)
    ready = served.health.ready()
    assert ready["routes_without_policy"] == ["bare"]
    assert ready["policies_unused"] == ["part"]
    assert "policy part has applied to nothing in 30 days" in list(served.health.warnings())
    of = ready["counts"]
    assert isinstance(of, dict)
    assert of["policies"]["unused"] == 1
    for parts in of.values():
        assert 2 * parts["total"] == sum(parts.values())


def test_an_exemption_is_warned_of_as_time_passes(tmp_path: Path) -> None:
    """Not at first; a week before its end; and when it has ended, until it is taken out. Never twice at once."""
    served = Served(
        tmp_path,
        '[[exemptions]]\nname = "x"\nmatch = { tenant = "acme" }\nmultiplier = 2\nreason = "r"\nowner = "o"\n'
        "expires = 2035-01-01T00:00:00Z\n",
    )
    ends = 2_051_222_400 * SECOND
    told = {
        ends - 8 * 86_400 * SECOND: [],
        ends - 6 * 86_400 * SECOND: ["exemption x of o ends within a week: 2035-01-01T00:00:00Z"],
        ends: ["exemption x of o has ended and raises nothing: 2035-01-01T00:00:00Z"],
    }
    configured_then = ("exemptions[0].expires: is less than a week away", "more.toml: exemptions[3].expires: is past")
    served.health.reload(served.loaded.settings, served.policies, configured_then)
    for at, expected in told.items():
        served.clock.at = at
        assert list(served.health.warnings()) == expected
