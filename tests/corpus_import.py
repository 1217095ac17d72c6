"""The files of a folder of public data through `import` itself, beside the look that owes nothing to it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ledger.errors import LedgerError
from ledger.transfer.files import FileError, open_lines
from ledger.transfer.importing import import_history
from ledger.transfer.sources import base_of, name_of, read_file
from stream import StreamError

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from tests.corpus_parts import File

_OF_FIXTURES: Final = ("ag-ui/conformance/", "blns/", "jsontestsuite/")
"""Values and events in wrappers of their own, which only a test looks into."""


async def import_too(ledger: Ledger, root: Path, file: File) -> None:
    """What the look took in, `import` takes in with as many messages, once; what the look refused is refused here too."""
    wanted = file.messages
    try:
        with ExitStack() as stack:
            recorded = read_file(stack, stack.enter_context(open_lines(file.path)), file.path)
            names = name_of(base_of(file.path, root), recorded)
            first = [await import_history(ledger.engine, name, one) for name, one in zip(names, recorded, strict=True)]
            again = [await import_history(ledger.engine, name, one) for name, one in zip(names, recorded, strict=True)]
    except (FileError, LedgerError, StreamError) as error:
        is_right = not wanted or bool(file.refused) or file.name.startswith(_OF_FIXTURES) or is_part(file)
        file.check("import takes it, or refuses it as the look does", is_right, str(error))
        return
    found = sum([len(await ledger.transcript(name, branch="all")) for name in names])
    is_same = found >= wanted if file.source == "pydantic-ai" else found == wanted  # a cassette may hold several
    file.check("import gives as many messages", is_same or is_part(file), f"{found}, not {wanted}")
    added = sum(taken.events for taken in again)
    file.check("importing twice adds nothing", not added, f"{added} of {sum(taken.events for taken in first)} events again")


def is_part(file: File) -> bool:
    """A body of an exchange that is told with the others of its folder."""
    return ".request.json" in file.path.name or ".response." in file.path.name
