"""Case 123: every route has an enforced limit by default; the running set can be listed and counted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.wire.caller import call, request
from tests.wire.gateway import ROOT, Gateway, running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin

__all__: list[str] = []

CONFIG: dict[str, Any] = {
    "tenants": tenants("a", quota="1/h burst 3"),
    "routes": [
        {"name": "login", "path": "/login"},
        {"name": "new", "path": "/new/**"},
        {"name": "probe", "path": "/probe", "unlimited": "probes of the load balancer"},
    ],
    "policies": [
        {"name": "login-per-address", "match": {"route": "login"}, "key": ["address"], "quota": "2/h"},
        {"name": "trial", "match": {"route": "login"}, "key": ["tenant"], "quota": "1/h", "mode": "shadow"},
        {"name": "forgotten", "match": {"route": "new"}, "key": ["tenant"], "quota": "1/h", "mode": "off"},
    ],
}


def inventory(gateway: Gateway) -> str:
    """Return what `evenhand inventory` says of the running gateway's file."""
    command = [sys.executable, "-m", "gateway", "inventory", "-c", str(gateway.file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


async def test_the_table_is_complete_and_counts_add_up(tmp_path: Path, up: Origin) -> None:
    """Command and admin call say the same: every route, every limit, what is off, what only watches."""
    with running(tmp_path, up, CONFIG) as gateway:
        text, ready = inventory(gateway), gateway.ask("/readyz").json()
        metrics = gateway.metrics()
        limits = gateway.ask("/api/limits").json()
    rows = re.findall(r"^(\S+) +(enforce|shadow|off) ", text, re.MULTILINE)
    counts = ready["counts"]
    assert counts["limits"] == {
        "total": len(rows),
        **{mode: sum(found == mode for _, found in rows) for mode in ("enforce", "shadow", "off")},
    }
    for kind, parts in counts.items():
        assert parts["total"] == sum(parts.values()) - parts["total"], kind
    assert counts["routes"] == {"total": 3, "limited": 1, "in_part": 0, "unlimited": 1, "without": 1}
    assert ready["routes_without_policy"] == ["new"]
    assert re.search(r"^new +/new/\*\* +without", text, re.MULTILINE)
    assert ready["off"] == ["forgotten"]
    assert "policy trial" in ready["shadow"]
    assert "policy forgotten is off: it limits nobody" in ready["warnings"]
    assert metrics.value("evenhand_policy_mode", policy="forgotten", mode="off") == 1
    assert {row["policy"]: row["mode"] for row in limits["policies"]} == {
        "login-per-address": "enforce",
        "trial": "shadow",
        "forgotten": "off",
    }


async def test_a_route_nobody_limited_has_the_default_limit(tmp_path: Path, up: Origin) -> None:
    """The caller's own key: no route is without an enforced limit, whatever policies are off."""
    with running(tmp_path, up, CONFIG) as gateway:
        async with balanced(gateway, up) as books:
            answers = []
            for target in ("/new/thing", "/unheard-of", "/probe", "/new"):
                answers.append(await call(gateway.address, request(target=target, token=token("a"))))
                books.sent("a")
            assert [answer.status for answer in answers] == [200, 200, 200, 429]
            assert answers[-1].header("evenhand-refused") == "key"
