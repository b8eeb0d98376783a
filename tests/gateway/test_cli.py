"""The command: results on stdout, one sentence a line on stderr, the exit codes of the contract, no traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from gateway import cli
from gateway.cli import run
from gateway.config import load
from gateway.config.schema import json_schema
from gateway.errors import GatewayError
from gateway.identity.pat import digest, well_formed

__all__: list[str] = []

GOOD = '[upstream]\nurl = "http://127.0.0.1:9"\n[backstop]\nquota = "100/s"\n[auth]\nunknown = "anonymous"\n'
#: A root directory from which `python -m gateway` can be run in any other.
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("EVENHAND_CONFIG", "EVENHAND_LISTEN"):
        monkeypatch.delenv(name, raising=False)


def written(text: str, name: str = "gateway.toml") -> str:
    """Write a document to the working directory."""
    Path(name).write_text(text, encoding="utf-8")
    return name


def process(*arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | variables
    return subprocess.Popen(
        [sys.executable, "-m", "gateway", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )


def test_check_says_ok(capsys: pytest.CaptureFixture[str]) -> None:
    """On stdout, with exit code 0."""
    assert run(["check", "-c", written(GOOD)]) == 0
    assert capsys.readouterr() == ("gateway.toml: ok\n", "")


def test_check_tells_warnings_and_passes(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr; a warning is no error."""
    written(GOOD.replace("anonymous", "reject"))
    assert run(["check"]) == 0
    out, unknown = capsys.readouterr()
    assert out == "gateway.toml: ok, 1 warning\n"
    assert unknown.startswith("gateway.toml: warning: auth.unknown: no PAT, issuer or introspection is configured")


