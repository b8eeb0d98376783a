"""One sentence for every mistake: where it is, what was expected, what was found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.config.documents import VALID_PAT, failures, loaded

__all__: list[str] = []

#: Each document stands between lines of "# ----"; what is said of it follows as "#! sentence".
TABLE = Path(__file__).parents[2] / "fixtures" / "config" / "faults.txt"

CREDENTIAL = '[[tenants]]\nid = "acme"\n[[tenants.credentials]]\nid = "ci"\n'


def rows() -> list[tuple[str, list[str]]]:
    """Return the documents of the table with the sentences about each."""
    documents = TABLE.read_text(encoding="utf-8").split("# ----\n")[1:]
    return [
        (text, [line.removeprefix("#! ") for line in text.splitlines() if line.startswith("#! ")]) for text in documents
    ]


@pytest.mark.parametrize(
    ("text", "sentences"), rows(), ids=lambda value: value[0][:80] if isinstance(value, list) else ""
)
def test_a_mistake_is_one_sentence(text: str, sentences: list[str], tmp_path: Path) -> None:
    """The TOML path, what was expected, what was found; and nothing else is said of a good neighbour."""
    assert sentences
    assert failures(tmp_path, text) == sentences


def test_two_tenants_may_have_credentials_of_one_name(tmp_path: Path) -> None:
    """A credential's id is its tenant's business."""
    text = CREDENTIAL + CREDENTIAL.replace("acme", "beta")
    assert [tenant.credentials[0].id for tenant in loaded(tmp_path, text).settings.tenants] == ["ci", "ci"]


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    """Whatever is wrong in one entry hides nothing of the others, nor of what they say together."""
    text = f"""
    tenan = 1
    [server]
    mode = "x"
    workers = 0
    [backstop]
    quota = "5"
    [[tenants]]
    id = "acme"
    weight = -1
    {CREDENTIAL}pat = "x"
    [[routes]]
    name = "r"
    path = "/r"
    upstream = "nowhere"
    cost = true
    [[policies]]
    name = "p"
    key = ["tenant"]
    quota = "1/s"
    match = {{ route = "gone" }}
    """
    assert [fault.split(": ")[0] for fault in failures(tmp_path, text)] == [
        "tenan",
        "server.mode",
        "server.workers",
        "backstop.quota",
        "tenants[0].weight",
        "tenants[1].credentials[0].pat",
        "routes[0].cost",
        "tenants[1].id",
        "routes[0].upstream",
        "policies[0].match.route",
    ]


def test_no_message_quotes_a_secret(tmp_path: Path) -> None:
    """Not a token, not a password in an address, not what a variable holds, however wrong they are."""
    text = f"""
    [server]
    admin_token = "hunter2 \\u0007"
    mode = "${{PASSWORD}}"
    max_headers = "x ${{PASSWORD}}"
    [upstream]
    url = "http://ann:hunter2@x"
    ca_file = "${{PASSWORD}}"
    [store]
    url = "mysql://ann:hunter2@x"
    {CREDENTIAL}pat = "hunter2"
    [[auth.jwt]]
    issuer = "https://id"
    audience = "api"
    secret = "hunter2"
    """
    told = failures(tmp_path, text, {"PASSWORD": "hunter2"})
    assert len(told) == 8
    assert "hunter2" not in "\n".join(told)


def test_settings_show_no_secret(tmp_path: Path) -> None:
    """Nor do a repr of them, which could end up in a log."""
    text = f"""
    [server]
    admin_token = "hunter2"
    [store]
    url = "redis://:hunter2@127.0.0.1"
    {CREDENTIAL}pat = "{VALID_PAT}"
    [auth.introspection]
    url = "https://id/introspect"
    client_id = "evenhand"
    client_secret = "hunter2"
    [[auth.jwt]]
    issuer = "https://id"
    audience = "api"
    secret = "{"hunter2" * 6}"
    """
    settings = loaded(tmp_path, text).settings
    assert "hunter2" not in f"{settings} {settings!r}"
    assert settings.server.admin_token.get_secret_value() == "hunter2"
    assert settings.store.url == "redis://:hunter2@127.0.0.1"
