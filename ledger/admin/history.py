"""The commands that set up the history chain and the limits of sessions: `history …`, `limits …`."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import replace

from ledger.admin.options import AsJson, named_path, refuse_to_write
from ledger.admin.output import print_json, print_line
from ledger.admin.program import Command, Commands, with_settings
from ledger.admin.tables import Rows, print_rows
from ledger.history.discovery import discover, load_plugin
from ledger.history.settings import (
    CONFIG_FILE,
    HistorySettings,
    add_plugin,
    change_configuration,
    check_name,
    move_plugin,
    read_configuration,
    remove_plugin,
)
from projector.context.plugins import DEFAULT
from projector.context.windows import check_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledger.history.discovery import Found

history_app = typer.Typer(
    add_completion=False,
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The chain of plugins that decides what of a history a model is shown.",
)
limits_app = typer.Typer(
    add_completion=False,
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="How many sessions there may be, and how long an idle one stays.",
)

Config = Annotated[Path, typer.Option(envvar="TAILFOLD_PLUGINS", help="The settings file.", parser=named_path, metavar="PATH")]
Plugins = Annotated[
    Path | None,
    typer.Option(help="The folder of plugin_history_*.py; where the settings lie without.", parser=named_path, metavar="PATH"),
]
Name = Annotated[str, typer.Argument(help="The name of a plugin: that of its file, without .py.")]
_CONFIG = Path(CONFIG_FILE)


def _command(app: typer.Typer, name: str, *, takes_negative: bool = False) -> Callable[[Callable[..., None]], None]:
    def take(command: Callable[..., None]) -> None:
        settings = {"ignore_unknown_options": True} if takes_negative else None  # `-1` is a number that is refused
        app.command(name, cls=Command, context_settings=settings)(with_settings(command))

    return take


@_command(history_app, "list")
def list_plugins(config: Config = _CONFIG, plugins: Plugins = None, *, as_json: AsJson = False) -> None:
    """Show the plugins that there are, the chain, and the settings."""
    found = _discover(config, plugins)
    configuration = read_configuration(config, found)
    positions = {name: position for position, name in enumerate(configuration.chain)}
    ordered = sorted(found.values(), key=lambda plugin: (positions.get(plugin.name, len(positions)), plugin.name))
    if as_json:
        listed = [
            {"name": plugin.name, "position": positions.get(plugin.name), "origin": plugin.origin, "place": plugin.place}
            for plugin in ordered
        ]
        print_json(_shown(configuration) | {"plugins": listed})
        return
    rows = [(positions.get(plugin.name), plugin.name, plugin.origin) for plugin in ordered]
    print_rows(Rows("", ("position", "plugin", "from"), rows))
    print_line("")
    if configuration.warned:
        print_line(f"{config}: its chain does not begin with {DEFAULT}, which is put first")
    timeout = configuration.session_idle_timeout_minutes
    print_line(
        f"at most {configuration.agent_max_ctx} messages; at most {configuration.max_users} sessions, "
        + (f"an idle one is let go after {timeout} minutes" if timeout else "idle ones stay")
    )


@_command(history_app, "chain-add")
def chain_add(
    context: typer.Context, name: Name, config: Config = _CONFIG, plugins: Plugins = None, *, as_json: AsJson = False
) -> None:
    """Put a plugin at the end of the chain; one that can't be loaded is refused."""
    check_name(name)
    available = _discover(config, plugins)
    _check_loads(name, available)
    _change(context, config, plugins, lambda before: add_plugin(before, name, available), _told_chain, as_json=as_json)


@_command(history_app, "chain-remove")
def chain_remove(
    context: typer.Context, name: Name, config: Config = _CONFIG, plugins: Plugins = None, *, as_json: AsJson = False
) -> None:
    """Take a plugin out of the chain; the default stays."""
    _change(context, config, plugins, lambda before: remove_plugin(before, name), _told_chain, as_json=as_json)


@_command(history_app, "chain-move", takes_negative=True)
def chain_move(
    context: typer.Context,
    name: Name,
    position: Annotated[int, typer.Argument(help="Its new place, from 1; the default is at 0.")],
    config: Config = _CONFIG,
    plugins: Plugins = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Put a plugin of the chain at another place, behind the default; one that can't be loaded is refused."""
    _check_loads(name, _discover(config, plugins))
    _change(context, config, plugins, lambda before: move_plugin(before, name, position), _told_chain, as_json=as_json)


@_command(history_app, "maxctx", takes_negative=True)
def maxctx(
    context: typer.Context,
    messages: Annotated[int, typer.Argument(help="The ceiling, in messages, whatever a model prefers.")],
    config: Config = _CONFIG,
    plugins: Plugins = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Set how many messages a model is shown at most."""
    check_limit("maxctx", messages)
    told = f"at most {messages} messages are shown"
    _change(context, config, plugins, lambda before: replace(before, agent_max_ctx=messages), lambda _: told, as_json=as_json)


@_command(limits_app, "max-users", takes_negative=True)
def max_users(
    context: typer.Context,
    sessions: Annotated[int, typer.Argument(help="How many, at least 1.")],
    config: Config = _CONFIG,
    plugins: Plugins = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Set how many sessions may be open at once."""
    check_limit("max-users", sessions)
    told = f"at most {sessions} sessions may be open"
    _change(context, config, plugins, lambda before: replace(before, max_users=sessions), lambda _: told, as_json=as_json)


@_command(limits_app, "session-timeout", takes_negative=True)
def session_timeout(
    context: typer.Context,
    minutes: Annotated[int, typer.Argument(help="How long, in minutes; 0 is for ever.")],
    config: Config = _CONFIG,
    plugins: Plugins = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Set how long an idle session stays open."""
    check_limit("session-timeout", minutes, least=0)
    told = f"an idle session is let go after {minutes} minutes" if minutes else "idle sessions stay"
    _change(
        context,
        config,
        plugins,
        lambda before: replace(before, session_idle_timeout_minutes=minutes),
        lambda _: told,
        as_json=as_json,
    )


def _change(
    context: typer.Context,
    config: Path,
    plugins: Path | None,
    change: Callable[[HistorySettings], HistorySettings],
    tell: Callable[[HistorySettings], str],
    *,
    as_json: bool,
) -> None:
    refuse_to_write(context)
    changed = change_configuration(config, _discover(config, plugins), change)
    if as_json:
        print_json(_shown(changed))
    else:
        print_line(f"{config}: {tell(changed)}")


def _discover(config: Path, plugins: Path | None) -> dict[str, Found]:
    return discover(config.absolute().parent if plugins is None else plugins)


def _check_loads(name: str, available: Mapping[str, Found]) -> None:
    """Raises `BadPlugin` for one that can't be loaded, before anything waits; who changes the chain tells of unknown ones."""
    if name in available:
        with redirect_stdout(StringIO()):  # what a plugin prints is no answer of a command
            load_plugin(name, available)


def _told_chain(changed: HistorySettings) -> str:
    return " → ".join(changed.chain)


def _shown(configuration: HistorySettings) -> dict[str, object]:
    shown: dict[str, object] = msgspec.to_builtins(configuration)
    return shown
