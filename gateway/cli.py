"""The command `evenhand`.

Rules
1. Results go to stdout, everything else to stderr. An error is one sentence a line, never a traceback.
2. Exit codes: 0 done; 2 a wrong configuration or command line; 1 anything else; 130 interrupted.
3. A command imports what it needs when it runs: `check` starts no server, `--help` reads no configuration.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar
from urllib.parse import unquote

import typer

from gateway.errors import ConfigError, GatewayError
from gateway.terminal.options import register

if TYPE_CHECKING:
    from gateway.config import Loaded

__all__ = ["DemoMode", "app", "main", "run"]

PROGRAM = "evenhand"

T = TypeVar("T")

app = typer.Typer(
    name=PROGRAM,
    help="An API gateway in which one tenant's load is never another tenant's refusal.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Config = Annotated[
    Path,
    typer.Option("-c", "--config", envvar="EVENHAND_CONFIG", metavar="FILE", help="The configuration."),
]
_DEFAULT = Path("gateway.toml")

#: What a library says of a value, in our words.
_SPOKEN = (
    (re.compile(r"Value error, "), ""),
    (re.compile(r"Input should be a valid integer.*"), "expected a whole number"),
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"expected \1 or more"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"expected \1 or less"),
    (re.compile(r"Input should be "), "expected "),
)


class DemoMode(StrEnum):
    """What limits the demo: everything, or one bucket for all as elsewhere."""

    EVENHAND = "evenhand"
    SHARED_BUCKET = "shared-bucket"


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line `arguments` and return its exit code; whatever an operator can cause is one sentence."""
    usage: Any = typer.BadParameter.__mro__[1]  # UsageError, wherever this version of typer keeps it
    try:
        code = typer.main.get_command(app).main(args=list(arguments), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except usage as error:
        return _fail(f"{_sentence(error.format_message())} (evenhand --help lists what there is)", 2)
    except GatewayError as error:
        return _fail(str(error), 1)
    except BrokenPipeError:
        # The reader left, as in `evenhand schema | head`; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except KeyboardInterrupt:
        return 130
    return code if isinstance(code, int) else 0


def _sentence(message: str) -> str:
    message = " ".join(message.split()).removesuffix(".")
    for theirs, ours in _SPOKEN:
        message = theirs.sub(ours, message)
    return message


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"{PROGRAM}: {message}\n")
    return code


def _load(path: Path) -> Loaded:
    """Return the configuration of `path`, its warnings told; leave with 2 and every fault if it is wrong."""
    from gateway.config import load  # noqa: PLC0415 - rule 3

    try:
        loaded = load(path, os.environ)
    except ConfigError as error:
        _refuse(path, error)
    for warning in loaded.warnings:
        sys.stderr.write(f"{path}: warning: {warning}\n")
    return loaded


