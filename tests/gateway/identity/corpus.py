"""The corpus: requests by slot, kind of token, validity and repetition, each with who it must be charged to.

Expectations are written down beside the tokens, by kind; nothing here asks the code under test. `World` says what the
configuration and the services around it know; both the resolver and a whole gateway are run through the same rows.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.gateway.identity.tokens import AUDIENCE, ISSUER, SECRET, claims, hs256, unsigned
from tests.wire.tokens import mistyped, pat

__all__ = ["CI", "INTROSPECTED", "JOB_SECRET", "SLOTS", "Row", "Who", "auth", "corpus", "listed"]

CI = "https://ci.example.com"
JOB_SECRET = "another-shared-secret-of-thirty-two-bytes"

Fields = tuple[tuple[str, str], ...]

SLOTS = ("bearer", "basic", "private-token", "job-token", "x-api-key")


@dataclass(frozen=True, slots=True)
class Who:
    """Who a request must be charged to: kind, tenant and credential ("" is its address)."""

    kind: str
    tenant: str
    credential: str = ""


ANONYMOUS = Who("anonymous", "anonymous")
REJECTED = Who("rejected", "rejected")

#: What the introspection service knows.
INTROSPECTED = {"opaque-alpha": ("alpha", "svc"), "opaque.with.dots": ("alpha", "dotted")}


@dataclass(frozen=True, slots=True)
class Row:
    """One request: its fields, whom it must be charged to, and the status a gateway answers with."""

    name: str
    fields: Fields
    who: Who
    status: int


def listed(**rules: Any) -> list[dict[str, Any]]:
    """Return the `[[tenants]]` that the corpus needs; `rules` go to each credential."""
    past = rules.pop("past")
    alpha: list[dict[str, Any]] = [
        {"id": "ci", "pat": pat("alpha/ci").digest},
        {"id": "turning", "pat": [pat("alpha/old").digest, pat("alpha/new").digest]},
        {"id": "gone", "pat": pat("alpha/gone").digest, "expires": past},
        {"id": "worker"},
        {"id": "svc"},
    ]
    beta: list[dict[str, Any]] = [{"id": "ci", "pat": pat("beta/ci").digest}]
    return [
        {"id": tenant, "credentials": [credential | rules for credential in credentials]}
        for tenant, credentials in (("alpha", alpha), ("beta", beta))
    ]


def auth(introspection_url: str) -> dict[str, Any]:
    """Return the `[auth]` that the corpus needs."""
    issuer = {"algorithms": ["HS256"], "audience": AUDIENCE}
    return {
        "jwt": [{**issuer, "issuer": ISSUER, "secret": SECRET, "tenants": ["alpha", "un*"]}],
        "job": [{**issuer, "issuer": CI, "secret": JOB_SECRET, "tenants": ["alpha"]}],
        "introspection": {
            "url": introspection_url,
            "client_id": "evenhand",
            "client_secret": "s" * 16,
            "cache": "1h",
            "tenants": ["alpha"],
        },
    }


def good(now: int, job: str) -> dict[str, tuple[str, Who]]:
    """Return tokens that prove somebody, by name; `job` is the token of a registered job of alpha's project web."""
    user, of_job = {"exp": now + 3600, "iat": now}, {"iss": CI, "namespace": "alpha", "tenant": None, "sub": None}
    as_job = claims(**user, **of_job, project="alpha/api", job=7)
    return {
        "pat": (pat("alpha/ci").token, Who("user", "alpha", "ci")),
        "pat-old": (pat("alpha/old").token, Who("user", "alpha", "turning")),
        "pat-new": (pat("alpha/new").token, Who("user", "alpha", "turning")),
        "pat-beta": (pat("beta/ci").token, Who("user", "beta", "ci")),
        "jwt": (hs256(claims(**user, tenant="alpha", sub="worker")).decode(), Who("user", "alpha", "worker")),
        "jwt-unlisted": (hs256(claims(**user, tenant="unlisted", sub="me")).decode(), Who("user", "unlisted", "me")),
        "job-jwt": (hs256(as_job, JOB_SECRET).decode(), Who("job", "alpha", "alpha/api")),
        "job-opaque": (job, Who("job", "alpha", "alpha/web")),
        **{f"told-{name}": (name, Who("user", *whose)) for name, whose in INTROSPECTED.items()},
    }


