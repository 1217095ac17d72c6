"""The settings of the history chain and of sessions: `plugins-enabled.json`, read whole and changed in one step.

Keys that Tailfold does not know are somebody else's: they are kept as they are.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from projector.context.plugins import DEFAULT
from projector.context.settings_file import SettingsError, number_of, object_of, read_object
from projector.context.windows import DEFAULT_MAX_CTX, check_limit
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

CONFIG_FILE: Final = "plugins-enabled.json"
DEFAULT_MAX_USERS: Final = 50
DEFAULT_TIMEOUT_MINUTES: Final = 60
_LOG: Final = Logger("tailfold.history")
_PREFIX: Final = f"plugin_config.{DEFAULT}."


class HistorySettings(msgspec.Struct, frozen=True):
    """`session_idle_timeout_minutes` of 0 is never; `agent_max_ctx` in messages. `warned`: the default had to be put first.

    Raises `ValueError` for a number out of range.
    """

    max_users: int = DEFAULT_MAX_USERS
    session_idle_timeout_minutes: int = DEFAULT_TIMEOUT_MINUTES
    agent_max_ctx: int = DEFAULT_MAX_CTX
    chain: tuple[str, ...] = (DEFAULT,)
    warned: bool = False

    def __post_init__(self) -> None:
        check_limit("max_users", self.max_users)
        check_limit("session_idle_timeout_minutes", self.session_idle_timeout_minutes, least=0)
        check_limit("agent_max_ctx", self.agent_max_ctx)


def read_configuration(path: Path, available: Collection[str]) -> HistorySettings:
    """The settings of a file; the defaults where there is none.

    Raises `SettingsError` with the file, and the key or the line, for one that is broken or that asks for what is not
    there, and `OSError` for one that can't be read.
    """
    text = _read(path)
    return HistorySettings() if text is None else parse_configuration(text, str(path), available)


def parse_configuration(text: str, file: str, available: Collection[str]) -> HistorySettings:
    """The settings in the text of a file; `available` are the plugins that there are. Raises `SettingsError`.

    The default plugin is put first where it is not, with a warning.
    """
    found = _parse(read_object(text, file), file)
    _check_known(found.chain, available, file)
    if found.warned:
        _LOG.warning("history.default_put_first", file=file)
    return found


def change_configuration(
    path: Path, available: Collection[str], change: Callable[[HistorySettings], HistorySettings]
) -> HistorySettings:
    """Writes what `change` makes of the settings, and returns it; a file that is missing is made.

    A reader sees the file as it was or as it is, never a part of it, and of two programs that change it at once the
    second one waits. Raises what `change` raises, `SettingsError` for a broken file and for a chain that would still
    name a plugin that is not there, and `OSError`; the file is then as it was.
    """
    target = path.resolve()  # behind a link, so that the link stays
    with _alone(target.parent) as folder:
        text = _read(target)
        values = {} if text is None else read_object(text, str(path))
        changed = change(_parse(values, str(path)))
        _check_known(changed.chain, available, str(path))
        _write(target, _merged(values, changed))
        os.fsync(folder)
    return replace(changed, warned=False)


def add_plugin(configuration: HistorySettings, name: str, available: Collection[str]) -> HistorySettings:
    """The chain with a plugin at its end. Raises `ValueError` for one that is in it, or not there at all."""
    check_name(name)
    if name in configuration.chain:
        raise ValueError(f"{name} is in the chain")
    if name not in available:
        raise ValueError(f"there is no plugin {name}: there are {', '.join(sorted(available))}")
    return replace(configuration, chain=(*configuration.chain, name))


def remove_plugin(configuration: HistorySettings, name: str) -> HistorySettings:
    """The chain without a plugin. Raises `ValueError` for the default, and for one that is not in it."""
    _check_movable(configuration, name, "removed")
    return replace(configuration, chain=tuple(other for other in configuration.chain if other != name))


def move_plugin(configuration: HistorySettings, name: str, position: int) -> HistorySettings:
    """The chain with a plugin at `position`, counted from 1 behind the default at 0.

    Raises `ValueError` for the default, for one that is not in the chain, and for a position outside it.
    """
    _check_movable(configuration, name, "moved")
    last = len(configuration.chain) - 1
    if isinstance(position, bool) or not 1 <= position <= last:
        raise ValueError(f"position {position} is not in the chain: use 1 to {last}")
    others = [other for other in configuration.chain if other != name]
    others.insert(position, name)
    return replace(configuration, chain=tuple(others))


def check_name(name: str) -> str:
    """Returns the name of a plugin, or raises `ValueError` for one that could lead out of the folder."""
    if not name.isidentifier():
        how = "use the name of its file, without folder and .py, of letters, digits and _ alone"
        raise ValueError(f"{name[:60]!r} is no name of a plugin: {how}")
    return name


def _check_movable(configuration: HistorySettings, name: str, how: str) -> None:
    if name == DEFAULT:
        raise ValueError(f"{DEFAULT} is always first in the chain and can't be {how}")
    if name not in configuration.chain:
        raise ValueError(f"{name[:60]!r} is not in the chain: it has {', '.join(configuration.chain)}")


def _parse(values: dict[str, Any], file: str) -> HistorySettings:
    plugins = object_of(values, "plugin_config", file)
    settings = object_of(plugins, DEFAULT, file, prefix="plugin_config.")
    chain = settings.get("chain", [DEFAULT])
    if not isinstance(chain, list) or not all(isinstance(name, str) for name in chain):
        raise SettingsError(file, "a list of plugin names was expected", key=f"{_PREFIX}chain")
    twice = sorted(name for name, times in Counter(chain).items() if times > 1)
    if twice:
        raise SettingsError(file, f"{', '.join(twice)} is given twice", key=f"{_PREFIX}chain")
    for name in chain:
        try:
            check_name(name)
        except ValueError as error:
            raise SettingsError(file, str(error), key=f"{_PREFIX}chain") from error
    return HistorySettings(
        number_of(values, "max_users", file, default=DEFAULT_MAX_USERS),
        number_of(values, "session_idle_timeout_minutes", file, default=DEFAULT_TIMEOUT_MINUTES, least=0),
        number_of(settings, "agent_max_ctx", file, default=DEFAULT_MAX_CTX, prefix=_PREFIX),
        (DEFAULT, *(name for name in chain if name != DEFAULT)),
        warned=chain[:1] != [DEFAULT],
    )


def _check_known(chain: Collection[str], available: Collection[str], file: str) -> None:
    unknown = [name for name in chain if name not in available]
    if unknown:
        why = f"there is no plugin {unknown[0]}: put its file into the folder, or take it out with chain-remove"
        raise SettingsError(file, why, key=f"{_PREFIX}chain")


def _merged(values: dict[str, Any], changed: HistorySettings) -> dict[str, Any]:
    """The file's values with the settings in their places; what was a default and still is one is not written."""
    before = _parse(values, "")
    merged = dict(values)
    plugins = dict(merged.get("plugin_config", {}))
    settings = dict(plugins.get(DEFAULT, {}))
    for name, home in (("max_users", merged), ("session_idle_timeout_minutes", merged), ("agent_max_ctx", settings)):
        if name in home or getattr(changed, name) != getattr(before, name):
            home[name] = getattr(changed, name)
    if changed.chain != before.chain or before.warned or "chain" in settings:
        settings["chain"] = list(changed.chain)
    if settings:
        merged["plugin_config"] = plugins | {DEFAULT: settings}
    return merged


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SettingsError(str(path), f"this is no UTF-8 text ({error.reason})", line=line) from error


def _write(path: Path, values: dict[str, Any]) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_text(values))
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(path.stat().st_mode & 0o7777 if path.exists() else 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _text(values: dict[str, Any]) -> str:
    text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can hold as an escape alone
        return json.dumps(values, indent=2) + "\n"
    return text


@contextmanager
def _alone(folder: Path) -> Iterator[int]:
    """Waits until no other program changes settings in this folder; the lock ends with the process that holds it."""
    import fcntl  # noqa: PLC0415 - not there on Windows

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
