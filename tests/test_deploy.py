"""What operators copy: alert rules name metrics and labels that exist, and runbooks that are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.telemetry.catalog import CATALOG

__all__: list[str] = []

ROOT = Path(__file__).resolve().parent.parent
RULES = sorted((ROOT / "deploy" / "prometheus").glob("*.rules.yml"))
_METRIC = re.compile(r"\bevenhand_[a-z_]+\b")
_BY = re.compile(r"\bby \(([a-z_, ]+)\)[ \n]*\(+(?:increase\()?(evenhand_[a-z_]+)")


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_alerts_ask_for_what_exists(path: Path) -> None:
    """Every metric is in the catalogue, with the labels that are grouped by."""
    text = path.read_text(encoding="utf-8")
    names = set(_METRIC.findall(text))
    assert names
    for name in names:
        assert name.removesuffix("_bucket") in CATALOG, name
    for labels, name in _BY.findall(text):
        assert set(labels.replace(" ", "").split(",")) <= {*CATALOG[name].labels, "instance"}, name


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_alerts_have_a_runbook(path: Path) -> None:
    """Each alert says how bad it is, what it is, and where it is written what to do."""
    text = path.read_text(encoding="utf-8")
    alerts = re.split(r"^ *- alert: ", text, flags=re.MULTILINE)[1:]
    assert alerts
    assert "\t" not in text
    for alert in alerts:
        for key in ("expr:", "for:", "severity:", "summary:", "runbook:"):
            assert key in alert, alert
        runbook = re.search(r"runbook: (\S+)#(\S+)", alert)
        assert runbook is not None
        page = (ROOT / runbook[1]).read_text(encoding="utf-8")
        headings = {line.lstrip("# ").lower().replace(" ", "-") for line in page.splitlines() if line.startswith("#")}
        assert runbook[2] in headings, runbook[0]


def test_the_exempted_volume_is_watched() -> None:
    """A shift by more than half hour over hour, and a canary that fails, are alerts."""
    text = "".join(path.read_text(encoding="utf-8") for path in RULES)
    assert "[1h] offset 1h" in text
    assert "> 0.5 * sum by (exemption)" in text
    assert "evenhand_canary_ok) == 0" in text
