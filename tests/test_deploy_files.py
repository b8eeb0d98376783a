"""What operators copy beside alert rules: dashboards, rule tests, manifests, units; each holds what it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.config import load
from gateway.telemetry.catalog import CATALOG

__all__: list[str] = []

ROOT = Path(__file__).resolve().parent.parent
GRAFANA = ROOT / "deploy" / "grafana" / "evenhand.json"
PROMETHEUS = ROOT / "deploy" / "prometheus"
_SELECTOR = re.compile(r"(evenhand_[a-z_]+?)(_bucket|_sum|_count)?\b\{([^}]*)\}")
_TARGET = {"instance", "job"}


def expressions() -> Iterator[str]:
    """Yield what the dashboard asks of Prometheus."""
    board: dict[str, Any] = json.loads(GRAFANA.read_text(encoding="utf-8"))
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_every_metric_of_the_dashboard_exists() -> None:
    """Each is in the catalogue with the labels that are asked for and shown, and every metric there is has a place."""
    seen = set()
    for asked in expressions():
        found = list(_SELECTOR.finditer(asked))
        assert found, asked
        for name, suffix, matchers in (match.groups() for match in found):
            family = CATALOG[name]
            assert (suffix is not None) == (family.type == "histogram"), asked
            labels = set(re.findall(r"([a-z_]+)(?:=~|!~|!=|=)", matchers))
            assert labels <= {*family.labels, *_TARGET}, asked
            seen.add(name)
        for group in re.findall(r"by \(([a-z_, ]*)\)", asked):
            known = {label for match in found for label in CATALOG[match[1]].labels} | {"le"}
            assert set(group.replace(" ", "").split(",")) <= known, asked
    assert seen == set(CATALOG)


def test_the_aggregate_is_never_alone() -> None:
    """The panel with the aggregate has the worst tenant in it."""
    board = json.loads(GRAFANA.read_text(encoding="utf-8"))
    for panel in board["panels"]:
        text = json.dumps(panel["targets"])
        assert ("evenhand_aggregate_success_ratio" in text) <= ("evenhand_worst_tenant_success_ratio" in text)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is in Debian's package prometheus")
@pytest.mark.parametrize("words", [("check", "rules", "*.rules.yml"), ("test", "rules", "evenhand.test.yml")])
def test_rules_do_what_they_say(words: tuple[str, ...]) -> None:
    """Rules parse, and fire on what they are for and on nothing like it."""
    files = sorted(str(path.name) for path in PROMETHEUS.glob(words[-1]))
    ran = subprocess.run(["promtool", *words[:-1], *files], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_is_played() -> None:
    """Each alert of ours has a test in which it fires."""
    rules = (PROMETHEUS / "evenhand.rules.yml").read_text(encoding="utf-8")
    played = (PROMETHEUS / "evenhand.test.yml").read_text(encoding="utf-8")
    for alert in re.findall(r"- alert: (\w+)", rules):
        assert re.search(rf"alertname: {alert}\n +exp_alerts:", played), alert


def test_the_manifests_configuration_is_right(tmp_path: Path) -> None:
    """The gateway.toml of the Kubernetes manifest loads, and drains within the time that it is given."""
    manifest = (ROOT / "deploy" / "kubernetes" / "evenhand.yaml").read_text(encoding="utf-8")
    block = manifest.partition("gateway.toml: |\n")[2].partition("\n---\n")[0]
    file = tmp_path / "gateway.toml"
    file.write_text("\n".join(line[4:] for line in block.splitlines()))
    loaded = load(file, {**os.environ, "EVENHAND_ADMIN_TOKEN": "a-token-that-is-long-enough-to-be-one"})
    server = loaded.settings.server
    given = re.search(r"terminationGracePeriodSeconds: (\d+)", manifest)
    assert given is not None
    assert (server.grace + server.drain_timeout) / 1_000_000 < int(given[1])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_the_unit_is_one(tmp_path: Path) -> None:
    """The unit is read by systemd without a word, once what it starts is there."""
    unit = (ROOT / "deploy" / "systemd" / "evenhand.service").read_text(encoding="utf-8")
    file = tmp_path / "evenhand.service"
    file.write_text(unit.replace("/opt/evenhand/bin/evenhand", "/bin/true"))
    ran = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
    said = [line for line in ran.stderr.splitlines() if "evenhand.service" in line]
    assert said == []
