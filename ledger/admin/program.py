"""How every command is called: options of the whole program before or after it, help with examples, guesses led home."""

from __future__ import annotations

import inspect
import re
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ledger.admin.examples import EXAMPLES
from ledger.admin.typer_checks import leave_unchecked

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES_OF_HELP: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_GROUPS: Final = {
    "Begin": ("demo", "import", "play", "serve"),
    "Look": ("conversations", "show", "tree", "runs", "events", "context", "stats", "sql"),
    "Change": ("select", "describe", "cancel", "recover", "erase"),
    "Look after": ("compact", "snapshot", "verify", "reconcile", "export", "backup", "restore", "copy", "vacuum"),
    "What a model is shown": ("history", "limits"),
}
_TYPE: Final = re.compile(r"<(?:list\[)?([^<>\[\]]+)\]?>")
_WORDS: Final = {"str": "TEXT", "int": "N", "float": "NUMBER"}
_CONTEXT: Final = "context_of_the_program"
_WHOLE: Final[dict[str, Any]] = {
    "data": Annotated[str | None, typer.Option(help="As before the command: the database.", metavar="PATH_OR_URL")],
    "log": Annotated[str | None, typer.Option(help="As before the command: its log.", metavar="PATH_OR_URL")],
    "read_only": Annotated[bool | None, typer.Option("--read-only", help="As before the command: write nothing.")],
}


class Command(TyperCommand):
    """Shows its arguments by their names, and its examples as they are to be typed."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All of its parameters; of these, text is left as it is."""
        return leave_unchecked(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - it is Typer's
        """`CONVERSATION`, `[CONVERSATION]`, `FILE...`."""
        return ["[OPTIONS]", *(_in_usage(param) for param in self.params if param.param_type_name == "argument")]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options, none by the name of its type in Python."""
        _write_parameters(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Below the options."""
        _write_examples(path_of(ctx), formatter)


class Commands(TyperGroup):
    """Knows what people mean who know other programs; lists its commands by what they are for."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All of its parameters; of these, text is left as it is."""
        return leave_unchecked(super().get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Options, then commands."""
        _write_parameters(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each with all that its first paragraph says, cut nowhere."""
        groups = {} if path_of(ctx) else dict(_GROUPS)
        listed = {name for names in groups.values() for name in names}
        groups["More" if groups else "Commands"] = tuple(name for name in self.commands if name not in listed)
        width = max(map(len, self.commands))
        for title, names in ((title, names) for title, names in groups.items() if names):
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), _summary(self.commands[name])) for name in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Below the commands."""
        _write_examples(path_of(ctx), formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Raises `ValueError` for a command that is not there, and names the one that is meant."""
        if args and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            from ledger.admin.guesses import right_command  # noqa: PLC0415 - it is seldom needed

            told = {name: _summary(command) for name, command in self.commands.items()}
            raise ValueError(right_command(args[0], path_of(ctx), told))
        return super().resolve_command(ctx, args)


def path_of(context: typer.Context) -> tuple[str, ...]:
    """The words that lead to a command, without the program's own name."""
    words: list[str] = []
    here: Any = context
    while here.parent is not None:
        words.insert(0, str(here.info_name))
        here = here.parent
    return tuple(words)


def _print_version(is_asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if is_asked:
        from importlib import metadata  # noqa: PLC0415 - what help does not need

        from ledger.admin.output import print_line  # noqa: PLC0415

        try:
            version = metadata.version("tailfold")
        except metadata.PackageNotFoundError:  # it runs out of a folder
            version = "is not installed: there is no version"
        print_line(f"tailfold {version}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which also takes after its name what `Settings` holds; there it wins over what stands before."""
    signature = inspect.signature(command, eval_str=True)
    contexts = [name for name, given in signature.parameters.items() if given.annotation is typer.Context]

    @wraps(command)
    def run(**given: Any) -> None:
        context = given[contexts[0]] if contexts else given.pop(_CONTEXT)
        changed = {name: given.pop(name) for name in _WHOLE}
        context.obj = context.obj._replace(**{name: value for name, value in changed.items() if value is not None})
        command(**given)

    of_whole = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, of_whole, default=None, annotation=kind) for name, kind in _WHOLE.items()]
    if not contexts:
        added.append(inspect.Parameter(_CONTEXT, of_whole, annotation=typer.Context))
    parameters = [*signature.parameters.values(), *added]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _in_usage(param: Any) -> str:
    name = _name_of(param) + ("..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def _name_of(argument: Any) -> str:
    return (argument.metavar or str(argument.name)).strip("[].").upper()


def _write_parameters(command: Any, context: Any, formatter: Any) -> None:
    arguments = [(_name_of(param), param.help or "") for param in command.params if param.param_type_name == "argument"]
    options = [param.get_help_record(context) for param in command.get_params(context) if param.param_type_name == "option"]
    if arguments:
        with formatter.section("Arguments"):
            formatter.write_dl(arguments)
    with formatter.section("Options"):
        formatter.write_dl([(_TYPE.sub(_in_words, record[0]), record[1]) for record in options if record])


def _in_words(found: re.Match[str]) -> str:
    word = found[1].removesuffix(" range")
    return f"[{word}]" if "|" in word else _WORDS.get(word, word.upper())


def _summary(command: Any) -> str:
    return inspect.cleandoc(command.help or "").partition("\n\n")[0].replace("\n", " ")


def _write_examples(path: tuple[str, ...], formatter: Any) -> None:
    """Each with what is said of it beside it, or above where there is no room."""
    examples = EXAMPLES.get(" ".join(path), {})
    if not examples:
        return
    column = max(map(len, examples)) + 2
    is_wide = any(2 + column + len(what) > formatter.width for what in examples.values() if what)
    with formatter.section("Examples"):
        for command, what in examples.items():
            if is_wide and what:
                formatter.write(f"  # {what}\n")
            formatter.write(f"  {command}\n" if is_wide else f"  {command:<{column}}{what}".rstrip() + "\n")
