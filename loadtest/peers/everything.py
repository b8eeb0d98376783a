"""The configuration under which Evenhand is measured: everything on, nothing in the way.

A JWT, cached for longer than a run takes, a quota of the key, of the tenant, seats, a share of the backstop, one named
policy, RateLimit fields, request ids, metrics and the decision log at its default sampling. Quotas are so wide that
nobody meets them, but for the credential `narrow`, which is refused nearly always.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import jwt

__all__ = ["AUDIENCE", "ISSUER", "NARROW", "WIDE", "authorization", "document", "jwks", "write"]

ISSUER = "https://id.example.com"
AUDIENCE = "api"
_SECRET = "a shared secret of a load test, 32 octets long or more"  # noqa: S105 - signs nothing but load
#: Credentials of each tenant.
WIDE, NARROW = "wide", "narrow"
#: A backstop that no load here reaches.
PLENTY = 1_000_000

_HEAD = """\
[server]
listen = "127.0.0.1:{listen}"
admin = "127.0.0.1:{admin}"
[upstream]
url = "http://127.0.0.1:{upstream}"
[backstop]
quota = "{backstop}/s"
[telemetry]
decision_log = "{log}"
[auth]
cache = "6h"
[[auth.jwt]]
issuer = "{issuer}"
audience = "{audience}"
algorithms = ["HS256"]
secret = "{secret}"
[[routes]]
name = "things"
path = "/v1/**"
[[policies]]
name = "per-credential"
match = {{ route = "things" }}
key = ["tenant", "credential"]
quota = "500000/s"
"""

_TENANT = """\
[[tenants]]
id = "tenant-{number}"
quota = "900000/s"
concurrency = 100000
[[tenants.credentials]]
id = "wide"
quota = "800000/s"
[[tenants.credentials]]
id = "narrow"
quota = "1/min burst 1"
"""


def document(*, listen: int, admin: int, upstream: int, log: Path, tenants: int = 1, backstop: int = PLENTY) -> str:
    """Return the TOML of a gateway on these loopback ports."""
    ports = {"listen": listen, "admin": admin, "upstream": upstream}
    auth = {"issuer": ISSUER, "audience": AUDIENCE, "secret": _SECRET}
    head = _HEAD.format(**ports, **auth, log=log, backstop=backstop)
    return head + "".join(_TENANT.format(number=number) for number in range(tenants))


def write(folder: Path, *, listen: int, admin: int, upstream: int, tenants: int = 1, backstop: int = PLENTY) -> Path:
    """Write the TOML into `folder`, where its log will be too, and return its path."""
    path = folder / "gateway.toml"
    ports = {"listen": listen, "admin": admin, "upstream": upstream}
    text = document(**ports, log=folder / "decisions.log", tenants=tenants, backstop=backstop)
    path.write_text(text, encoding="utf-8")
    return path


def jwks() -> str:
    """Return the key set that `authorization` signs by (RFC 7517)."""
    key = base64.urlsafe_b64encode(_SECRET.encode()).rstrip(b"=").decode()
    return json.dumps({"keys": [{"kty": "oct", "alg": "HS256", "k": key}]})


def authorization(tenant: int = 0, credential: str = WIDE) -> str:
    """Return the Authorization field of a credential, good for a day."""
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": int(time.time()) + 86_400,
        "tenant": f"tenant-{tenant}",
        "sub": credential,
    }
    return f"Bearer {jwt.encode(claims, _SECRET, algorithm='HS256')}"
