"""`evenhand explain`: a number, a paragraph, and an arithmetic that adds up, of any day."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.cli import run
from gateway.config import load
from gateway.history.schema import history_path
from policies.request import Kind, Principal
from tests.gateway.history.kept import Kept

__all__: list[str] = []

TEXT = """
[upstream]
url = "http://127.0.0.1:9"
[backstop]
quota = "1000/s"
[auth]
unknown = "anonymous"
[[tenants]]
id = "acme"
quota = "sized"
[[tenants.credentials]]
id = "ci"
[[tenants.credentials]]
id = "fixed"
quota = "7/s"
[[tenants]]
id = "plain"
"""


@pytest.fixture(autouse=True)
def _lived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine days of acme/ci at 40/s, a project beside it, and three days on which its own limit held it back."""
    monkeypatch.chdir(tmp_path)
    for name in ("EVENHAND_CONFIG", "EVENHAND_LISTEN"):
        monkeypatch.delenv(name, raising=False)
    file = Path("gateway.toml")
    file.write_text(TEXT, encoding="utf-8")
    loaded = load(file, {})
    kept = Kept(history_path(loaded.settings.store.path), loaded.policies)
    kept.use(10, who=Principal(Kind.JOB, "acme", "group/site"))
    kept.days(9, 400)
    kept.days(3, 800, refused="key")
    kept.stop()


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Return what the command says."""
    assert run(["explain", *arguments]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def total(text: str) -> float:
    """Return the sum of the terms of an explanation."""
    return sum(float(number) for number in re.findall(r"^  [a-z ]+  +([+-][\d.e-]+)", text, re.MULTILINE))


def test_a_sized_key(capsys: pytest.CaptureFixture[str]) -> None:
    """What it may spend, in one line; why, in one paragraph; the terms and their sum."""
    text = said(capsys, "acme/ci")
    first, _, paragraph, *_ = text.splitlines()
    assert first == "acme/ci: 60/s burst 60, enforced; sized from its own past."
    assert paragraph.startswith("On 2026-03-")
    assert "Its peak was 40/s, sustained, in the hour of 2026-03-09T10:00Z." in paragraph
    assert "That is 3 times what it was 30 days ago or began with." in paragraph
    assert 'To grant that, write quota = "' in paragraph
    assert total(text) == 60
    assert text.splitlines()[-1] == "  = 60 request units per second, burst 60"


def test_as_of_a_day(capsys: pytest.CaptureFixture[str]) -> None:
    """What held then, and why."""
    text = said(capsys, "acme/ci", "--as-of", "2026-03-03")
    assert text.startswith(
        "acme/ci, as of 2026-03-03: 20/s burst 20, in shadow: counted, not enforced; [sizing] initial"
    )
    assert "Until it has enough history it keeps [sizing] initial, 20/s burst 20, counted and not enforced." in text
    assert total(text) == 31.25
    before = said(capsys, "acme/ci", "--as-of", "2026-01-01")
    assert "[sizing] initial" in before


def test_other_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """A configured one, a project's, a tenant's with its credentials, a tenant without a bucket."""
    assert said(capsys, "acme/fixed") == "acme/fixed: 7/s burst 7, enforced; as gateway.toml says.\n"
    assert said(capsys, "acme/group%2Fsite").startswith("acme/group/site: 5.657/s burst 5.657, enforced; sized")
    tenant = said(capsys, "acme")
    assert tenant.startswith("acme: 60/s burst 60, enforced; sized from its own past.\n")
    assert "\n  acme/ci: 60/s burst 60, enforced; sized from its own past.\n" in tenant
    assert "\n  acme/fixed: 7/s burst 7, enforced; as gateway.toml says.\n" in tenant
    assert (
        said(capsys, "plain")
        == "plain: no bucket of its own; its credentials have theirs, and the fair share is by its weight.\n"
    )


def test_an_exemption_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """What holds now is the raised quota; of a past day nobody knows which exemptions there were."""
    entry = (
        '[[exemptions]]\nname = "{}"\nmatch = {{ tenant = "acme"{} }}\nmultiplier = {}\nreason = "r"\nowner = "o"\n'
        "expires = 2135-01-01T00:00:00Z\n"
    )
    text = TEXT + entry.format("launch", "", 4) + entry.format("gets", ', method = "GET"', 9)
    Path("gateway.toml").write_text(text, encoding="utf-8")
    told = "Exemption launch makes it 28/s burst 28 until 2135-01-01T00:00:00Z.\n"
    told += "Exemption gets raises some of its requests, in a bucket of their own.\n"
    assert told in said(capsys, "acme/fixed")
    assert "Exemption launch" in said(capsys, "acme")
    assert "Exemption" not in said(capsys, "acme/fixed", "--as-of", "2026-03-03")
    assert "Exemption" not in said(capsys, "plain")


def test_what_was_sized_before_it_was_configured(capsys: pytest.CaptureFixture[str]) -> None:
    """The configured number holds, and what the past comes to stands beside it."""
    file = Path("gateway.toml")
    file.write_text(TEXT.replace('id = "ci"', 'id = "ci"\nquota = "9/s"'), encoding="utf-8")
    text = said(capsys, "acme/ci")
    assert text.startswith("acme/ci: 9/s burst 9, enforced; as gateway.toml says.\n\nWere it sized, this would hold:\n")
    assert total(text) == 60


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["nobody"], 1, "evenhand: nobody: neither configured nor seen\n"),
        (["acme/nobody"], 1, "evenhand: acme/nobody: neither configured nor seen\n"),
        (["acme/"], 2, "evenhand: TENANT[/CREDENTIAL]: expected an id"),
        (
            ["acme", "--as-of", "yesterday"],
            2,
            "evenhand: --as-of: expected a date such as 2026-04-01, found yesterday\n",
        ),
    ],
)
def test_what_cannot_be_explained(
    arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown is 1, a wrong command line 2."""
    assert told in said(capsys, *arguments, code=code)  # after the warnings of the file


def test_without_a_history(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything configured has its start, and nothing a past."""
    for file in Path().glob("*.sqlite3*"):
        file.unlink()
    assert said(capsys, "acme/ci").startswith(
        "acme/ci: 20/s burst 20, in shadow: counted, not enforced; [sizing] initial"
    )


def test_a_history_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence."""
    Path("evenhand-history.sqlite3").write_bytes(b"noise" * 1000)
    assert "the history cannot be read" in said(capsys, "acme/ci", code=1)
