"""What is allowed and probably not meant, and what is accepted and not there yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.config.pending import PENDING
from gateway.config.settings import Settings
from gateway.config.table import fields_of, follow
from tests.gateway.config.documents import NOW, VALID_PAT, loaded

__all__: list[str] = []

QUIET = '[auth]\nunknown = "anonymous"\n'
NOT_YET = "is accepted, and has no effect yet"


def warnings(folder: Path, text: str) -> list[str]:
    """Return what is told of a document that is good."""
    return [str(warning) for warning in loaded(folder, text).warnings]


NOBODY = (
    "auth.unknown: no PAT, issuer or introspection is configured, so every caller with a credential gets 401; "
    '"anonymous" would forward it'
)


@pytest.mark.parametrize(
    ("text", "told"),
    (
        ("", [NOBODY]),
        ('[[tenants]]\nid = "a"\n[[tenants.credentials]]\nid = "c"\n', [NOBODY]),
        (f'[[tenants]]\nid = "a"\n[[tenants.credentials]]\nid = "c"\npat = "{VALID_PAT}"\n', []),
        (f'[[auth.jwt]]\nissuer = "i"\naudience = "a"\nsecret = "{"s" * 32}"\n', []),
        (QUIET, []),
    ),
)
def test_it_is_told_that_every_credential_would_be_rejected(text: str, told: list[str], tmp_path: Path) -> None:
    """A gateway in front of an API that checks tokens itself would otherwise answer 401 to everybody."""
    assert warnings(tmp_path, text) == told


def test_it_is_told_what_opens_more_than_it_seems(tmp_path: Path) -> None:
    """Trust in everybody, tenants that anybody can register, a limit that is off."""
    text = f"""
    {QUIET}
    [server]
    trusted_proxies = ["10.0.0.0/8", "unix", "0.0.0.0/0"]
    [[auth.job]]
    issuer = "i"
    audience = "a"
    secret = "{"s" * 32}"
    tenants = ["*"]
    [[policies]]
    name = "p"
    key = ["tenant"]
    quota = "1/s"
    mode = "off"
    """
    assert warnings(tmp_path, text) == [
        "server.trusted_proxies[2]: trusts everybody, so any caller can choose the address it is charged to",
        "auth.job[0].tenants: lets whoever registers a namespace at this issuer speak for any tenant of that name",
        'policies[0].mode: policy "p" is off and limits nothing',
    ]


def test_it_is_told_where_a_reason_to_have_no_limit_is_wrong(tmp_path: Path) -> None:
    """A route cannot both be unlimited on purpose and limited."""
    text = QUIET + (
        '[[routes]]\nname = "r"\npath = "/r"\nunlimited = "probes"\nmethods = ["GET"]\n'
        '[[policies]]\nname = "posts"\nmatch = { method = "POST" }\nkey = ["tenant"]\nquota = "1/s"\n'
        '[[policies]]\nname = "all"\nkey = ["tenant"]\nquota = "1/s"\n'
    )
    told = 'routes[0].unlimited: says that no named policy covers route "r", and "all" does'
    assert warnings(tmp_path, text) == [told]


def test_it_is_told_what_has_ended(tmp_path: Path) -> None:
    """A credential or exemption past its date is kept, and does nothing."""
    text = QUIET + (
        '[[tenants]]\nid = "a"\n[[tenants.credentials]]\nid = "c"\nexpires = 2020-01-01T00:00:00Z\n'
        '[[exemptions]]\nname = "x"\nmatch = { tenant = "a" }\nmultiplier = 2\nreason = "r"\nowner = "o"\n'
        "expires = 2020-01-01T00:00:00+02:00\n"
    )
    assert warnings(tmp_path, text) == [
        "tenants[0].credentials[0].expires: is past, so this credential proves nothing",
        "exemptions[0].expires: is past, so this exemption raises nothing",
    ]


def test_it_is_told_a_week_ahead_that_an_exemption_ends(tmp_path: Path) -> None:
    """By whoever starts or checks it, with who answers for it."""
    soon = (datetime.fromtimestamp(NOW / 1e6, UTC) + timedelta(days=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
    later = (datetime.fromtimestamp(NOW / 1e6, UTC) + timedelta(days=8)).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = (
        '[[exemptions]]\nname = "{}"\nmatch = {{ tenant = "a" }}\nmultiplier = 2\nreason = "r"\nowner = "o"\n'
        "expires = {}\n"
    )
    text = QUIET + '[[tenants]]\nid = "a"\n' + entry.format("x", soon) + entry.format("y", later)
    assert warnings(tmp_path, text) == ['exemptions[0].expires: is less than a week away: exemption "x" of o ends then']


@pytest.mark.parametrize("pattern", PENDING)
def test_a_pending_key_is_a_key(pattern: tuple[str, ...]) -> None:
    """A row whose key has gone would warn of nothing."""
    table, field = follow(Settings, pattern)
    assert field is not None
    assert pattern[-1] == "*" or fields_of(table).get(pattern[-1]) is field


def test_a_key_without_its_feature_is_told_where_it_is_set(tmp_path: Path) -> None:
    """By any file, to anything but its default."""
    (tmp_path / "more.toml").write_text('[store]\nurl = "redis://127.0.0.1"\nposture = "safe-capacity"\n')
    text = f'include = ["more.toml"]\n{QUIET}[store]\ndeadline = "50ms"\nsafe_fraction = 0.5\n'
    assert warnings(tmp_path, text) == [f"more.toml: store.url: {NOT_YET}", f"store.deadline: {NOT_YET}"]
