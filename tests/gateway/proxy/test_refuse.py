"""Every answer of our own, in every form (case 59; contract, section 6)."""

from __future__ import annotations

import html
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import http_sf
import orjson
import pytest

from gateway.clock import Clock
from gateway.ports import Decision, Headers, Rejection
from gateway.proxy.answer import Answer, Asked
from gateway.proxy.problems import BASE, PROBLEMS, problem
from gateway.proxy.refuse import Refuser
from policies.charge import Charge, Plan, Reading, Refusal
from policies.problem import TYPES, Wording
from policies.request import Class, Kind, Principal, RequestFacts
from policies.units import SECOND, Rate
from policies.verdict import Verdict

DOCS = Path(__file__).parents[3] / "docs" / "problems.md"
STATUSES = {400, 401, 403, 404, 405, 408, 413, 414, 417, 421, 429, 431, 500, 501, 502, 503, 504, 505, 508}
HOSTILE = "</p><script>alert(1)</script>*[x](https://evil.example)`&\"'"
FORMS = [b"", b"*/*", b"text/html", b"text/markdown", b"\xff nonsense;;q=,"]

refuser = Refuser(Wording(), Clock())


def said(answer: Answer, name: str) -> str | None:
    """Return the only value of a field, None without one."""
    values = [value.decode() for key, value in answer.headers if key.decode() == name]
    assert len(values) <= 1
    return values[0] if values else None


def decided(
    *refused: Refusal, tenant: str = "acme", credential: str = "ci", quota: int = 4
) -> tuple[Decision, Verdict, Refusal]:
    """Return a decision refused by `refused`, the first being named."""
    rate = Rate(Fraction(quota))
    charge = Charge("key", "key", rate.per_us, 8.0, 1.0, Class.BATCH, rate=rate)
    plan = Plan(tenant, credential, Class.BATCH, 1.0, (charge,), (), (), None)
    verdict = Verdict(plan, Reading(refused, (0.5,)), 0, refused[0], refused[0].wait_us)
    principal = Principal(Kind.USER, tenant, credential)
    return Decision("01JE", RequestFacts("GET", "/", "x"), principal, Class.BATCH, -1, 0, verdict), verdict, refused[0]


def undated(answer: Answer) -> Headers:
    """Return the fields but for the second in which it was made."""
    return [(name, value) for name, value in answer.headers if name != b"date"]


@pytest.mark.parametrize("accept", FORMS)
@pytest.mark.parametrize("code", PROBLEMS)
def test_case_059_every_problem_has_one_shape(code: str, accept: bytes) -> None:
    """Status in body and line agree, the length is right, nothing is stored, HEAD has the fields and no body."""
    rejection = Rejection(PROBLEMS[code].status, code, "")
    answer = refuser.reject(rejection, "01JE", Asked(False, accept))
    assert answer.status == rejection.status
    assert said(answer, "content-length") == str(len(answer.body))
    assert said(answer, "cache-control") == "no-store"
    assert said(answer, "x-request-id") == "01JE"
    assert said(answer, "date")
    if said(answer, "content-type") == "application/problem+json":
        body = orjson.loads(answer.body)
        assert list(body) == ["type", "title", "status", "detail", "instance"]
        assert body["status"] == answer.status
        assert body["type"] == BASE + code
        assert body["instance"] == "urn:evenhand:request:01JE"
    head = refuser.reject(rejection, "01JE", Asked(True, accept))
    assert (head.body, undated(head)) == (b"", undated(answer))


def test_every_status_of_the_contract_has_a_problem() -> None:
    """A closed list; 429 and 503 with a limit have words of their own besides."""
    assert {entry.status for entry in PROBLEMS.values()} == STATUSES
    assert all(entry.title and entry.detail.endswith(".") for entry in PROBLEMS.values())


def test_a_name_nobody_knows_is_answered_by_its_status() -> None:
    """No rejection is without words."""
    assert problem("no-such-name", 413) is PROBLEMS["content-too-large"]
    assert problem("no-such-name", 400) is PROBLEMS["bad-request"]
    assert problem("no-such-name", 299) is PROBLEMS["internal-error"]
    body = orjson.loads(refuser.reject(Rejection(413, "no-such-name", "Too big."), "x", Asked()).body)
    assert (body["detail"], body["title"]) == ("Too big.", "Content too large")


