"""One configuration for the tests of the resolver: two tenants, PATs, a user issuer and a job issuer."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from gateway.config import Settings
from gateway.identity.pat import mint
from policies.units import SECOND
from tests.gateway.identity.tokens import ISSUER, NOW, SECRET, jwk_of, rsa_key, sha256

__all__ = [
    "ADDRESS",
    "CI",
    "EXP",
    "JOB_CLAIMS",
    "PAT_A",
    "PAT_B",
    "PAT_EXPIRED",
    "PAT_NEW",
    "PAT_OLD",
    "PAT_UNKNOWN",
    "configured",
    "flipped",
]

CI = "https://ci.example.com"
ADDRESS = "192.0.2.7"
EXP = (NOW + 600) * SECOND

PAT_A, PAT_B, PAT_OLD, PAT_NEW, PAT_EXPIRED, PAT_UNKNOWN = (mint() for _ in range(6))
JOB_CLAIMS = {
    "iss": CI,
    "aud": "jobs",
    "namespace": "acme",
    "project": "acme/web",
    "job": "99",
    "tenant": None,
    "sub": None,
}


def configured(tmp_path: Path, **auth: Any) -> Settings:
    """Return settings with two tenants, PATs, a user issuer with a secret and a job issuer with a key set."""
    keys = tmp_path / "ci.json"
    keys.write_bytes(orjson.dumps({"keys": [jwk_of(rsa_key("ci"), kid="ci-1")]}))
    both = ["interactive", "batch"]
    user = {"issuer": ISSUER, "audience": "api", "algorithms": ["HS256"], "secret": SECRET}
    job = {"issuer": CI, "audience": "jobs", "jwks_file": str(keys), "tenants": ["acme"]}
    return Settings.model_validate(
        {
            "upstream": {"url": "http://127.0.0.1:9"},
            "backstop": {"quota": "100/s"},
            "auth": {"jwt": [user], "job": [job]} | auth,
            "tenants": [
                {
                    "id": "acme",
                    "credentials": [
                        {"id": "a", "pat": sha256(PAT_A), "classes": both},
                        {"id": "turning", "pat": [sha256(PAT_OLD), sha256(PAT_NEW)], "classes": ["batch"]},
                        {"id": "gone", "pat": sha256(PAT_EXPIRED), "expires": _instant(NOW - 1), "classes": both},
                        {"id": "night", "classes": ["batch"]},
                    ],
                },
                {"id": "globex", "credentials": [{"id": "b", "pat": sha256(PAT_B), "classes": both}]},
            ],
        }
    )


def _instant(seconds: int) -> Any:
    return datetime.fromtimestamp(seconds, UTC)


def flipped(token: bytes) -> bytes:
    """Return `token` with its last character changed."""
    return token[:-1] + (b"A" if token[-1:] != b"A" else b"B")
