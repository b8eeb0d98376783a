"""The one resolver: slot x kind x validity x repetition, and what is never done."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Settings
from gateway.errors import ConfigError
from gateway.identity.credentials import CREDENTIAL_FIELDS
from gateway.identity.pat import mint
from gateway.identity.resolver import AMBIGUOUS, INVALID, REQUIRED, build_resolver
from gateway.ports import Headers, Rejection, Resolution, Resolver
from policies.request import Class, Kind, Principal
from tests.gateway.identity.configured import (
    ADDRESS,
    EXP,
    JOB_CLAIMS,
    PAT_A,
    PAT_B,
    PAT_EXPIRED,
    PAT_NEW,
    PAT_OLD,
    PAT_UNKNOWN,
    configured,
    flipped,
)
from tests.gateway.identity.tokens import (
    ISSUER,
    NOW,
    ManualClock,
    claims,
    hs256,
    rs256,
    rsa_key,
)

__all__: list[str] = []

# ---- what is presented, and what it should prove ----

Proof = Principal | Rejection | None  # None: left to the upstream or refused, as `unknown` says


class Item(NamedTuple):
    name: str
    token: bytes
    proof: Proof


def user(tenant: str, credential: str, highest: Class = Class.INTERACTIVE, **more: Any) -> Principal:
    return Principal(Kind.USER, tenant, credential, highest, **more)


def items() -> Iterator[Item]:
    pat, jwt = PAT_A.encode(), hs256(claims())
    job = rs256(claims(**JOB_CLAIMS), rsa_key("ci"), kid="ci-1")
    batch = Class.BATCH
    yield Item("pat", pat, user("acme", "a"))
    yield Item("pat of another", PAT_B.encode(), user("globex", "b"))
    yield Item("pat, old of two", PAT_OLD.encode(), user("acme", "turning", batch))
    yield Item("pat, new of two", PAT_NEW.encode(), user("acme", "turning", batch))
    yield Item("pat, expired", PAT_EXPIRED.encode(), INVALID)
    yield Item("pat, unknown", PAT_UNKNOWN.encode(), INVALID)
    yield Item("pat, flipped", flipped(pat), INVALID)
    yield Item("pat, cut", pat[:-1], INVALID)
    yield Item("pat, prefix only", b"evh_pat_", INVALID)
    yield Item("opaque job", mint(prefix="evh_job_").encode(), INVALID)
    yield Item("opaque job, flipped", flipped(mint(prefix="evh_job_").encode()), INVALID)
    yield Item("jwt", jwt, user("acme", "sub-1", expires_us=EXP))
    yield Item("jwt of a ruled credential", hs256(claims(sub="night")), user("acme", "night", batch, expires_us=EXP))
    yield Item("jwt, unlisted", hs256(claims(tenant="new")), user("new", "sub-1", listed=False, expires_us=EXP))
    yield Item("jwt, expired", hs256(claims(exp=NOW)), INVALID)
    yield Item("jwt, flipped", flipped(jwt), INVALID)
    yield Item("jwt, other secret", hs256(claims(), "x" * 40), INVALID)
    yield Item("jwt, other issuer", hs256(claims(iss="https://else.example")), None)
    yield Item("job", job, Principal(Kind.JOB, "acme", "acme/web", batch, job="99", expires_us=EXP))
    yield Item("job, other tenant", rs256(claims(**JOB_CLAIMS | {"namespace": "globex"}), rsa_key("ci")), INVALID)
    yield Item(
        "job, numbered project",
        rs256(claims(**JOB_CLAIMS | {"project": 4242, "job": 99}), rsa_key("ci")),
        Principal(Kind.JOB, "acme", "4242", batch, job="99", expires_us=EXP),
    )
    yield Item("job, project true", rs256(claims(**JOB_CLAIMS | {"project": True}), rsa_key("ci")), INVALID)
    yield Item("job, project 1.5", rs256(claims(**JOB_CLAIMS | {"project": 1.5}), rsa_key("ci")), INVALID)
    yield Item("job, no project", rs256(claims(**JOB_CLAIMS | {"project": None}), rsa_key("ci")), INVALID)
    yield Item("job, no number", rs256(claims(**JOB_CLAIMS | {"job": None}), rsa_key("ci")), INVALID)
    yield Item("job, flipped", flipped(job), INVALID)
    yield Item("opaque", b"sk_live_4242", None)
    yield Item("nearly ours", b"evh_xyz_" + b"0" * 36, None)
    yield Item("long", b"x" * 20_000, None)


Slot = Callable[[bytes], tuple[bytes, bytes]]
SLOTS: dict[str, Slot] = {
    "bearer": lambda token: (b"authorization", b"Bearer " + token),
    "basic": lambda token: (b"authorization", b"Basic " + base64.b64encode(b"x:" + token)),
    "private-token": lambda token: (b"private-token", token),
    "job-token": lambda token: (b"job-token", token),
    "x-api-key": lambda token: (b"x-api-key", token),
}
ALL = tuple(items())
#: A credential beside the one under test: always a different one.
SECOND_TOKEN = b"another-credential"


class Row(NamedTuple):
    name: str
    headers: Headers
    proof: Proof


def corpus() -> Iterator[Row]:
    """Yield every item in every slot: alone, twice the same (same and other slot), empty beside it, two different."""
    for item, (slot, put) in itertools.product(ALL, SLOTS.items()):
        name = f"{item.name} in {slot}"
        other = SLOTS["x-api-key" if slot != "x-api-key" else "bearer"]
        yield Row(name, [(b"host", b"h"), put(item.token), (b"accept", b"*/*")], item.proof)
        yield Row(f"{name}, twice", [put(item.token), put(item.token)], item.proof)
        yield Row(f"{name}, and another slot", [other(item.token), put(item.token)], item.proof)
        yield Row(f"{name}, beside an empty slot", [other(b""), put(item.token), (b"job-token", b" ")], item.proof)
        yield Row(f"{name}, and a different one", [put(item.token), other(SECOND_TOKEN)], AMBIGUOUS)
        yield Row(f"{name}, repeated with a different one", [put(SECOND_TOKEN), put(item.token)], AMBIGUOUS)
        if slot != "basic":
            field, value = put(item.token)
            yield Row(f"{name}, joined", [(field, value + b", " + SECOND_TOKEN)], AMBIGUOUS)


ROWS = tuple(corpus())

STRANGERS = {Kind.ANONYMOUS: "anonymous", Kind.PREFLIGHT: "anonymous", Kind.REJECTED: "rejected"}


def stranger(kind: Kind, rejection: Rejection | None = None) -> Resolution:
    return Resolution(Principal(kind, STRANGERS[kind], ADDRESS), rejection, consumed=False)


def expected(proof: Proof, unknown: str) -> Resolution:
    if isinstance(proof, Principal):
        return Resolution(proof, None, consumed=True)
    if proof is None and unknown == "anonymous":
        return stranger(Kind.ANONYMOUS)
    return stranger(Kind.REJECTED, proof or INVALID)


def test_the_corpus_is_large_enough() -> None:
    """At least 300 rows, or something was lost."""
    assert len(ROWS) >= 300
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("unknown", ("reject", "anonymous"))
def test_every_row_proves_exactly_what_it_should(tmp_path: Path, unknown: str) -> None:
    """One principal for each request, the same on the first call and on a remembered one; never by the slot."""
    resolver = build_resolver(configured(tmp_path, unknown=unknown), ManualClock())
    wrong = [
        (row.name, got)
        for _ in range(2)
        for row in ROWS
        if (got := resolver.resolve(row.headers, ADDRESS, preflight=False)) != expected(row.proof, unknown)
    ]
    assert wrong == []


FOREIGN: Headers = [(b"authorization", b"Digest username=x, response=y")]
BAD: Headers = [(b"private-token", PAT_UNKNOWN.encode())]
GOOD: Headers = [(b"private-token", PAT_A.encode())]
TWO: Headers = [*BAD, *GOOD]


@pytest.mark.parametrize(
    ("headers", "preflight", "anonymous", "unknown", "kind", "rejection"),
    (
        ([], False, True, "reject", Kind.ANONYMOUS, None),
        ([], False, False, "reject", Kind.REJECTED, REQUIRED),
        ([], True, True, "reject", Kind.PREFLIGHT, None),
        ([], True, False, "reject", Kind.PREFLIGHT, None),
        (FOREIGN, False, True, "reject", Kind.REJECTED, INVALID),
        (FOREIGN, True, True, "reject", Kind.REJECTED, INVALID),
        (FOREIGN, False, True, "anonymous", Kind.ANONYMOUS, None),
        (FOREIGN, False, False, "anonymous", Kind.ANONYMOUS, None),
        (FOREIGN, True, False, "anonymous", Kind.PREFLIGHT, None),
        (BAD, False, True, "anonymous", Kind.REJECTED, INVALID),
        (BAD, True, True, "anonymous", Kind.REJECTED, INVALID),
        (TWO, False, True, "anonymous", Kind.REJECTED, AMBIGUOUS),
        (TWO, True, False, "reject", Kind.REJECTED, AMBIGUOUS),
        (GOOD, True, False, "reject", Kind.USER, None),
        ([(b"private-token", b"")], False, False, "reject", Kind.REJECTED, REQUIRED),
    ),
)
def test_those_who_prove_nothing(
    tmp_path: Path,
    headers: Headers,
    preflight: bool,
    anonymous: bool,
    unknown: str,
    kind: Kind,
    rejection: Rejection | None,
) -> None:
    """`anonymous`, `unknown` and a preflight each decide their own row and no other."""
    resolver = build_resolver(configured(tmp_path, anonymous=anonymous, unknown=unknown), ManualClock())
    resolution = resolver.resolve(headers, ADDRESS, preflight=preflight)
    assert (resolution.principal.kind, resolution.rejection) == (kind, rejection)
    assert resolution.consumed is (kind is Kind.USER)
    if kind is not Kind.USER:
        assert resolution.principal.credential == ADDRESS
        assert resolution.principal.tenant == STRANGERS[kind]


def test_without_entries_a_foreign_token_is_not_even_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In front of an API that checks tokens itself, its tokens cost nothing here."""
    settings = Settings.model_validate(
        {
            "upstream": {"url": "http://127.0.0.1:9"},
            "backstop": {"quota": "1/s"},
            "auth": {"unknown": "anonymous"},
        }
    )
    resolver = build_resolver(settings, ManualClock())
    monkeypatch.setattr(hashlib, "sha256", None)
    assert resolver.resolve([(b"x-api-key", b"sk")], ADDRESS, preflight=False) == stranger(Kind.ANONYMOUS)


