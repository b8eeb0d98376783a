"""From files to one tree: reading, joining, references, paths."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.config import load
from gateway.errors import ConfigError
from tests.gateway.config.documents import NOW, VALID_PAT, failures, loaded, written
from tests.gateway.proxy.certificates import Authority

__all__: list[str] = []


def included(folder: Path, **files: str) -> None:
    """Write files to the folder that tests include."""
    (folder / "tenants.d").mkdir()
    for name, text in files.items():
        (folder / "tenants.d" / f"{name}.toml").write_text(text, encoding="utf-8")


INCLUDE = 'include = ["tenants.d/*.toml"]\n'


@pytest.mark.parametrize(
    ("octets", "where"),
    (
        (b"a = ", "line 1, column 5"),
        (b"[server]\nlisten = 'x\n", "line 3, column 1"),
        (b"[server]\n[server]\n", "line 2, column 8"),
        (b"a = 1\na = 2\n", "line 2, column 6"),
        (b"a = [1,", "line 1, column 8"),
        (b"a = 1\nb = '\xff'\n", "line 2, column 6"),
        (b"a = " + b"[" * 5000, "line 1, column 1"),
        (b"a = " + b"9" * 5000, "line 1, column 1"),
    ),
)
def test_a_file_that_is_no_toml_is_told_by_line_and_column(octets: bytes, where: str, tmp_path: Path) -> None:
    """One sentence, in the words of the parser behind it."""
    path = tmp_path / "gateway.toml"
    path.write_bytes(octets)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    (fault,) = caught.value.faults
    assert str(fault).startswith(f"{path}: {where}: not TOML: ")
    assert "\n" not in str(fault)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    """Some editors write one."""
    path = written(tmp_path, "")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load(path, {}).settings.upstream.url == "http://127.0.0.1:9000"


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    """Missing, a folder, no path at all."""
    (tmp_path / "large.toml").write_bytes(b"")
    os.truncate(tmp_path / "large.toml", (64 << 20) + 1)
    for name, sentence in (
        ("gone.toml", "expected a file that is there, found none by this name"),
        ("", "expected a file, found a folder"),
        ("a\0b", "expected a file that can be read, found that it cannot: it is no path"),
        ("gone.toml/x", "expected a file that is there, found none by this name"),
        ("large.toml/x", "expected a file that can be read, found that it cannot: Not a directory"),
        ("large.toml", "expected a file of at most 64 MiB, found a larger one"),
    ):
        with pytest.raises(ConfigError) as caught:
            load(tmp_path / name, {})
        assert [fault.message for fault in caught.value.faults] == [sentence]


def test_nesting_without_end_is_a_mistake(tmp_path: Path) -> None:
    """Dotted keys nest as deep as a file is long."""
    sentence = "expected a value, found tables within tables without end"
    assert failures(tmp_path, ".".join("a" * 1000) + " = 1") == [
        f"a.a.a: {sentence}",
    ]


def test_included_entries_are_appended(tmp_path: Path) -> None:
    """In the order of file names, after the main file's; tables are joined."""
    included(
        tmp_path,
        b='[[tenants]]\nid = "b1"\n[[tenants]]\nid = "b2"\n[server]\ngrace = "5s"\n',
        a='[[tenants]]\nid = "a"\n[upstreams.reports]\nurl = "http://a"\n[[auth.jwt]]\n'
        f'issuer = "i"\naudience = "a"\nsecret = "{"s" * 32}"\n',
    )
    text = INCLUDE + '[server]\nipv6_prefix = 56\n[[tenants]]\nid = "main"\n[upstreams.other]\nurl = "http://o"\n'
    settings = loaded(tmp_path, text).settings
    assert [tenant.id for tenant in settings.tenants] == ["main", "a", "b1", "b2"]
    assert list(settings.upstreams) == ["other", "reports"]
    assert (settings.server.grace, settings.server.ipv6_prefix) == (5_000_000, 56)
    assert settings.auth.jwt[0].issuer == "i"


def test_a_file_is_included_once(tmp_path: Path) -> None:
    """Whichever patterns name it, and never by itself."""
    included(tmp_path, a='[[tenants]]\nid = "a"\n')
    text = f'include = ["*.toml", "tenants.d/a.toml", "tenants.d/*.toml", "{tmp_path}/tenants.d/?.toml", "none/*.toml"]'
    assert [tenant.id for tenant in loaded(tmp_path, text).settings.tenants] == ["a"]