def test_check_tells_every_error(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, with the file; exit code 2."""
    written('include = ["more.toml"]\n[server]\nmod = "x"\n' + GOOD.replace("100/s", "100"))
    written('[[tenants]]\nid = "a"\nweight = 0\n', "more.toml")
    assert run(["check"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        'gateway.toml: server.mod: unknown key; did you mean "mode"?',
        'gateway.toml: backstop.quota: expected a quota such as "5/s" or "10/min burst 20", found "100"',
        "gateway.toml: more.toml: tenants[0].weight: expected a number from 0.001 to 1e+06, found 0",
    ]


@pytest.mark.parametrize(
    ("name", "sentence"),
    (
        ("gone.toml", "gone.toml: expected a file that is there, found none by this name\n"),
        ("/", "/: expected a file, found a folder\n"),
        ("bad.toml", "bad.toml: line 1, column 5: not TOML: invalid value\n"),
    ),
)
@pytest.mark.parametrize("command", ("check", "serve", "inventory"))
def test_a_file_that_cannot_be_read_is_one_sentence(
    command: str, name: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of every command that needs one."""
    written("x = ", "bad.toml")
    assert run([command, "-c", name]) == 2
    assert capsys.readouterr() == ("", sentence)


def test_check_tries_the_keys_of_issuers(capsys: pytest.CaptureFixture[str]) -> None:
    """A key set of which no key can be used is an error before the start, not a 401 for everybody after it."""
    written('{"keys": [{"kty": "RSA"}]}', "keys.json")
    anywhere = '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n'
    written(GOOD + anywhere + '[[auth.jwt]]\nissuer = "i"\naudience = "a"\njwks_file = "keys.json"\n')
    assert run(["check"]) == 2
    assert capsys.readouterr().err.startswith("gateway.toml: auth.jwt[0].jwks_file: ")
    out, err = (started := process("serve")).communicate(timeout=120)
    assert (started.returncode, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("gateway.toml: auth.jwt[0].jwks_file: ")


def test_the_configuration_is_named_by_option_variable_or_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In that order."""
    written(GOOD, "a.toml")
    written(GOOD, "b.toml")
    written(GOOD)
    for variable, arguments, name in (
        ("", [], "gateway.toml"),
        ("a.toml", [], "a.toml"),
        ("a.toml", ["-c", "b.toml"], "b.toml"),
    ):
        monkeypatch.setenv("EVENHAND_CONFIG", variable)
        assert run(["check", *arguments]) == 0
        assert capsys.readouterr().out == f"{name}: ok\n"


def test_a_secret_that_is_missing_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable, not what stands beside it."""
    monkeypatch.delenv("ADMIN_TOKEN", raising=False)
    written(GOOD + '[server]\nadmin_token = "x${ADMIN_TOKEN}"\n')
    assert run(["check"]) == 2
    assert capsys.readouterr().err == (
        "gateway.toml: server.admin_token: expected the environment variable ADMIN_TOKEN, which is not set\n"
    )


def test_inventory_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Of limits and of routes."""
    written(GOOD)
    assert run(["inventory"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("limit ")
    assert "7 limits: 6 enforced, 1 in shadow, 0 off.\n" in out
    assert err == ""


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    """And reads no configuration."""
    assert run(["schema"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == json_schema()
    assert err == ""


def test_token_is_shown_once_with_the_toml_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    """What is pasted holds its digest, and loads."""
    assert run(["token", "--tenant", "acme", "--id", "ci", "--expires", "90d"]) == 0
    out, err = capsys.readouterr()
    token, _, pasted = out.partition("\n")
    assert well_formed(token.encode())
    assert token not in pasted
    (tenant,) = tomllib.loads(pasted)["tenants"]
    (credential,) = tenant["credentials"]
    assert (tenant["id"], credential["id"], credential["pat"]) == ("acme", "ci", digest(token))
    assert 89 * 86_400 < credential["expires"].timestamp() - time.time() <= 90 * 86_400
    loaded = load(Path(written(GOOD + pasted)), {})
    assert loaded.settings.tenants[0].credentials[0].pat == (digest(token),)
    assert err == ""


def test_token_names_itself_and_lasts_for_ever_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Two in a row are two credentials."""
    names = set()
    for _ in range(2):
        assert run(["token", "--tenant", 'a"c\\me']) == 0
        (tenant,) = tomllib.loads(capsys.readouterr().out.partition("\n")[2])["tenants"]
        assert tenant["id"] == 'a"c\\me'
        assert set(tenant["credentials"][0]) == {"id", "pat"}
        names.add(tenant["credentials"][0]["id"])
    assert len(names) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    (
        (["token", "--tenant", "other"], 2, '--tenant: expected an id of your own, found "other", which is reserved'),
        (
            ["token", "--tenant", "a", "--id", "\n"],
            2,
            "--id: expected an id of 1 to 128 bytes of UTF-8 without controls",
        ),
        (["token", "--tenant", "a", "--expires", "90"], 2, '--expires: expected a duration such as "250ms"'),
        (["token", "--tenant", "a", "--expires", "36525d"], 0, ""),
        (["token"], 2, "Missing option '--tenant'"),
        (["serv"], 2, "No such command 'serv'"),
        (["check", "--confg", "x"], 2, "No such option: --confg"),
        (["check", "x"], 2, "Got unexpected extra argument"),
        (["demo", "--seconds", "soon"], 2, "Invalid value for '--seconds': expected a whole number ("),
        (["demo", "--seconds", "0"], 2, "Invalid value for '--seconds': expected 1 or more ("),
        (["demo", "--seconds", "86401"], 2, "Invalid value for '--seconds': expected 86400 or less ("),
        (["demo", "--mode", "x"], 2, "Invalid value for '--mode': 'x' is not one of 'evenhand', 'shared-bucket' ("),
        (["-c"], 2, "No such option: -c"),
    ),
)
def test_a_wrong_command_line_is_one_sentence(
    arguments: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2, and nothing on stdout."""
    assert run(arguments) == code
    out, err = capsys.readouterr()
    assert err.count("\n") == (1 if code else 0)
    assert err.startswith(f"evenhand: {sentence}" if code else "")
    assert bool(out) is (code == 0)


@pytest.mark.parametrize("arguments", ([], ["--help"], ["-h"]))
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Those that are there, and no other."""
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    listed = re.findall(r"^  (\w+)  ", out.partition("Commands:")[2], re.MULTILINE)
    assert listed == [
        "serve", "check", "inventory", "explain", "token", "schema", "demo", "top", "pause", "exempt", "posture",
    ]  # fmt: skip
    assert err == ""


def test_version_is_the_distributions(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """From a checkout that is not installed there is none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    monkeypatch.setattr(cli, "version", {"evenhand": project["version"]}.__getitem__)
    assert run(["--version"]) == 0
    assert capsys.readouterr() == (f"evenhand {project['version']}\n", "")

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(cli, "version", missing)
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == "evenhand 0+checkout\n"


@pytest.mark.parametrize("shell", ("bash", "zsh", "fish"))
def test_completion_is_for_the_usual_shells(shell: str) -> None:
    """The script asks the command itself for what fits."""
    script = process("--show-completion", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1", SHELL=f"/bin/{shell}")
    out, err = script.communicate(timeout=120)
    asked = process(_EVENHAND_COMPLETE="complete_bash", COMP_WORDS="evenhand s", COMP_CWORD="1")
    assert asked.communicate(timeout=120)[0].split() == ["serve", "schema"]
    assert "Traceback" not in out + err


def failing(error: BaseException) -> object:
    """Return a server that cannot start."""

    def serve(loaded: object, *, source: object) -> int:
        raise error

    return serve


@pytest.mark.parametrize(
    ("error", "code", "told"),
    (
        (
            GatewayError("cannot listen on x: it is already in use"),
            1,
            "evenhand: cannot listen on x: it is already in use\n",
        ),
        (PermissionError(13, "Permission denied", "/x"), 1, "evenhand: /x: Permission denied\n"),
        (OSError("no more files"), 1, "evenhand: no more files\n"),
        (KeyboardInterrupt(), 130, ""),
    ),
)
def test_what_stops_a_server_is_one_sentence(
    error: BaseException, code: int, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an exit code: 1, or 130 for Ctrl-C."""
    monkeypatch.setattr("gateway.serve.serve", failing(error))
    written(GOOD)
    assert run(["serve"]) == code
    assert capsys.readouterr() == ("", told)


def test_main_leaves_with_the_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As the entry point of the distribution."""
    monkeypatch.setattr(sys, "argv", ["evenhand", "check", "-c", "gone.toml"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert "gone.toml" in capsys.readouterr().err


def test_demo_is_run_with_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exit code is ours."""
    asked = []

    def demo(seconds: int | None, mode: str) -> int:
        asked.append((seconds, mode))
        return len(asked) - 1

    monkeypatch.setattr("gateway.demo.run", demo)
    assert run(["demo"]) == 0
    assert run(["demo", "--seconds", "5", "--mode", "shared-bucket"]) == 1
    assert asked == [(None, "evenhand"), (5, "shared-bucket")]


def test_a_reader_that_leaves_is_no_error() -> None:
    """`evenhand schema | head -1` ends quietly."""
    started = process("schema")
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    assert started.wait(timeout=120) in {0, 1}
    assert started.stderr.read() == ""
    started.stderr.close()


def test_a_port_in_use_is_one_sentence() -> None:
    """Exit code 1; nothing was served."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        written(GOOD + f'[server]\nlisten = "127.0.0.1:{port}"\nadmin = "127.0.0.1:0"\n')
        out, err = (started := process("serve")).communicate(timeout=120)
    assert (started.returncode, out) == (1, "")
    assert err == f"evenhand: cannot listen on 127.0.0.1:{port}: it is already in use\n"


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
def test_serve_ends_by_signal_with_code_0(number: signal.Signals) -> None:
    """After draining, without a traceback; warnings were told at the start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    warned = GOOD.replace("anonymous", "reject")
    written(warned + f'[server]\nlisten = "127.0.0.1:{port}"\nadmin = "127.0.0.1:0"\n')
    started = process("serve")
    assert started.stderr is not None
    lines = [started.stderr.readline() for _ in range(2)]
    assert "warning: auth.unknown" in lines[0]
    assert lines[1].startswith("evenhand: serving on ")
    with socket.create_connection(("127.0.0.1", port), timeout=120) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert caller.recv(9) == b"HTTP/1.1 "
    started.send_signal(number)
    out, err = started.communicate(timeout=120)
    assert (started.returncode, out, "Traceback" in err) == (0, "", False)