def _refuse(path: Path, error: ConfigError) -> NoReturn:
    for fault in error.faults:
        sys.stderr.write(f"{fault}\n" if fault.path == str(path) else f"{path}: {fault}\n")
    raise typer.Exit(2) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            number = version(PROGRAM)
        except PackageNotFoundError:  # run from a checkout that was never installed
            number = "0+checkout"
        sys.stdout.write(f"{PROGRAM} {number}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(f"{context.get_help()}\n")


@app.command()
def serve(config: Config = _DEFAULT) -> int:
    """Serve until SIGTERM, then drain and leave."""
    loaded = _load(config)
    from gateway.reload import Source  # noqa: PLC0415 - rule 3
    from gateway.serve import serve as serve_until_told  # noqa: PLC0415 - rule 3

    source = Source(config, dict(os.environ))
    try:
        if loaded.settings.server.workers > 1:
            from gateway.workers.parent import supervise  # noqa: PLC0415 - rule 3

            return supervise(source)
        return serve_until_told(loaded, source=source)
    except ConfigError as error:
        _refuse(config, error)


@app.command()
def check(config: Config = _DEFAULT) -> None:
    """Validate the configuration: every error at once, and what deserves a second look."""
    loaded = _load(config)
    from gateway.clock import Clock  # noqa: PLC0415 - rule 3
    from gateway.identity.resolver import build_resolver  # noqa: PLC0415 - rule 3

    try:
        build_resolver(loaded.settings, Clock())  # whether the keys of issuers can be used, only who uses them can say
    except ConfigError as error:
        _refuse(config, error)
    count = len(loaded.warnings)
    noted = f", {count} warning{'' if count == 1 else 's'}" if count else ""
    sys.stdout.write(f"{config}: ok{noted}\n")


@app.command()
def inventory(config: Config = _DEFAULT) -> None:
    """List every limit that exists, and the routes without one."""
    loaded = _load(config)
    from gateway.clock import Clock  # noqa: PLC0415 - rule 3
    from gateway.config.inventory import inventory as listed  # noqa: PLC0415 - rule 3
    from gateway.stores import place_of  # noqa: PLC0415 - rule 3
    from gateway.stores.usage import PolicyUse  # noqa: PLC0415 - rule 3

    now = Clock().wall()
    unused = PolicyUse(place_of(loaded.settings.store)).read([policy.name for policy in loaded.policies.policies], now)
    sys.stdout.write(f"{listed(loaded, now, unused)}\n")


@app.command()
def explain(
    name: Annotated[str, typer.Argument(metavar="TENANT[/CREDENTIAL]", help="Whose; ids percent-encoded.")],
    as_of: Annotated[str, typer.Option("--as-of", metavar="DATE", help="As it was on a day: 2026-04-01.")] = "",
    config: Config = _DEFAULT,
) -> None:
    """Say what a tenant or credential may spend, and where that number came from."""
    from gateway.clock import Clock  # noqa: PLC0415 - rule 3
    from gateway.config.values import parse_id  # noqa: PLC0415 - rule 3
    from gateway.history.explain import explain as explained  # noqa: PLC0415 - rule 3
    from gateway.history.kept import archive_of  # noqa: PLC0415 - rule 3
    from gateway.stores import place_of  # noqa: PLC0415 - rule 3

    tenant, slash, credential = name.partition("/")
    names = [_parsed("TENANT[/CREDENTIAL]", parse_id, unquote(part)) for part in (tenant, credential)[: 1 + len(slash)]]
    day = _parsed("--as-of", _day, as_of) if as_of else None
    loaded = _load(config)
    archive = archive_of(place_of(loaded.settings.store))
    now = None if as_of else Clock().wall()
    text = explained(loaded.policies, archive, names[0], "".join(names[1:]), day, now)
    sys.stdout.write(f"{text}\n")


def _day(text: object) -> int:
    """Return the days since the epoch of 2026-04-01."""
    try:
        return (date.fromisoformat(str(text)) - date(1970, 1, 1)).days
    except ValueError:
        raise ValueError(f"expected a date such as 2026-04-01, found {text}") from None


@app.command()
def token(
    tenant: Annotated[str, typer.Option("--tenant", metavar="T", help="Id of the tenant.")],
    credential: Annotated[str, typer.Option("--id", metavar="NAME", help="Id of the credential.")] = "",
    expires: Annotated[str, typer.Option("--expires", metavar="90d", help="When it ends, from now.")] = "",
) -> None:
    """Print a new personal access token, once, and the TOML to paste. Reads and writes no configuration."""
    from gateway.config.values import parse_own_id, parse_wait  # noqa: PLC0415 - rule 3
    from gateway.identity.pat import digest, mint  # noqa: PLC0415 - rule 3

    made = mint()
    kept = digest(made)
    tenant = _parsed("--tenant", parse_own_id, tenant)
    name = _parsed("--id", parse_own_id, credential or f"pat-{kept.removeprefix('sha256:')[:8]}")
    lasting = timedelta(microseconds=_parsed("--expires", parse_wait, expires)) if expires else None
    lines = [
        made,
        "",
        "# The token above is shown once. For gateway.toml, or a file that it includes:",
        "[[tenants]]                # without these two lines, below the tenant's entry if it has one",
        f"id = {_toml(tenant)}",
        "[[tenants.credentials]]",
        f"id = {_toml(name)}",
        f"pat = {_toml(kept)}",
    ]
    if lasting is not None:
        lines.append(f"expires = {datetime.now(UTC) + lasting:%Y-%m-%dT%H:%M:%SZ}")
    sys.stdout.write("\n".join(lines) + "\n")


def _parsed(option: str, parse: Callable[[object], T], value: str) -> T:
    try:
        return parse(value)
    except ValueError as error:
        sys.stderr.write(f"{PROGRAM}: {option}: {error}\n")
        raise typer.Exit(2) from None


def _toml(text: str) -> str:
    """Write a string as TOML; JSON's escapes are a part of TOML's."""
    return json.dumps(text, ensure_ascii=False)


@app.command()
def schema() -> None:
    """Print the JSON Schema of gateway.toml, by which editors complete it."""
    from gateway.config.schema import json_schema  # noqa: PLC0415 - rule 3

    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")


@app.command()
def demo(
    seconds: Annotated[
        int | None,
        typer.Option("--seconds", min=1, max=86_400, metavar="N", help="How long; half a minute if left out."),
    ] = None,
    mode: Annotated[DemoMode, typer.Option("--mode", help="What limits it.")] = DemoMode.EVENHAND,
) -> int:
    """Run an origin, a gateway, a dozen light tenants and one backfill; the live table shows who is served."""
    from gateway.demo import run as run_demo  # noqa: PLC0415 - rule 3

    return run_demo(seconds, mode.value)


register(app)