def bad(now: int, ended_job: str) -> dict[str, str]:
    """Return tokens that prove nobody, by name."""
    alive = {"exp": now + 3600, "iat": now, "tenant": "alpha"}
    forged = {"iss": CI, "namespace": "beta", "tenant": None, "sub": None, "project": "p", "job": "1"}
    secret = pat("alpha/ci").token
    jwt = hs256(claims(**alive, sub="worker")).decode()
    return {
        "pat-mistyped": mistyped(secret),
        "pat-unknown": pat("nobody").token,
        "pat-expired": pat("alpha/gone").token,
        "pat-short": secret[:-1],
        "pat-long": secret + "0",
        "pat-other-case": secret.swapcase(),
        "pat-as-job": secret.replace("evh_pat_", "evh_job_"),
        "prefix-only": "evh_pat_",
        "prefix-unknown": "evh_sat_" + secret[8:],
        "job-unknown": pat("nobody", "evh_job_").token,
        "job-ended": ended_job,
        "jwt-expired": hs256(claims(**alive | {"exp": now - 1}, sub="worker")).decode(),
        "jwt-early": hs256(claims(**alive, sub="worker", nbf=now + 600)).decode(),
        "jwt-forged": jwt[:-2] + ("AA" if jwt[-2:] != "AA" else "BB"),
        "jwt-other-key": hs256(claims(**alive, sub="worker"), JOB_SECRET).decode(),
        "jwt-other-audience": hs256(claims(**alive, sub="worker", aud="elsewhere")).decode(),
        "jwt-other-tenant": hs256(claims(**alive | {"tenant": "beta"}, sub="worker")).decode(),
        "jwt-none": unsigned({"alg": "none"}, claims(**alive, sub="worker")).decode() + ".",
        "jwt-unknown-issuer": hs256(claims(**alive, sub="worker", iss="https://elsewhere")).decode(),
        "job-jwt-other-tenant": hs256(claims(**alive | forged), JOB_SECRET).decode(),
        "two-dots": "a.b.c",
        "opaque-unknown": "glpat-xxxxxxxxxxxxxxxxxxxx",
        "opaque-of-nobody": json.dumps({"a": 1}),
    }


def slotted(slot: str, token: str) -> tuple[str, str]:
    """Return the field that carries `token` in a slot."""
    if slot == "bearer":
        return "Authorization", f"Bearer {token}"
    if slot == "basic":
        return "Authorization", "Basic " + base64.b64encode(f"me:{token}".encode()).decode()
    return slot.upper(), token


def repeated(slot: str, token: str) -> dict[str, Fields]:
    """Return the ways of saying the same credential, by name."""
    one = slotted(slot, token)
    other = SLOTS[(SLOTS.index(slot) + 2) % len(SLOTS)]
    return {
        "once": (one,),
        "twice": (one, one),
        "beside": (slotted(other, token), one),
        "beside-empty": (("X-Api-Key" if slot != "x-api-key" else "Private-Token", ""), one),
        "other-case": ((one[0].swapcase(), one[1]),),
    }


def _proved(now: int, job: str) -> Iterator[Row]:
    for name, (token, who) in good(now, job).items():
        for slot in SLOTS:
            for times, fields in repeated(slot, token).items():
                yield Row(f"{name} {slot} {times}", fields, who, 200)


def _refused(now: int, job: str, ended: str) -> Iterator[Row]:
    for number, (name, token) in enumerate(bad(now, ended).items()):
        for slot in SLOTS:
            yield Row(f"{name} {slot} once", (slotted(slot, token),), REJECTED, 401)
        slot = SLOTS[number % len(SLOTS)]
        yield Row(f"{name} {slot} twice", repeated(slot, token)["twice"], REJECTED, 401)
        proper = slotted(SLOTS[(number + 1) % len(SLOTS)], good(now, job)["pat"][0])
        # Basic and Bearer share a field: two of its lines, or two fields, it is two credentials all the same.
        yield Row(f"{name} {slot} beside a good one", (proper, slotted(slot, token)), REJECTED, 400)


def _two(now: int, job: str) -> Iterator[Row]:
    tokens = [token for token, _ in good(now, job).values()]
    for number, slot in enumerate(SLOTS):
        one, other = tokens[number], tokens[(number + 3) % len(tokens)]
        pair = (slotted(slot, one), slotted(SLOTS[(number + 1) % len(SLOTS)], other))
        yield Row(f"two good {slot}", pair, REJECTED, 400)
        yield Row(
            f"joined {slot}", (slotted(slot, f"{one}, {other}" if slot != "basic" else one), pair[1]), REJECTED, 400
        )


def _nobody() -> Iterator[Row]:
    for name, fields in {
        "none": (),
        "empty bearer": (("Authorization", "Bearer "),),
        "empty scheme": (("Authorization", ""),),
        "empty slots": (("PRIVATE-TOKEN", ""), ("JOB-TOKEN", " "), ("X-API-Key", "")),
        "empty basic": (("Authorization", "Basic " + base64.b64encode(b":").decode()),),
        "proxy-authorization": (("Proxy-Authorization", "Bearer " + pat("alpha/ci").token),),
        "cookie": (("Cookie", "token=" + pat("alpha/ci").token),),
        "forged headers": (("Evenhand-Tenant", "alpha"), ("Evenhand-Credential", "ci"), ("X-User", "alpha")),
    }.items():
        yield Row(f"anonymous {name}", fields, ANONYMOUS, 200)
    for name, value in {
        "digest": 'Digest username="alpha", realm="x"',
        "basic-junk": "Basic !!!",
        "basic-no-password": "Basic " + base64.b64encode(b"me:").decode(),
        "aws": "AWS4-HMAC-SHA256 Credential=AKIA/1/2, SignedHeaders=host, Signature=00",
    }.items():
        yield Row(f"foreign {name}", (("Authorization", value),), REJECTED, 401)


def corpus(now: int, job: str, ended: str) -> list[Row]:
    """Return every row; `job` and `ended` are tokens of a job that runs and of one that has ended."""
    return [*_proved(now, job), *_refused(now, job, ended), *_two(now, job), *_nobody()]
