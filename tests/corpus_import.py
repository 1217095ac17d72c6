"""The files of a folder of public data through `import` itself, beside readings that owe nothing to it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ledger.errors import LedgerError
from ledger.transfer.file_import import ImportedHistory, import_source, open_source
from ledger.transfer.files import FileError
from stream import StreamError
from tests.corpus_claims import is_talk, names_of
from tests.corpus_exchanges import content_of, exchanges_of, frames_of, is_cassette, load
from tests.corpus_logs import missing_of_log, said_in
from tests.corpus_readings import Stored, answers_in, missing

if TYPE_CHECKING:
    from ledger import Ledger
    from tests.corpus_parts import File

_OF_FIXTURES: Final = ("ag-ui/conformance/", "blns/", "jsontestsuite/")
"""Values and events in wrappers of their own, which only a test looks into."""
_OF_LOGS: Final = ("agui-benchmark", "cc-transcripts", "claude", "open-assistant", "pi-mono", "swe-agent", "tau-bench")


async def import_too(ledger: Ledger, file: File) -> None:
    """What the readings find, `import` takes in, once, and nothing of it is missing; what it refuses nobody claims."""
    try:
        with ExitStack() as stack:
            source = open_source(stack, file.path, file.name)
            first = [one for one in await import_source(ledger.engine, source) if isinstance(one, ImportedHistory)]
            again = await import_source(ledger.engine, source)
    except (FileError, LedgerError, StreamError) as error:
        check_refusal(file, str(error))
        return
    names = [one.conversation for one in first]
    stored = Stored(
        [message for name in names for message in await ledger.transcript(name, branch="all")],
        [run for name in names async for run in ledger.runs(name)],
        [loss.what for one in first for loss in one.losses],
    )
    found = len(stored.messages)
    is_same = found >= file.messages if is_cassette(file.path) else found == file.messages  # a cassette may hold several
    file.check("import gives as many messages", is_same or is_part(file), f"{found}, not {file.messages}")
    added = sum(one.added for one in again if isinstance(one, ImportedHistory))
    file.check("importing twice adds nothing", not added, f"{added} of {sum(one.added for one in first)} events again")
    check_answers(file, stored)


def check_answers(file: File, stored: Stored) -> None:
    """Every answer, usage and citation, and every exchange that was passed over."""
    given = answers_in(file.path)
    lost = list(missing(given, stored))
    file.counts["answers"] += len(given)
    if file.source.startswith(_OF_LOGS):
        said = said_in(file.path)
        lost += missing_of_log(said, stored)
        file.counts["answers"] += len(said.texts) + len(said.calls)
    for what in lost or [""]:
        file.check("nothing that was answered is missing", not what, what)
    if is_cassette(file.path):
        for sent in exchanges_of(file.path):
            if not is_talk(sent):
                is_told = any(name in loss for loss in stored.losses for name in names_of(sent))
                file.check("an exchange that is passed over is named", is_told, f"{sent.place}: {sent.address}")


def check_refusal(file: File, why: str) -> None:
    """A file is refused for what nobody claims, and the reason names it; or because it is no file of its kind."""
    if is_cassette(file.path):
        exchanges = exchanges_of(file.path)
        claimed = [sent.place for sent in exchanges if is_talk(sent)]
        file.check("a file of a claimed format is imported", not claimed, f"{claimed[:3]}: {why}")
        names = [name for sent in exchanges for name in names_of(sent)] + ["websocket"] * bool(frames_of(file.path))
        if not claimed:
            file.check("a refusal names what nobody claims", any(name in why for name in names), why)
        return
    is_right = not file.messages or bool(file.refused) or file.name.startswith(_OF_FIXTURES) or is_part(file)
    file.check("import takes it, or refuses it as the look does", is_right, why)
    lines = content_of(file.path).decode("utf-8", "replace").split("\n")
    is_torn = any(load(line) is None for line in lines if line.strip())
    claimed = [one.format for one in answers_in(file.path) if not one.answer.is_error]
    file.check("a file of a claimed format is imported", is_torn or not claimed or is_part(file), why)


def is_part(file: File) -> bool:
    """A body of an exchange that is told with the others of its folder."""
    return ".request.json" in file.path.name or ".response." in file.path.name
