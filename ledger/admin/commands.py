"""Every command: where it lies, and what it does in a line, so that who asks for one need not wait for all of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

import typer

from ledger.admin import imports_at_rest
from ledger.admin.program import NAMES_OF_HELP, Command, Commands, with_settings
from ledger.early_interrupt import raise_on_interrupt
from stream.extras import needs


class Place(NamedTuple):
    """The module of a command in this room, and the first line of its help."""

    module: str
    summary: str


PLACES: Final[dict[str, Place]] = {
    "demo": Place(
        "demo", "Kill an agent in the middle of its answer, recover the run, compact it, and prove that nothing was lost."
    ),
    "play": Place(
        "play",
        "Play a recorded stream as a live run, and commit it. `cancel`, Ctrl-C and SIGTERM stop it, and what was said is kept.",
    ),
    "conversations": Place("listing", "List conversations, newest activity first."),
    "runs": Place("listing", "List runs by conversation and start, open ones too."),
    "show": Place("listing", "Show the transcript of a conversation, and what open runs have said so far."),
    "tree": Place("tree", "Draw the tree of messages: forks, the active path (●), and what has become of each run."),
    "context": Place("context", "Show what a model would be sent of a conversation: a view, which changes nothing."),
    "events": Place(
        "listing",
        "Print the events of a conversation, each once, in order; where a part of its log is gone, what there is, and say so.",
    ),
    "select": Place("editing", "Follow another turn at the forks of a conversation, until a later one is committed there."),
    "describe": Place("editing", "Say what a list of conversations shows of this one."),
    "cancel": Place("editing", "Ask the program that writes a run to stop; it ends the run itself."),
    "recover": Place(
        "editing",
        "End an open run whose writer is lost: keep what it has, its finished messages, or nothing, not the user's either.",
    ),
    "compact": Place(
        "compaction",
        "Let the log go as far as the ledger holds it; the transcript stays, and so do events of types that nobody else knows.",
    ),
    "snapshot": Place(
        "compaction", "List the snapshots of a conversation: what stands in for the part of the log that is gone."
    ),
    "export": Place(
        "exporting", "Write the events of conversations as JSON lines, from which `import` makes the same log again."
    ),
    "import": Place(
        "importing",
        "Take in files of other programs and providers, or what `export` wrote. What is there already is not added again.",
    ),
    "verify": Place(
        "verifying",
        "Check the file, and log, snapshots and transcript against each other; say what each finding means and what mends it.",
    ),
    "reconcile": Place(
        "verifying",
        "Say where ledger and log disagree; with --repair project again what the log still has, keeping ids and parents.",
    ),
    "stats": Place("maintenance", "Count what the database holds, or one conversation of it."),
    "backup": Place("maintenance", "Copy the database to a new file, while it is in use."),
    "restore": Place("maintenance", "Make the database of --data, which must not exist, out of a backup."),
    "copy": Place(
        "copying", "Copy a database to another engine: log, snapshots, transcripts and media, with all numbers and times."
    ),
    "vacuum": Place("maintenance", "Sweep what is truncated and give its room back to the disk."),
    "erase": Place(
        "editing", "Take everything of conversations away for good: log, snapshots, transcript, media. Ids and counts stay."
    ),
    "sql": Place("sql", "Ask the database in SQL; nothing can be changed by it."),
    "serve": Place("serving", "Serve conversations and streams over HTTP, until Ctrl-C."),
    "history": Place("history", "The chain of plugins that decides what of a history a model is shown."),
    "limits": Place("history", "How many sessions there may be, and how long an idle one stays."),
}


class Program(Commands):
    """All commands by name; a command is imported and made when it is run, or asked for its help."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._made: dict[str, Any] = {}
        for name, place in PLACES.items():
            self.add_command(Command(name, help=place.summary), name)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - they are Typer's
        """The whole of it; what stands in its place until then is its name and its summary."""
        if cmd_name in PLACES and cmd_name not in self._made:
            self._made[cmd_name] = load(cmd_name)
        return self._made.get(cmd_name)


def load(name: str) -> Any:
    """Imports a command, or a group of them, and makes what Typer runs of it."""
    with needs("admin", f"the command {name}"):
        module = import_module(f"ledger.admin.{PLACES[name].module}")
    imports_at_rest.end()
    raise_on_interrupt()
    found = getattr(module, f"{name}_app", None)
    if found is None:
        found = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        function = getattr(module, name if hasattr(module, name) else f"{name}_")
        found.command(name, cls=Command, context_settings=NAMES_OF_HELP)(with_settings(function))
    command: Any = typer.main.get_command(found)
    command.name = name
    return command
