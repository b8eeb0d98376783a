"""`evenhand inventory`: every limit, every route, and counts that add up."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from gateway.config.inventory import Exempted, Limit, Standing, counts, exemptions, inventory, limits, standings
from tests.gateway.config.documents import loaded

__all__: list[str] = []

TEXT = """
[upstreams.reports]
url = "http://127.0.0.1:9100"
concurrency = 5
[upstreams.spare]
url = "http://127.0.0.1:9200"
[backstop]
quota = "2000/s"
[classes]
batch = { ceiling = 0.5 }
[[tenants]]
id = "acme"
quota = "200/s"
concurrency = 100
[[tenants.credentials]]
id = "ci"
quota = "80/s burst 160"
concurrency = 20
[[tenants.credentials]]
id = "worker 7"
[[tenants]]
id = "beta"
quota = "sized"
[[tenants]]
id = "gamma"
[[routes]]
name = "exports"
path = "/v1/exports/**"
methods = ["GET"]
upstream = "reports"
[[routes]]
name = "login"
path = "/login"
[[routes]]
name = "health"
path = "/health"
unlimited = "probes of the load balancer"
[[routes]]
name = "old"
path = "/old"
[[policies]]
name = "login-per-address"
match = { route = "login", identity = "anonymous" }
key = ["address"]
quota = "10/min"
percent = 25
[[policies]]
name = "writes"
match = { method = "POST", route = "exports" }
key = ["tenant", "route"]
quota = "0/s"
mode = "shadow"
[[policies]]
name = "old-route"
match = { route = "old" }
key = ["tenant"]
quota = "1/s"
mode = "off"
[[policies]]
name = "try"
match = { route = "login" }
key = ["tenant"]
quota = "1/s"
percent = 0
"""

ROWS = (
    Limit("backstop", "enforce", "service", "2000/s burst 2000"),
    Limit("share", "enforce", "tenant", "max-min part of backstop by weight, when contended"),
    Limit("class", "enforce", "class=batch", "0.5 of backstop"),
    Limit("tenant", "enforce", "tenant=acme", "200/s burst 200"),
    Limit("concurrency", "enforce", "tenant=acme", "100 in flight"),
    Limit("key", "enforce", "tenant=acme,credential=ci", "80/s burst 160"),
    Limit("concurrency", "enforce", "tenant=acme,credential=ci", "20 in flight"),
    Limit("key", "shadow", "tenant=acme,credential=worker%207", "sized, from 20/s burst 20"),
    Limit("tenant", "shadow", "tenant=beta", "sized, from 20/s burst 20"),
    Limit("key", "shadow", "any other credential or project", "sized, from 20/s burst 20"),
    Limit("key", "enforce", "address, anonymous", "5/s burst 20"),
    Limit("key", "enforce", "address, rejected", "60/min burst 60"),
    Limit("key", "enforce", "address, preflight", "10/s burst 50"),
    Limit(
        "login-per-address", "enforce", "address (25 % of them)", "10/min burst 10", "route login, identity anonymous"
    ),
    Limit("writes", "shadow", "tenant, route", "0/s, refuses everything", "route exports, method POST"),
    Limit("old-route", "off", "tenant", "1/s burst 1", "route old"),
    Limit("try", "shadow", "tenant", "1/s burst 1", "route login"),
    Limit("connections", "enforce", "upstream", "512 connections", "all other routes"),
    Limit("connections", "enforce", "upstream reports", "512 connections, 5 in flight", "route exports"),
    Limit("connections", "enforce", "upstream spare", "512 connections", "nothing"),
)


def test_every_limit_is_listed(tmp_path: Path) -> None:
    """Name, mode, key, quota, what it covers; a percentage of 0 is shadow."""
    assert limits(loaded(tmp_path, TEXT)) == ROWS


def test_every_route_stands_in_one_way(tmp_path: Path) -> None:
    """Limited, limited in part, unlimited for a reason, or without; what does not limit all of it says why."""
    assert standings(loaded(tmp_path, TEXT)) == (
        Standing("exports", "/v1/exports/**", "without", "-"),
        Standing("login", "/login", "in part", "login-per-address (identity anonymous, 25 % of keys), try (shadow)"),
        Standing("health", "/health", "unlimited", "probes of the load balancer"),
        Standing("old", "/old", "without", "-"),
    )


@pytest.mark.parametrize(
    ("policy", "route", "standing", "by"),
    [
        ("", "", "limited", "p"),
        ('mode = "shadow"', "", "without", "p (shadow)"),
        ('mode = "off"', "", "without", "-"),
        ("percent = 0", "", "without", "p (shadow)"),
        ("percent = 50", "", "in part", "p (50 % of keys)"),
        ('match = { tenant = "acme" }', "", "in part", "p (tenant acme)"),
        ('match = { credential = "ci" }', "", "in part", "p (credential ci)"),
        ('match = { identity = "user" }', "", "in part", "p (identity user)"),
        ('match = { method = "POST" }', "", "in part", "p (method POST)"),
        ('match = { method = "POST" }', 'methods = ["POST"]', "limited", "p"),
        ('match = { class = "batch" }', "", "in part", "p (class batch)"),
        ('match = { class = "batch" }', 'class = "batch"', "limited", "p"),
        ('match = { class = "interactive" }', 'class = "interactive"', "in part", "p (class interactive)"),
        ('match = { tenant = "acme" }\nmode = "shadow"', "", "without", "p (shadow, tenant acme)"),
        ('mode = "shadow"', 'unlimited = "probes"', "unlimited", "probes"),
        ('match = { tenant = "acme" }', 'unlimited = "probes"', "unlimited", "probes"),
        ("", 'unlimited = "probes"', "limited", "p"),
    ],
)
def test_only_what_limits_every_request_is_cover(
    policy: str, route: str, standing: str, by: str, tmp_path: Path
) -> None:
    """A limit that is in shadow, or of one tenant, leaves the others of the route without one."""
    text = f'[[routes]]\nname = "r"\npath = "/r"\n{route}\n'
    text += f'[[policies]]\nname = "p"\nkey = ["address"]\nquota = "1/s"\n{policy}\n'
    (found,) = standings(loaded(tmp_path, text))
    assert (found.standing, found.by) == (standing, by)


def test_the_counts_add_up(tmp_path: Path) -> None:
    """They are those of the rows above them."""
    text = inventory(loaded(tmp_path, TEXT))
    assert "20 limits: 14 enforced, 5 in shadow, 1 off." in text.splitlines()
    assert "4 routes: 0 limited by a named policy, 1 in part, 1 unlimited on purpose, 2 without." in text.splitlines()
    modes = Counter(re.findall(r"^\S+ +(enforce|shadow|off) ", text, re.MULTILINE))
    assert modes == {"enforce": 14, "shadow": 5, "off": 1}


def test_in_shadow_nothing_is_enforced(tmp_path: Path) -> None:
    """`[server] mode` outranks every limit's own."""
    made = loaded(tmp_path, TEXT + '[server]\nmode = "shadow"\n')
    assert {row.mode for row in limits(made)} == {"shadow", "off"}
    assert "20 limits: 0 enforced, 19 in shadow, 1 off." in inventory(made)


