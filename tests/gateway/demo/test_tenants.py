"""The cast: the recorded night, scaled."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import load
from gateway.demo.tenants import BACKFILL, night, toml

__all__: list[str] = []


@pytest.mark.parametrize("backstop", (60, 300))
def test_the_night_is_scaled_in_proportion(backstop: int) -> None:
    """A dozen light tenants want 14 % together; the backfill wants everything and is patient."""
    cast = night(backstop)
    assert len(cast.light) == 12
    assert sum(tenant.per_second for tenant in cast.light) == pytest.approx(backstop * 0.14)
    assert {tenant.deadline_us for tenant in cast.light} == {360_000}
    assert cast.tenants[-1].id == BACKFILL
    assert cast.backfill.deadline_us is None
    assert cast.backfill.in_flight > 0.9 * backstop
    assert cast.origin > backstop
    assert len({tenant.token for tenant in cast.tenants}) == 13


@pytest.mark.parametrize("quotas", (True, False))
def test_its_configuration_is_one_the_gateway_takes(tmp_path: Path, quotas: bool) -> None:
    """Without a warning; in the shared-bucket night nobody has a quota of its own."""
    text = toml(
        night(100),
        listen="127.0.0.1:18080",
        admin="127.0.0.1:18081",
        upstream="http://127.0.0.1:18082",
        quotas=quotas,
    )
    (tmp_path / "gateway.toml").write_text(text)
    loaded = load(tmp_path / "gateway.toml", {})
    assert loaded.warnings == ()
    quotas_set = [rules.quota for tenant in loaded.policies.tenants.values() for rules in tenant.credentials.values()]
    assert len(quotas_set) == 13
    assert all((quota is not None) is quotas for quota in quotas_set)
    assert "evh_pat_" not in text, "a token is never written down"
