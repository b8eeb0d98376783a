"""Case 45, the decision: a caller may lower its class, never raise it above what its credential permits."""

from __future__ import annotations

import pytest

from policies.classify import Classifier
from policies.cost import UNMATCHED
from policies.request import Class
from tests.incidents.simulated import Simulated
from tests.policies.documents import acme, credential, policy_set, quota, tenants, user

__all__: list[str] = []

FORMS = ["interactive", "Interactive", "INTERACTIVE ", "interactive, interactive", "interactive,batch", "0", "high", ""]


@pytest.mark.parametrize("asked", FORMS)
def test_batch_only_credential_stays_batch(asked: str) -> None:
    """Whatever a batch-only credential sends it is batch, and asking for more is an attempt that is counted."""
    cls, raised = Classifier(policy_set()).cls(user(highest=Class.BATCH), UNMATCHED, asked)
    assert cls is Class.BATCH
    assert raised is ("interactive" in asked.lower())


def test_claiming_a_class_gains_nothing() -> None:
    """A batch-only caller that claims interactive leaves the reserve alone like any batch caller."""
    entry = acme(credential("ci", quota(1, 100)), credential("bulk", quota(1, 100)), quota=quota(1, 100))
    gateway = Simulated(policy_set(tenants=tenants(entry)))
    assert gateway.ask(user(), 0).admitted
    bulk = user(name="bulk", highest=Class.BATCH)
    admitted = sum(gateway.ask(bulk, 0, "interactive").admitted for _ in range(200))
    assert admitted == 74
    assert gateway.ask(user(), 0).admitted
