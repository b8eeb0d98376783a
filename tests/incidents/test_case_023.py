"""Case 23: a consumed credential is removed from every slot the product reads."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.wire.caller import call, request
from tests.wire.gateway import running, tenants, token
from tests.wire.ledger import balanced
from tests.wire.origin import Origin

__all__: list[str] = []

FORGED = [
    ("EVENHAND-Tenant", "other"),
    ("evenhand_tenant", "other"),
    ("Evenhand_Credential", "root"),
    ("evenhand-CREDENTIAL", "root"),
    ("Evenhand_Class", "interactive"),
    ("X_Forwarded_For", "10.9.9.9"),
]


@pytest.mark.parametrize("authorization", ["bearer", "basic"])
async def test_upstream_sees_no_credential_and_one_tenant(tmp_path: Path, up: Origin, authorization: str) -> None:
    """The same credential in all slots at once is removed from all; identity headers are the gateway's own."""
    secret = token("a")
    basic = base64.b64encode(f"me:{secret}".encode()).decode()
    slots = [
        ("Authorization", f"Bearer {secret}" if authorization == "bearer" else f"Basic {basic}"),
        ("Private-Token", secret),
        ("JOB-TOKEN", secret),
        ("x-api-key", secret),
        ("Proxy-Authorization", f"Bearer {secret}"),
    ]
    with running(tmp_path, up, {"tenants": tenants("a")}) as gateway:
        async with balanced(gateway, up) as books:
            assert (await call(gateway.address, request(fields=[*slots, *FORGED]))).status == 200
            books.sent("a")
    (seen,) = up.seen
    raw = bytes(seen.connection.raw)
    assert secret.encode() not in raw
    assert basic.encode() not in raw
    names = [name.decode().lower() for name, _ in seen.fields]
    assert not {"authorization", "private-token", "job-token", "x-api-key", "proxy-authorization"} & set(names)
    assert not [name for name in names if "_" in name]
    assert b"other" not in raw
    assert b"root" not in raw
    assert (seen.header("evenhand-tenant"), seen.header("evenhand-credential")) == ("a", "ci")
    assert secret not in gateway.log.read_text()
    assert secret not in gateway.stderr