def test_a_fault_names_its_file_and_its_place_in_there(tmp_path: Path) -> None:
    """Indices count within the file that an operator has to edit."""
    included(
        tmp_path,
        a='[[tenants]]\nid = "a"\nweigth = 1\n[server]\nmode = "x"\n'
        '[[routes]]\nname = "r"\npath = "/r"\nupstream = "u"\n',
        b='[[tenants]]\nid = "b"\n[[tenants]]\nid = "c"\n[[tenants.credentials]]\nid = "key"\n',
    )
    assert failures(tmp_path, INCLUDE + '[[tenants]]\nid = "main"\nweight = 0\n') == [
        'tenants.d/a.toml: server.mode: expected "enforce" or "shadow", found "x"',
        "tenants[0].weight: expected a number from 0.001 to 1e+06, found 0",
        'tenants.d/a.toml: tenants[0].weigth: unknown key; did you mean "weight"?',
        'tenants.d/b.toml: tenants[1].credentials[0].id: expected an id of your own, found "key", which is reserved',
        'tenants.d/a.toml: routes[0].upstream: expected the name of a known [upstreams.NAME], found "u"',
    ]


def test_duplicates_name_both_files(tmp_path: Path) -> None:
    """Of ids, and of keys that two files set."""
    included(
        tmp_path,
        a='[[tenants]]\nid = "acme"\n[backstop]\nquota = "5/s"\n',
        b='[[tenants]]\nid = "acme"\n[backstop]\nquota = "5/s"\n[server]\ngrace = "1s"\n',
        c="server = 1\n[telemetry]\ntop_tenants = 5\n",
    )
    same = 'tenants[0].id: expected ids that differ, found "acme", which is tenants[0].id in gateway.toml too'
    assert failures(tmp_path, INCLUDE + '[backstop]\nquota = "9/s"\n[[tenants]]\nid = "acme"\n') == [
        "tenants.d/a.toml: backstop.quota: expected to be set once, found backstop.quota in gateway.toml too",
        "tenants.d/b.toml: backstop.quota: expected to be set once, found backstop.quota in gateway.toml too",
        "tenants.d/c.toml: server: expected to be set once, found server in tenants.d/b.toml too",
        f"tenants.d/a.toml: {same}",
        f"tenants.d/b.toml: {same}",
    ]