def test_the_shipped_file_has_seven_limits(tmp_path: Path) -> None:
    """A limit that comes or goes is seen here."""
    made = loaded(tmp_path)
    assert Counter(row.name for row in limits(made)) == {"backstop": 1, "share": 1, "key": 4, "connections": 1}
    assert limits(made)[-1].covers == "everything"
    assert "0 routes: 0 limited by a named policy, 0 in part, 0 unlimited on purpose, 0 without." in inventory(made)


EXEMPT = """
[[exemptions]]
name = "launch"
match = { tenant = "acme", route = "login" }
multiplier = 4
policies = ["try"]
reason = "launch week"
owner = "sre@example.com"
expires = 2035-01-20T00:00:00Z
[[exemptions]]
name = "move"
match = { tenant = "acme", credential = "ci" }
quota = "900/s"
reason = "moving house"
owner = "ops"
expires = 2035-01-05T00:00:00Z
[[exemptions]]
name = "past"
match = { tenant = "beta" }
quota = "10/s"
reason = "over"
owner = "ops"
expires = 2034-12-31T00:00:00Z
"""
NOW = 2_051_222_400 * 1_000_000  # 2035-01-01


def test_every_exemption_is_listed_with_who_answers_for_it(tmp_path: Path) -> None:
    """For whom, what it raises, until when, and whether that is soon or over."""
    made = loaded(tmp_path, TEXT + EXEMPT)
    assert exemptions(made, NOW) == (
        Exempted(
            "launch",
            "route login, tenant acme",
            "key, tenant, try x 4",
            "in force",
            "2035-01-20T00:00:00Z",
            "sre@example.com",
            "launch week",
        ),
        Exempted(
            "move",
            "tenant acme, credential ci",
            "key to 900/s",
            "ends soon",
            "2035-01-05T00:00:00Z",
            "ops",
            "moving house",
        ),
        Exempted("past", "tenant beta", "tenant to 10/s", "ended", "2034-12-31T00:00:00Z", "ops", "over"),
    )
    lines = inventory(made, NOW, ["try"]).splitlines()
    assert "3 exemptions: 1 in force, 1 that end within a week, 1 ended." in lines
    assert "1 policies have applied to nothing in 30 days: try." in lines


def test_a_quota_says_what_an_exemption_makes_of_it(tmp_path: Path) -> None:
    """Of all requests of a bucket; one of a route has a bucket of its own, and one that has ended raises nothing."""
    launch = "[[exemptions]]" + EXEMPT.split("[[exemptions]]")[1]
    text = TEXT + EXEMPT + launch.replace(', route = "login"', "").replace('"launch"', '"all"')
    rows = {row.key: row.quota for row in limits(loaded(tmp_path, text), NOW) if row.name in {"key", "tenant"}}
    assert rows["tenant=acme"] == "200/s burst 200, now 800/s burst 800 by exemption all"
    assert rows["tenant=acme,credential=ci"] == "80/s burst 160, now 900/s burst 900 by exemption move"
    assert rows["tenant=acme,credential=worker%207"] == "sized, from 20/s burst 20 x 4 by exemption all"
    assert rows["tenant=beta"] == "sized, from 20/s burst 20"


def test_the_counts_are_those_of_the_rows(tmp_path: Path) -> None:
    """Of limits, routes, policies and exemptions alike; the parts of each make its total."""
    made = loaded(tmp_path, TEXT + EXEMPT)
    of = counts(made, NOW, ["try", "gone long ago"])
    assert of == {
        "limits": {"total": 20, "enforce": 14, "shadow": 5, "off": 1},
        "routes": {"total": 4, "limited": 0, "in_part": 1, "unlimited": 1, "without": 2},
        "policies": {"total": 4, "used_or_new": 3, "unused": 1},
        "exemptions": {"total": 3, "in_force": 1, "ends_soon": 1, "ended": 1},
    }
    for parts in of.values():
        assert 2 * parts["total"] == sum(parts.values())
