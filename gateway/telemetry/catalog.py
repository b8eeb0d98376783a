"""The metrics there are: names, types, labels, help texts. The contract fixes them (section 8); a test pins them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["CATALOG", "Family"]


class Family(NamedTuple):
    """One metric: its type, labels and help text."""

    type: str
    labels: tuple[str, ...]
    help: str


CATALOG: Mapping[str, Family] = {
    "evenhand_requests_total": Family("counter", ("tenant", "class", "outcome"), "Requests by how they ended."),
    "evenhand_refusals_total": Family(
        "counter",
        ("tenant", "limit", "class", "mode"),
        "Refusals by the limit they name; mode shadow is a refusal that was not enforced.",
    ),
    "evenhand_worst_tenant_success_ratio": Family(
        "gauge", ("window",), "Lowest in-profile success of a tenant with 20 requests or more in its denominator."
    ),
    "evenhand_lowest_success_ratio": Family(
        "gauge", ("window",), "Lowest raw success of a tenant with 20 requests or more."
    ),
    "evenhand_aggregate_success_ratio": Family(
        "gauge", ("window",), "Served over offered, all tenants together. Never to be read alone: see the worst tenant."
    ),
    "evenhand_tenant_success_ratio": Family("gauge", ("tenant", "window"), "Served over offered, by tenant."),
    "evenhand_tenant_throttled_ratio": Family("gauge", ("tenant", "window"), "Refused over offered, by tenant."),
    "evenhand_decision_seconds": Family("histogram", (), "Time from parsed head to verdict."),
    "evenhand_upstream_seconds": Family("histogram", (), "Time from sending a request head upstream to its end."),
    "evenhand_backstop_contended": Family("gauge", (), "1 while demand exceeds the backstop."),
    "evenhand_backstop_used_ratio": Family("gauge", (), "Part of the backstop in use."),
    "evenhand_key_quota": Family(
        "gauge", ("tenant", "credential"), "Effective quota in request units per second, configured credentials."
    ),
    "evenhand_exempted_requests_total": Family("counter", ("exemption",), "Requests under an exemption."),
    "evenhand_store_up": Family("gauge", (), "1 while the store answers."),
    "evenhand_store_errors_total": Family("counter", ("kind",), "Failed store calls."),
    "evenhand_store_wait_seconds": Family(
        "histogram", (), "Time that a request waited for the store; those it holds a lease for do not wait."
    ),
    "evenhand_connections": Family("gauge", ("side",), "Open connections."),
    "evenhand_in_flight": Family("gauge", (), "Requests decided and not yet settled."),
    "evenhand_keys": Family("gauge", (), "Buckets held by the store."),
    "evenhand_overflow_requests_total": Family(
        "counter", (), "Requests charged to the shared overflow bucket because the store was full of live keys."
    ),
    "evenhand_starved_keys": Family("gauge", (), "Sized keys refused on three of the last seven days."),
    "evenhand_jwks_age_seconds": Family("gauge", ("issuer",), "Age of the key set in use."),
    "evenhand_canary_ok": Family("gauge", ("check",), "1 while the canary finds what it expects."),
    "evenhand_config_last_reload_ok": Family(
        "gauge", (), "1 if the last reload was taken over, 0 if it was refused; absent before the first."
    ),
    "evenhand_workers": Family("gauge", (), "Worker processes that serve; absent where one process serves alone."),
    "evenhand_worker_restarts_total": Family("counter", (), "Worker processes that ended and were replaced."),
    "evenhand_instances": Family(
        "gauge", (), "Living instances on the same store, this one included; absent without a shared store."
    ),
    "evenhand_policy_mode": Family("gauge", ("policy", "mode"), "1 for the mode a named policy is in."),
    "evenhand_posture_decisions_total": Family(
        "counter", ("posture", "outcome"), "Requests decided by a posture, without the store."
    ),
    "evenhand_class_raise_attempts_total": Family(
        "counter", ("tenant",), "Requests that asked for a higher class than they may have."
    ),
    "evenhand_build_info": Family("gauge", ("version", "python"), "Constant 1."),
}