def test_every_problem_type_is_documented() -> None:
    """Each URI of our own has a section in docs/problems.md, and there is no section without a type."""
    sections = re.findall(r"^## ([a-z-]+)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    own = {uri.removeprefix(BASE) for uri, _ in TYPES.values() if uri.startswith(BASE)}
    assert sorted(sections) == sorted(set(PROBLEMS) | own)


@pytest.mark.parametrize(
    ("code", "challenge"),
    [("credential-required", "Bearer"), ("invalid-credential", 'Bearer error="invalid_token"')],
)
def test_401_challenges(code: str, challenge: str) -> None:
    """RFC 6750 section 3: no error for a caller that presented nothing."""
    assert said(refuser.reject(Rejection(401, code, ""), "x", Asked()), "www-authenticate") == challenge


def test_405_says_what_is_allowed_and_503_when() -> None:
    """RFC 9110 sections 15.5.6 and 10.2.3."""
    methods = said(refuser.reject(Rejection(405, "method-not-allowed", ""), "x", Asked()), "allow")
    assert methods == "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
    assert said(refuser.reject(Rejection(503, "unavailable", ""), "x", Asked()), "retry-after") == "1"


def test_a_refusal_carries_what_the_contract_says() -> None:
    """Retry-After, both RateLimit fields and Evenhand-Refused beside a body that agrees with them."""
    answer = refuser.refuse(*decided(Refusal("key", 1_240_000), Refusal("tenant", 5)), Asked())
    assert answer.status == 429
    assert said(answer, "retry-after") == "2"
    assert said(answer, "ratelimit-policy") == '"key";q=4;w=1'
    assert said(answer, "ratelimit") == '"key";r=0;t=2'
    assert said(answer, "evenhand-refused") == "key"
    body = orjson.loads(answer.body)
    assert body["violated-policies"] == ["key", "tenant"]
    assert (body["limit"], body["retry_after"], body["retry_after_ms"]) == ("key", 2, 1240)


def test_the_name_of_a_policy_is_encoded_in_fields_and_plain_in_json() -> None:
    """`per é` is an id like any other."""
    answer = refuser.refuse(*decided(Refusal("per é", SECOND)), Asked())
    assert said(answer, "evenhand-refused") == "per%20%C3%A9"
    assert orjson.loads(answer.body)["limit"] == "per é"


def test_no_connection_is_told_as_a_limit() -> None:
    """503, with the name `connections` and a second to wait; the caller's own limits stand beside it."""
    decision, verdict, _ = decided(Refusal("key", 1))
    verdict.reading.refused, verdict.refusal = (), None
    answer = refuser.no_connection(decision, verdict, Asked())
    body = orjson.loads(answer.body)
    assert (answer.status, said(answer, "retry-after"), said(answer, "evenhand-refused")) == (503, "1", "connections")
    assert (body["limit"], body["violated-policies"], body["status"]) == ("connections", ["connections"], 503)
    assert said(answer, "ratelimit") == '"key";r=0;t=2'


@pytest.mark.parametrize("accept", [b"text/html", b"text/markdown"])
def test_hostile_names_are_data(accept: bytes) -> None:
    """A tenant's id can break out of neither HTML nor Markdown."""
    answer = refuser.refuse(*decided(Refusal("key", SECOND), tenant=HOSTILE, credential=HOSTILE), Asked(False, accept))
    text = answer.body.decode()
    assert said(answer, "content-length") == str(len(answer.body))
    if accept == b"text/html":
        assert "<script" not in text
        assert text.count(html.escape(HOSTILE)) == 4
        assert said(answer, "content-security-policy") == "default-src 'none'"
    else:
        assert not re.search(r"(?<!\\)[<>\[\]`*&]", text)
        assert "https://evil" not in text


def test_json_keeps_names_as_they_are() -> None:
    """JSON has an escape for everything."""
    answer = refuser.refuse(*decided(Refusal("key", SECOND), tenant=HOSTILE), Asked())
    assert orjson.loads(answer.body)["tenant"] == HOSTILE


@pytest.mark.parametrize(
    ("cors", "origin", "allowed"),
    [
        ((), b"https://app.example.com", None),
        (("https://app.example.com",), b"https://app.example.com", "https://app.example.com"),
        (("https://app.example.com",), b"https://APP.example.com", "https://APP.example.com"),
        (("https://app.example.com",), b"https://evil.example.com", None),
        (("https://app.example.com",), b"null", None),
        (("https://app.example.com",), None, None),
        (("*",), b"https://any.example.com", "*"),
        (("*",), None, None),
    ],
)
def test_cors(cors: tuple[str, ...], origin: bytes | None, allowed: str | None) -> None:
    """A configured origin may read a refusal and what it says of retrying; no other may."""
    answer = Refuser(Wording(), Clock(), cors).refuse(*decided(Refusal("key", SECOND)), Asked(False, None, origin))
    assert said(answer, "access-control-allow-origin") == allowed
    assert said(answer, "vary") == ("Origin" if cors else None)
    exposed = said(answer, "access-control-expose-headers")
    assert (exposed is not None) is (allowed is not None)
    assert exposed in (
        None,
        "Retry-After, RateLimit, RateLimit-Policy, Evenhand-Refused, Evenhand-Degraded, X-Request-Id",
    )


def test_the_bytes_on_the_wire() -> None:
    """One piece: status line, fields, Connection where the connection ends, body."""
    answer = refuser.reject(Rejection(400, "bad-host", ""), "x", Asked())
    top, _, body = answer.wire().partition(b"\r\n\r\n")
    assert answer.close
    assert top.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n")
    assert top.endswith(b"\r\nconnection: close")
    assert body == answer.body
    assert b"connection" not in refuser.reject(Rejection(401, "x", ""), "x", Asked()).wire()


def test_dates_are_left_to_a_server_that_writes_them() -> None:
    """`stamps` is false under a server that adds Date itself."""
    assert said(Refuser(Wording(), Clock(), stamps=False).reject(Rejection(400, "x", ""), "x", Asked()), "date") is None


def test_ratelimit_fields_of_a_refusal_are_structured() -> None:
    """As an independent parser reads them."""
    answer = refuser.refuse(*decided(Refusal("key", SECOND)), Asked())
    policy: Any = http_sf.parse((said(answer, "ratelimit-policy") or "").encode(), tltype="list")
    assert policy == [("key", {"q": 4, "w": 1})]
