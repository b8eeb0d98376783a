"""Tokens of our own making."""

from __future__ import annotations

import hashlib
import random
import re
import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity import pat
from gateway.identity.answer import Answer
from gateway.identity.pat import Pats, digest, mint, well_formed
from gateway.ports import Resolution
from policies.request import Kind, Principal
from policies.units import SECOND

__all__: list[str] = []

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase


def oracle(body: str) -> str:
    """Write CRC-32 in base62 the long way."""
    value, out = zlib.crc32(body.encode()), ""
    while value:
        value, digit = divmod(value, 62)
        out = ALPHABET[digit] + out
    return out.rjust(6, "0")


@given(st.integers())
def test_a_minted_token_has_the_contracts_form(seed: int) -> None:
    """Prefix, 30 of base62, then the checksum as base62, big-endian and zero-padded."""
    token = mint(random.Random(seed))
    assert re.fullmatch(r"evh_pat_[0-9A-Za-z]{36}", token)
    assert token[38:] == oracle(token[8:38])
    assert well_formed(token.encode())


def test_the_checksum_is_zero_padded() -> None:
    """A small CRC keeps its length."""
    body = next(b for n in range(100_000) if zlib.crc32((b := f"{n:030d}").encode()) < 62**4)
    assert oracle(body).startswith("00")
    assert well_formed(f"evh_pat_{body}{oracle(body)}".encode())


def test_two_tokens_differ_and_a_prefix_can_be_chosen() -> None:
    """The source is the system's by default."""
    assert mint() != mint()
    assert mint(prefix=pat.JOB_PREFIX).startswith("evh_job_")


def test_the_digest_is_what_the_configuration_keeps() -> None:
    """`sha256:` and the hash of the whole token."""
    assert digest("evh_pat_x") == "sha256:" + hashlib.sha256(b"evh_pat_x").hexdigest()


@given(st.integers(0, 43), st.sampled_from(ALPHABET + "_-=\0"))
def test_one_wrong_character_is_a_typo(at: int, char: str) -> None:
    """CRC-32 finds every single error, so a typo never reaches a lookup."""
    token = mint(random.Random(1))
    wrong = token[:at] + char + token[at + 1 :]
    assert (wrong == token) is well_formed(wrong.encode()) or at < 8


@pytest.mark.parametrize("change", (lambda t: t[:-1], lambda t: t + "0", lambda t: t[:8], lambda t: t[:8] + "é" * 18))
def test_another_length_or_alphabet_is_not_ours(change: object) -> None:
    """The length is exact, and only ASCII counts as alphanumeric."""
    assert callable(change)
    assert not well_formed(change(mint()).encode())


def table(*tokens: str, expires_us: int | None = None) -> Pats:
    principal = Principal(Kind.USER, "acme", "ci", expires_us=expires_us)
    return Pats((hashlib.sha256(token.encode()).digest(), principal) for token in tokens)


def test_a_known_token_proves_its_principal_and_is_consumed() -> None:
    """While rotating, two tokens are one principal."""
    old, new = mint(), mint()
    pats = table(old, new)
    for token in (old, new):
        answer = pats.check(token.encode(), 0)
        assert isinstance(answer, Resolution)
        assert answer.principal == Principal(Kind.USER, "acme", "ci")
        assert answer.consumed


@pytest.mark.parametrize(("wall", "valid"), ((9, True), (10, False), (11, False)))
def test_a_token_ends_at_its_expiry(wall: int, valid: bool) -> None:
    """`expires` is the first instant at which it is no longer good."""
    token = mint()
    answer = table(token, expires_us=10 * SECOND).check(token.encode(), wall * SECOND)
    assert isinstance(answer, Resolution) is valid


def test_case_021_every_kind_of_failure_is_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown, wrong secret, revoked and expired tokens cost one hash of the same length, and get one answer."""
    hashed: list[int] = []
    real = hashlib.sha256

    def counted(data: bytes) -> object:
        hashed.append(len(data))
        return real(data)

    good, expired, revoked, unknown = mint(), mint(), mint(), mint()
    wrong_body = good[8:37] + ("0" if good[37] != "0" else "1")
    wrong = f"evh_pat_{wrong_body}{oracle(wrong_body)}"
    pats = Pats(
        [
            (real(good.encode()).digest(), Principal(Kind.USER, "acme", "ci")),
            (real(expired.encode()).digest(), Principal(Kind.USER, "acme", "old", expires_us=5)),
        ]
    )
    monkeypatch.setattr(hashlib, "sha256", counted)
    for token in (unknown, wrong, revoked, expired):
        assert pats.check(token.encode(), 10) is Answer.INVALID
    assert hashed == [44] * 4
    assert pats.check((good[:-1] + "_").encode(), 10) is Answer.INVALID
    assert hashed == [44] * 4, "a typo is refused without a lookup"