# ---- start ----


def test_keys_that_cannot_be_used_stop_the_start(tmp_path: Path) -> None:
    """The fault says where; `check` has found most of them before."""
    good = configured(tmp_path)
    (tmp_path / "ci.json").write_text('{"keys": [{"kty": "oct", "k": "AAAA"}]}')
    with pytest.raises(ConfigError) as caught:
        build_resolver(good, ManualClock())
    assert caught.value.faults[0].path == "auth.job[0].jwks_file"


def test_an_issuer_whose_keys_are_not_there_yet_proves_nothing(tmp_path: Path) -> None:
    """A key set at an address verifies nothing for now, and its tokens are not somebody else's."""
    issuer = {"issuer": ISSUER, "audience": "api", "jwks_url": "https://id.example.com/jwks.json"}
    resolver = build_resolver(configured(tmp_path, jwt=[issuer], unknown="anonymous"), ManualClock())
    token = rs256(claims(), rsa_key("issuer"))
    assert resolver.resolve([(b"x-api-key", token)], ADDRESS, preflight=False) == stranger(Kind.REJECTED, INVALID)


# ---- whatever bytes ----

SOME = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([item.token for item in ALL]),
    st.tuples(st.sampled_from([item.token for item in ALL]), st.binary(max_size=3)).map(b"".join),
)