def test_what_is_below_an_entry_stays_in_its_file(tmp_path: Path) -> None:
    """Credentials without their tenant above them belong to nobody, whichever file comes first."""
    told = "tenants: expected [[tenants]] above [[tenants.credentials]] in the same file, found none"
    included(tmp_path, a='[[tenants.credentials]]\nid = "ci"\n')
    assert failures(tmp_path, INCLUDE + '[[tenants]]\nid = "acme"\n') == [f"tenants.d/a.toml: {told}"]
    assert failures(tmp_path, INCLUDE) == [f"tenants.d/a.toml: {told}"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[upstream]\n[upstream]\n", "line 2, column 10: not TOML: cannot declare upstream twice"),
        ("[a.'b c']\n[a.'b c']\n", 'line 2, column 9: not TOML: cannot declare a."b c" twice'),
        ('[a."x\'y"]\n[a."x\'y"]\n', 'line 2, column 9: not TOML: cannot declare a."x\'y" twice'),
    ],
)
def test_a_key_is_named_as_toml_writes_it(text: str, told: str, tmp_path: Path) -> None:
    """Not as the library that reads it would."""
    (tmp_path / "gateway.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "gateway.toml", {}, NOW)
    assert [fault.message for fault in caught.value.faults] == [told]


def test_what_cannot_be_included_is_told_with_all_else(tmp_path: Path) -> None:
    """A name that is not there, a file that is no TOML, one that would include more."""
    included(tmp_path, a="x = ", b='include = ["c.toml"]\n')
    text = 'include = ["gone.toml", "tenants.d/*.toml", "${GONE}", 1]\n[server]\nmode = "x"\n'
    assert failures(tmp_path, text) == [
        "include[2]: expected the environment variable GONE, which is not set",
        'include[0]: expected a file that is there, found none by the name "gone.toml"',
        "tenants.d/a.toml: line 1, column 5: not TOML: invalid value",
        "tenants.d/b.toml: include: expected in gateway.toml only, found in a file that it includes",
        "include[3]: expected a string of one line that is not empty, found 1",
        'server.mode: expected "enforce" or "shadow", found "x"',
    ]


@pytest.mark.parametrize(
    ("text", "environ", "value"),
    (
        ("${NAME}", {"NAME": "a"}, "a"),
        ("x-${NAME}-${OTHER}-y", {"NAME": "a", "OTHER": "b"}, "x-a-b-y"),
        ("${NAME:-default}", {}, "default"),
        ("${NAME:-default}", {"NAME": ""}, "default"),
        ("${NAME:-default}", {"NAME": "a"}, "a"),
        ("x${NAME:-}", {}, "x"),
        ("${NAME}", {"NAME": "${OTHER}", "OTHER": "b"}, "${OTHER}"),
        ("$NAME $ {NAME} $$", {"NAME": "a"}, "$NAME $ {NAME} $$"),
    ),
)
def test_a_reference_is_replaced_once(text: str, environ: dict[str, str], value: str, tmp_path: Path) -> None:
    """Anywhere inside a string; what a variable holds is taken as it is."""
    made = loaded(tmp_path, f'[[tenants]]\nid = "{text}"\n', environ)
    assert made.settings.tenants[0].id == value


@pytest.mark.parametrize(
    ("text", "environ", "sentence"),
    (
        ("a${NAME}b", {}, "expected the environment variable NAME, which is not set"),
        ("${NAME}", {"NAME": ""}, "expected the environment variable NAME, which is empty; ${NAME:-} allows that"),
        ("${A}${NAME}", {"A": "hunter2"}, "expected the environment variable NAME, which is not set"),
        ("${}", {}, "expected ${NAME} or ${NAME:-default}, found another use of ${"),
        ("${NAME", {}, "expected ${NAME} or ${NAME:-default}, found another use of ${"),
        ("${1}", {}, "expected ${NAME} or ${NAME:-default}, found another use of ${"),
        ("${NAME-x}", {}, "expected ${NAME} or ${NAME:-default}, found another use of ${"),
    ),
)
@pytest.mark.parametrize("key", ("tenants[0].id", "server.listen", "upstream.ca_file", "routes[0].methods[0]"))
def test_a_reference_to_nothing_is_a_fault(
    key: str, text: str, environ: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    """It names the variable and nothing beside it, and is the only thing said of that value."""
    documents = {
        "tenants[0].id": f'[[tenants]]\nid = "{text}"\n',
        "server.listen": f'[server]\nlisten = "{text}"\n',
        "upstream.ca_file": f'[upstream]\nurl = "http://a"\nca_file = "{text}"\n',
        "routes[0].methods[0]": f'[[routes]]\nname = "r"\npath = "/r"\nmethods = ["{text}"]\n',
    }
    assert failures(tmp_path, documents[key], environ) == [f"{key}: {sentence}"]


def test_files_are_found_from_the_file_that_names_them(tmp_path: Path) -> None:
    """Also from an included one; a path that is absolute stays."""
    included(tmp_path, a='[[auth.jwt]]\nissuer = "i"\naudience = "a"\njwks_file = "keys.json"\n')
    keys = tmp_path / "tenants.d" / "keys.json"
    keys.write_text('{"keys": [{"kty": "RSA"}]}', encoding="utf-8")
    text = INCLUDE + f'[[auth.job]]\nissuer = "i"\naudience = "a"\njwks_file = "{keys}"\ntenants = ["acme"]\n'
    settings = loaded(tmp_path, text).settings
    assert settings.auth.jwt[0].jwks_file == settings.auth.job[0].jwks_file == keys


def test_logs_and_store_are_found_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are written, so they belong to where the service runs."""
    (tmp_path / "etc").mkdir()
    monkeypatch.chdir(tmp_path)
    text = '[telemetry]\ndecision_log = "decisions.log"\n[store]\npath = "history.sqlite3"\n'
    settings = loaded(tmp_path / "etc", text).settings
    assert settings.telemetry.decision_log == tmp_path / "decisions.log"
    assert settings.store.path == tmp_path / "history.sqlite3"


def test_the_environment_chooses_where_to_listen(tmp_path: Path) -> None:
    """$EVENHAND_LISTEN wins where it is set, and is checked like the key."""
    text = '[server]\nlisten = "127.0.0.1:1"\n'
    assert loaded(tmp_path, text, {"EVENHAND_LISTEN": "0.0.0.0:8080"}).settings.server.listen == "0.0.0.0:8080"
    assert loaded(tmp_path, text, {"EVENHAND_LISTEN": ""}).settings.server.listen == "127.0.0.1:1"
    assert loaded(tmp_path, "", {"EVENHAND_LISTEN": "unix:/x"}).settings.server.listen.unix == "/x"
    assert failures(tmp_path, text, {"EVENHAND_LISTEN": "8080"}) == [
        '$EVENHAND_LISTEN: expected "host:port" or "unix:/path", found "8080"'
    ]
    assert failures(tmp_path, "server = 1", {"EVENHAND_LISTEN": "0.0.0.0:8080"}) == [
        "server: expected a table, found 1",
    ]


def test_a_key_set_is_json_with_keys(tmp_path: Path) -> None:
    """Checked before anything is started; what stands in it is not quoted."""
    text = '[[auth.jwt]]\nissuer = "i"\naudience = "a"\njwks_file = "keys.json"\n'
    for held in ("", "{}", '{"keys": []}', '{"keys": [1]}', "[" * 100_000, "[]", "hunter2"):
        (tmp_path / "keys.json").write_text(held, encoding="utf-8")
        assert failures(tmp_path, text) == [
            'auth.jwt[0].jwks_file: expected a JSON file with a list of "keys" (RFC 7517), found "keys.json"'
        ]


def test_authorities_are_pem(tmp_path: Path) -> None:
    """A file of anything else would leave no upstream trusted."""
    (tmp_path / "ca.pem").write_text("hunter2", encoding="utf-8")
    assert failures(tmp_path, '[upstream]\nurl = "https://a"\nca_file = "ca.pem"\n') == [
        'upstream.ca_file: expected a PEM file of certificate authorities, found "ca.pem"'
    ]


def test_tls_takes_a_certificate_and_its_key(tmp_path: Path) -> None:
    """Both or neither, and they go together."""
    (tmp_path / "a.pem").write_text("hunter2", encoding="utf-8")
    assert failures(tmp_path, '[server]\ntls_key = "a.pem"\n') == [
        "server.tls_certificate: expected a file beside tls_key, found none"
    ]
    assert failures(tmp_path, '[server]\ntls_certificate = "a.pem"\n') == [
        "server.tls_key: expected a file beside tls_certificate, found none"
    ]
    assert failures(tmp_path, '[server]\ntls_certificate = "gone.pem"\n') == [
        'server.tls_certificate: expected a file that can be read, found "gone.pem": No such file or directory',
        "server.tls_key: expected a file beside tls_certificate, found none",
    ]
    (told,) = failures(tmp_path, '[server]\ntls_certificate = "a.pem"\ntls_key = "a.pem"\n')
    assert told.startswith("server.tls_certificate: expected PEM files of a certificate and its own unencrypted key")


def test_a_certificate_with_its_key_is_good(tmp_path: Path) -> None:
    """One file may hold both."""
    Authority(tmp_path).serve("localhost")
    (pem,) = tmp_path.glob("server-*.pem")
    text = f'[server]\ntls_certificate = "{pem.name}"\ntls_key = "{pem.name}"\n'
    server = loaded(tmp_path, text).settings.server
    assert server.tls_certificate == server.tls_key == pem


def test_now_is_read_from_the_clock_if_nobody_tells(tmp_path: Path) -> None:
    """A command has no other way to know what is past."""
    text = '[auth]\nunknown = "anonymous"\n[[tenants]]\nid = "a"\n'
    text += f'[[tenants.credentials]]\nid = "c"\npat = "{VALID_PAT}"\nexpires = 2020-01-01T00:00:00Z\n'
    path = written(tmp_path, text)
    past = "tenants[0].credentials[0].expires: is past, so this credential proves nothing"
    assert [str(warning) for warning in load(path, {}).warnings] == [past]
    assert [str(warning) for warning in load(path, {}, NOW - 10**15).warnings] == []
