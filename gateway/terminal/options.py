"""How `top`, `pause`, `exempt` and `posture` are asked for on the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.errors import ConfigError

if TYPE_CHECKING:
    from gateway.terminal.client import Admin

__all__ = ["register"]

Config = Annotated[
    Path, typer.Option("-c", "--config", envvar="EVENHAND_CONFIG", metavar="FILE", help="The configuration.")
]
Address = Annotated[
    str, typer.Option("--admin", metavar="HOST:PORT", help="The admin listener, instead of the configuration's.")
]
For = Annotated[str, typer.Option("--for", metavar="30m", help="How long.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")]
Owner = Annotated[str, typer.Option("--owner", metavar="WHO", help="Who answers for it.")]
End = Annotated[str, typer.Option("--end", metavar="ID", help="End this one now.")]
List = Annotated[bool, typer.Option("--list", help="List those in force.")]
_DEFAULT = Path("gateway.toml")


def register(app: typer.Typer) -> None:
    """Add the four commands."""
    app.command()(top)
    app.command()(pause)
    app.command()(exempt)
    app.command()(posture)


def top(
    window: Annotated[str, typer.Option("--window", metavar="5m", help="1m, 5m, 15m, 1h or 24h.")] = "1m",
    sort: Annotated[
        str, typer.Option("--sort", metavar="worst", help="worst, success, offered, refused, tenant.")
    ] = "worst",
    search: Annotated[str, typer.Option("--find", metavar="TEXT", help="Only tenants with this in their id.")] = "",
    *,
    once: Annotated[bool, typer.Option("--once", help="Show it once and leave.")] = False,
    admin: Address = "",
    config: Config = _DEFAULT,
) -> None:
    """Show who is hurt, by which limit and because of whom, live."""
    from gateway.terminal import commands  # noqa: PLC0415 - a command imports what it needs when it runs

    with _reached(config, admin) as reached:
        commands.top(reached, window, sort, search, once=once)


def pause(  # noqa: PLR0913 - the options of a command
    tenant: Annotated[str, typer.Option("--tenant", metavar="T", help="Only of this tenant.")] = "",
    cls: Annotated[str, typer.Option("--class", metavar="batch", help="Only this class.")] = "",
    lasting: For = "30m",
    reason: Reason = "",
    owner: Owner = "",
    end: End = "",
    *,
    everything: List = False,
    admin: Address = "",
    config: Config = _DEFAULT,
) -> None:
    """Refuse a class, a tenant, or a tenant's batch for a while: the first thing to do in an incident."""
    from gateway.terminal import commands  # noqa: PLC0415 - a command imports what it needs when it runs

    match = {name: value for name, value in (("tenant", tenant), ("class", cls)) if value}
    if not match and not end and not everything:
        raise typer.BadParameter("say whom or what: --tenant, --class, or both; or --list, or --end")
    with _reached(config, admin) as reached:
        if match and not end and not everything:
            commands.pause(reached, match, lasting, reason, owner)
        else:
            commands.list_acts(reached, "/api/pause", "pauses", end)


def exempt(  # noqa: PLR0913 - the options of a command
    tenant: Annotated[str, typer.Option("--tenant", metavar="T", help="Whose quota.")] = "",
    credential: Annotated[str, typer.Option("--credential", metavar="ID", help="Only of this credential.")] = "",
    multiplier: Annotated[
        float | None, typer.Option("--multiplier", metavar="2", help="Rate and burst times this.")
    ] = None,
    quota: Annotated[str, typer.Option("--quota", metavar="200/s", help="Instead of its own.")] = "",
    lasting: For = "1h",
    reason: Reason = "",
    owner: Owner = "",
    end: End = "",
    *,
    everything: List = False,
    admin: Address = "",
    config: Config = _DEFAULT,
) -> None:
    """Raise the quota of a tenant or credential for a while; it still counts."""
    from gateway.terminal import commands  # noqa: PLC0415 - a command imports what it needs when it runs

    raised: dict[str, object] = {"multiplier": multiplier} if multiplier is not None else {}
    raised |= {"quota": quota} if quota else {}
    match = {name: value for name, value in (("tenant", tenant), ("credential", credential)) if value}
    if not end and not everything and not (match and raised and reason and owner):
        raise typer.BadParameter("say --tenant, --multiplier or --quota, --reason and --owner; or --list, or --end")
    with _reached(config, admin) as reached:
        if end or everything:
            commands.list_acts(reached, "/api/exemptions", "exemptions", end)
        else:
            commands.exempt(reached, match, raised, lasting, reason, owner)


def posture(  # noqa: PLR0913 - the options of a command
    what: Annotated[
        str, typer.Argument(metavar="POSTURE", help="open, closed, safe-capacity, or deny:N per cent.")
    ] = "",
    route: Annotated[str, typer.Option("--route", metavar="NAME", help="Only on this route.")] = "",
    lasting: For = "1h",
    reason: Reason = "",
    owner: Owner = "",
    end: End = "",
    *,
    everything: List = False,
    admin: Address = "",
    config: Config = _DEFAULT,
) -> None:
    """Say for a while what is answered where the shared store does not answer."""
    from gateway.terminal import commands  # noqa: PLC0415 - a command imports what it needs when it runs

    if not what and not end and not everything:
        raise typer.BadParameter("say open, closed, safe-capacity or deny:N; or --list, or --end")
    with _reached(config, admin) as reached:
        if end or everything:
            commands.list_acts(reached, "/api/posture", "acts", end)
        else:
            commands.posture(reached, what, route, lasting, reason, owner)


def _reached(config: Path, address: str) -> Admin:
    from gateway.terminal.client import reached  # noqa: PLC0415 - a command imports what it needs when it runs

    try:
        return reached(config, address)
    except ConfigError as error:
        for fault in error.faults:
            sys.stderr.write(f"{fault}\n" if fault.path == str(config) else f"{config}: {fault}\n")
        raise typer.Exit(2) from None