@given(st.lists(st.tuples(st.sampled_from([*sorted(CREDENTIAL_FIELDS), b"host"]), SOME | SOME.map(b"Bearer ".__add__))))
def test_no_header_bytes_can_raise(headers: Headers) -> None:
    """Whatever the fields hold there is one principal, and a rejected one is never a tenant."""
    resolution = RESOLVER[0].resolve(headers, ADDRESS, preflight=False)
    if resolution.rejection is not None:
        assert resolution.principal == Principal(Kind.REJECTED, "rejected", ADDRESS)


RESOLVER: list[Resolver] = []


@pytest.fixture(autouse=True, scope="module")
def _resolver(tmp_path_factory: pytest.TempPathFactory) -> None:
    RESOLVER.append(build_resolver(configured(tmp_path_factory.mktemp("keys")), ManualClock()))


def test_case_021_one_body_and_one_hash_for_every_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown, wrong, revoked and expired PATs make the same number of hashes and the very same rejection."""
    resolver = build_resolver(configured(tmp_path), ManualClock())
    calls: list[int] = []
    real = hashlib.sha256

    def counted(data: bytes) -> Any:
        calls.append(len(data))
        return real(data)

    monkeypatch.setattr(hashlib, "sha256", counted)
    answers = [
        resolver.resolve([(b"authorization", b"Bearer " + token.encode())], ADDRESS, preflight=False)
        for token in (PAT_UNKNOWN, PAT_EXPIRED, mint())
    ]
    assert calls == [44, 44, 44]
    assert all(answer is answers[0] for answer in answers)
