"""What people type who know other programs, and the command that does it here."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MEANT: Final = {
    "conversations": "list ls ll dir all chats threads sessions find search",
    "runs": "ps turns jobs status",
    "show": "get cat view print read open transcript messages log less more display",
    "tree": "branches graph forks",
    "context": "prompt window explain",
    "events": "tail watch follow stream logs",
    "select": "checkout switch use pick choose",
    "describe": "rename title label tag archive edit set update",
    "cancel": "stop kill abort interrupt",
    "recover": "resume finish end close fix continue",
    "compact": "compress prune trim truncate gc squash",
    "export": "dump save write extract",
    "import": "load add ingest put insert push create new",
    "play": "replay record feed",
    "verify": "check fsck validate lint doctor integrity test",
    "reconcile": "repair sync reindex rebuild diff",
    "stats": "info count size du usage summary tokens",
    "backup": "clone",
    "copy": "cp migrate transfer mirror",
    "restore": "rollback undelete",
    "vacuum": "clean cleanup shrink optimize",
    "erase": "delete rm del remove drop destroy purge forget wipe unlink",
    "sql": "query db sqlite ask shell",
    "serve": "server start up http web ui host api listen",
    "demo": "try tour sample hello",
    "history": "chain plugins",
    "limits": "quota",
    "history list": "ls show get view",
    "history chain-add": "add append enable",
    "history chain-remove": "remove rm delete disable drop",
    "history chain-move": "move mv reorder",
}
_GUESSED: Final = {
    (*name.split()[:-1], guess): name.split()[-1] for name, guesses in _MEANT.items() for guess in guesses.split()
}
_OPTIONS: Final = {"help": "--help", "version": "--version", "completion": "--show-completion"}


def right_command(guess: str, path: tuple[str, ...], told: Mapping[str, str]) -> str:
    """A sentence that names the command or option that is meant by `guess` behind `path`; `told` says what each one does."""
    program, word = " ".join(("tailfold", *path)), guess.lower().lstrip("-")
    near = get_close_matches(word, told, 1, 0.75)
    meant = word if word in told else _GUESSED.get((*path, word)) or (near[0] if near else None)
    if meant is not None and meant in told:
        return f"there is no command {guess!r}: use `{program} {meant}` ({_begin_small(told[meant])})"
    if word in _OPTIONS and (not path or word == "help"):
        return f"there is no command {guess!r}: use `{program} {_OPTIONS[word]}`"
    return f"there is no command {guess!r}: `{program} --help` lists those that there are"


def _begin_small(text: str) -> str:
    first = text.strip().partition("\n\n")[0].replace("\n", " ").rstrip(".")
    return first[:1].lower() + first[1:]
