"""`/api/fairness`, `/api/limits`, `/api/tenants/{id}`, `/metrics` and the index page, as clients read them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from policies.request import Class
from policies.verdict import Outcome
from tests.gateway.admin.served import Served
from tests.gateway.telemetry.made import Event

TENANTS = """
[[tenants]]
id = "acme"
weight = 2.0
quota = "200/s"
concurrency = 100
[[tenants.credentials]]
id = "ci"
quota = "80/s burst 160"
concurrency = 20
[[tenants.credentials]]
id = "worker"
[[policies]]
name = "login"
match = { route = "login", class = "batch" }
key = ["address"]
quota = "10/min"
mode = "shadow"
[[routes]]
name = "login"
path = "/login"
"""


async def fairness(served: Served, query: str = "") -> Any:
    """Ask for fairness and return what came."""
    answer = await served.ask(f"/api/fairness?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_fairness_has_the_shape_of_the_contract(tmp_path: Path) -> None:
    """Aggregate beside worst; members and rows are those of section 7, and no others."""
    served = Served(tmp_path)
    assert await fairness(served) == {
        "window": "5m",
        "aggregate": {
            **dict.fromkeys(("offered", "served", "refused", "within_share_refused", "upstream_error", "aborted"), 0),
            "success": None,
            "success_by_tenant": None,
        },
        "worst": None,
        "contended": False,
        "tenants": [],
    }
    served.telemetry.gauges.backstop_contended = lambda: True
    served.record(*[Event("a")] * 30, *[Event("b", Outcome.REFUSED, "share")] * 14, *[Event("b")] * 6)
    found = await fairness(served, "window=1m")
    assert found["contended"] is True
    assert found["worst"].pop("interval") == pytest.approx([0.1455, 0.5190], abs=5e-5)
    assert found["worst"] == {
        "tenant": "b",
        "in_profile_success": 0.3,
        "success": 0.3,
        "offered": 20,
        "share_over": True,
    }
    assert found["tenants"][0] == {
        "tenant": "b",
        "offered": 20,
        "served": 6,
        "upstream_error": 0,
        "aborted": 0,
        "refused": {"share": 14},
        "success": 0.3,
        "in_profile_success": 0.3,
        "throttled_fraction": 0.7,
        "share_over": True,
        "within_share_refused": 0,
    }


async def test_rows_come_worst_first_or_as_asked_and_in_pages(tmp_path: Path) -> None:
    """A page ends with a cursor; the pages together are the whole list, each row once."""
    served = Served(tmp_path)
    for number in range(300):
        served.record(*[Event(f"t{number:03}")] * (number % 7 + 1), Event(f"t{number:03}", Outcome.REFUSED, "share"))
    served.record(Event("none", Outcome.REFUSED, "key"))
    for sort in ("in_profile_success", "-in_profile_success", "-offered", "offered", "tenant", "-tenant", "refused"):
        whole = (await fairness(served, f"sort={sort}"))["tenants"]
        assert len(whole) == 301
        paged: list[Any] = []
        query = f"sort={sort}&limit=97"
        while query:
            page = await fairness(served, query)
            paged += page["tenants"]
            query = f"sort={sort}&limit=97&cursor={page['cursor']}" if "cursor" in page else ""
        assert paged == whole
    ratios = [row["in_profile_success"] for row in (await fairness(served))["tenants"]]
    assert ratios[:-1] == sorted(ratios[:-1])
    assert ratios[-1] is None
    down = [row["in_profile_success"] for row in (await fairness(served, "sort=-in_profile_success"))["tenants"]]
    assert down == [*reversed(ratios[:-1]), None]
    names = [row["tenant"] for row in (await fairness(served, "sort=-tenant"))["tenants"]]
    assert names == sorted(names, reverse=True)


@pytest.mark.parametrize(
    ("query", "said"),
    (
        ("window=2m", "window is one of 1m, 5m, 15m, 1h, 24h"),
        ("window=", "window is one of"),
        ("sort=nothing", "sort is one of"),
        ("sort=--offered", "sort is one of"),
        ("limit=0", "limit is a whole number"),
        ("limit=-1", "limit is a whole number"),
        ("limit=x", "limit is a whole number"),
        ("limit=%C2%B2", "limit is a whole number"),
        ("cursor=x", "cursor is what the page before returned"),
        ("cursor=W10", "cursor is what the page before returned"),
        ("cursor=%F0%9F%98%80", "cursor is what the page before returned"),
        ("sort=offered&cursor=WyJzdWNjZXNzIixmYWxzZSwwLjAsImEiXQ", "cursor is what the page before returned"),
    ),
)
async def test_what_cannot_be_obeyed_is_400_in_a_sentence(tmp_path: Path, query: str, said: str) -> None:
    """A problem that says what is possible."""
    answer = await Served(tmp_path).ask(f"/api/fairness?{query}")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"].startswith(said)


@pytest.mark.parametrize(
    "path", ("/api/fairness?from=2033-05-18T03:35:00Z", "/api/tenants/acme?to=2033-05-18T03:35:00Z")
)
async def test_stored_series_are_answered_503_where_there_is_no_history(tmp_path: Path, path: str) -> None:
    """Never with the figures of another time."""
    answer = await Served(tmp_path, TENANTS).ask(path)
    assert answer.status_code == 503
    assert "history" in answer.json()["detail"]


async def test_limits_lists_every_key_with_its_quota_and_where_it_comes_from(tmp_path: Path) -> None:
    """Configured credentials, then each kind of key that callers bring into being; tenants and policies beside."""
    answer = await Served(tmp_path, TENANTS).ask("/api/limits")
    found = answer.json()
    assert found["mode"] == "enforce"
    assert found["backstop"] == {"rate": "1000/s", "per_second": 1000.0, "burst": 1000.0}
    rows = {(row["identity"], row["tenant"], row["credential"]): row for row in found["keys"]}
    assert rows["user", "acme", "ci"] == {
        "tenant": "acme",
        "credential": "ci",
        "identity": "user",
        "concurrency": 20,
        "mode": "enforce",
        "quota": {"rate": "80/s", "per_second": 80.0, "burst": 160.0},
        "provenance": "configured",
    }
    assert (rows["user", "acme", "worker"]["provenance"], rows["user", "acme", "worker"]["mode"]) == (
        "initial",
        "shadow",
    )
    assert rows["anonymous", "anonymous", "*"]["quota"]["rate"] == "5/s"
    assert {identity for identity, _, _ in rows} == {"user", "job", "anonymous", "preflight", "rejected"}
    (tenant,) = found["tenants"]
    assert (tenant["tenant"], tenant["weight"], tenant["quota"]["per_second"], tenant["concurrency"]) == (
        *("acme", 2.0, 200.0, 100),
    )
    (policy,) = found["policies"]
    assert (policy["policy"], policy["mode"], policy["key"], policy["match"]["class"]) == (
        *("login", "shadow", ["address"], "batch"),
    )


EXEMPTED = """
[[exemptions]]
name = "launch"
match = { tenant = "acme" }
multiplier = 4
reason = "launch week"
owner = "sre"
expires = 2035-01-01T00:00:00Z
[[exemptions]]
name = "gets"
match = { tenant = "acme", method = "GET" }
multiplier = 9
policies = ["login"]
reason = "launch week"
owner = "sre"
expires = 2035-01-01T00:00:00Z
"""


async def test_an_exemption_shows_in_every_quota_it_raises(tmp_path: Path) -> None:
    """Rate, burst and provenance are those in force, in the API and in `/metrics`; after its end the ordinary ones."""
    served = Served(tmp_path, TENANTS + EXEMPTED)
    found = (await served.ask("/api/limits")).json()
    key = next(row for row in found["keys"] if row["credential"] == "ci")
    assert (key["quota"], key["provenance"]) == (
        {"rate": "320/s", "per_second": 320.0, "burst": 640.0},
        "exemption launch",
    )
    assert (key["ordinary"]["rate"], key["exempted_in_part"]) == ("80/s", ["gets"])
    (tenant,) = found["tenants"]
    assert (tenant["quota"]["rate"], tenant["provenance"]) == ("800/s", "exemption launch")
    (policy,) = found["policies"]
    assert policy["exempted_in_part"] == ["gets"]
    served.record(Event("acme"))
    scraped = (await served.ask("/metrics")).text
    assert 'evenhand_key_quota{credential="ci",tenant="acme"} 320' in scraped
    served.clock.at = 2_051_222_400 * 1_000_000
    key = next(row for row in (await served.ask("/api/limits")).json()["keys"] if row["credential"] == "ci")
    assert (key["quota"]["rate"], key["provenance"], "ordinary" in key) == ("80/s", "configured", False)


async def test_one_tenant_in_full(tmp_path: Path) -> None:
    """Credentials, quotas, every window, refusals by limit, what was rejected and what shadow would have done."""
    served = Served(tmp_path, TENANTS)
    served.record(
        *[Event("acme", Outcome.REFUSED, "key", cls=Class.BATCH)] * 3,
        Event("acme", Outcome.REFUSED, "tenant"),
        Event("acme", shadow=("login",)),
        Event("acme", Outcome.REJECTED, status=413),
    )
    found = (await served.ask("/api/tenants/acme")).json()
    assert [row["credential"] for row in found["credentials"]] == ["ci", "worker"]
    assert found["limits"]["quota"]["rate"] == "200/s"
    assert list(found["windows"]) == ["1m", "5m", "15m", "1h", "24h"]
    window = found["windows"]["24h"]
    assert (window["offered"], window["refused"], window["rejected"], window["shadow"]) == (
        *(5, {"key": 3, "tenant": 1}, 1, {"login": 1}),
    )
    assert window["in_profile_success"] == 1.0
    assert found["listed"] is True
    assert found["history"] is None


async def test_a_tenant_that_nobody_listed_or_counted_is_404(tmp_path: Path) -> None:
    """One that was counted is shown by any id it may have."""
    served = Served(tmp_path)
    assert (await served.ask("/api/tenants/nobody")).status_code == 404
    served.record(Event("a/b c%2F/é"))
    answer = await served.ask("/api/tenants/a%2Fb%20c%252F%2F%C3%A9")
    assert answer.status_code == 200
    assert (answer.json()["tenant"], answer.json()["listed"], answer.json()["limits"]) == ("a/b c%2F/é", False, None)


async def test_metrics_are_served_and_show_the_quotas_of_labelled_tenants(tmp_path: Path) -> None:
    """`evenhand_key_quota` is the effective quota."""
    served = Served(tmp_path, TENANTS)
    assert "evenhand_key_quota{" not in (await served.ask("/metrics")).text
    served.record(Event("acme"))
    answer = await served.ask("/metrics", headers={"accept": "application/openmetrics-text"})
    assert 'evenhand_key_quota{credential="ci",tenant="acme"} 80.0' in answer.text
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.headers["cache-control"] == "no-store"


async def test_the_index_puts_the_aggregate_beside_the_worst_and_runs_nothing(tmp_path: Path) -> None:
    """Every window; ids are text, whatever they say; the policy allows no script and nothing from elsewhere."""
    served = Served(tmp_path)
    hostile = "<script>alert(1)</script>"
    served.record(*[Event("fine")] * 2000, *[Event(hostile)] * 1999, Event(hostile, Outcome.REFUSED, "backstop"))
    answer = await served.ask("/")
    assert answer.status_code == 200
    assert "<script" not in answer.text
    assert "&lt;script&gt;" in answer.text
    assert "99.9 %" in answer.text
    assert '<td class="n bad">1' in answer.text
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script-src" not in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert re.search(r"<li>tenants\[0\].weight: not ready</li>", answer.text)
    empty = await Served(tmp_path).ask("/")
    assert "<td>-" in empty.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    (("GET", "/nothing", 404), ("GET", "/metrics/", 404), ("DELETE", "/metrics", 405), ("POST", "/", 405)),
)
async def test_what_is_not_there_is_a_problem(tmp_path: Path, method: str, path: str, status: int) -> None:
    """In JSON, or as a page for a browser; nothing of it is stored."""
    served = Served(tmp_path)
    answer = await served.ask(path, method)
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["cache-control"] == "no-store"
    assert ("allow" in answer.headers) == (status == 405)
    page = await served.ask(path, method, {"accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")


async def test_a_failure_of_ours_is_a_problem_without_a_word_of_why(tmp_path: Path) -> None:
    """The log has the traceback; the answer has nothing."""
    served = Served(tmp_path)
    secret = "hunter2"

    def fail() -> bool:
        raise RuntimeError(secret)

    served.telemetry.gauges.backstop_contended = fail
    served.record(Event(at=0.0))
    answer = await served.ask("/api/fairness")
    assert answer.status_code == 500
    assert secret not in answer.text
