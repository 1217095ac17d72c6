"""The commands that look for what is wrong, say what it means, and mend it: verify and reconcile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ledger.admin.long_work import LongWork, stoppable
from ledger.admin.options import AsJson, ProblemsFound, with_ledger
from ledger.admin.output import print_json, print_line
from ledger.admin.tables import Rows, print_rows
from ledger.errors import UnknownConversation
from ledger.upkeep.verify import Finding
from ledger.upkeep.verify import verify as verify_ledger
from stream.limits import check_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.ledger import Ledger

Only = Annotated[str | None, typer.Argument(help="Only this conversation.", metavar="[CONVERSATION]")]


def verify(context: typer.Context, conversation: Only = None, *, as_json: AsJson = False) -> None:
    """Check the file, and log, snapshots and transcript against each other; say what each finding means and what mends it."""
    if conversation is not None:
        check_id("conversation id", conversation)
    work, found = LongWork(), list[Finding]()

    async def job(ledger: Ledger) -> None:
        is_unknown = conversation is not None and not (await ledger.store.bounds(conversation)).head
        if conversation is not None and is_unknown and await ledger.tables.conversation(conversation) is None:
            raise UnknownConversation(conversation)
        async for finding in verify_ledger(ledger, conversation, progress=work):
            found.append(finding)
        work.tell_total(f"{work.done:,} conversations verified, {len(found):,} findings")
        _tell(found, as_json=as_json)

    def where_it_stands() -> str:
        looked = f"{work.so_far} conversations were looked at" if work.total is not None else "the file was being checked"
        return f"{looked}, {len(found):,} findings; nothing was changed, run it again for the rest"

    with stoppable(where_it_stands):
        with_ledger(context, job, only_looks=True)


def reconcile(
    context: typer.Context,
    conversation: Only = None,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended.")] = False,  # noqa: FBT002 - a flag
    *,
    as_json: AsJson = False,
) -> None:
    """Say where ledger and log disagree; with --repair project again what the log still has, keeping ids and parents."""
    if conversation is not None:
        check_id("conversation id", conversation)

    async def job(ledger: Ledger) -> None:
        _tell([finding async for finding in ledger.reconcile(conversation, repair=repair)], as_json=as_json)

    with_ledger(context, job, take_over_log=repair, only_looks=not repair)


def _tell(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Prints them; ends with exit code 1 if something is wrong and was not mended."""
    if as_json:
        print_json([finding._asdict() | {"means": finding.means} for finding in findings])
    elif findings:
        rows = [(_verdict(f), f.conversation, f.kind, f.what, f.means, f.mend) for f in findings]
        columns = ("verdict", "conversation", "kind", "what", "means", "mended by")
        print_rows(Rows("", columns, rows, prose=("what", "means")))
    else:
        print_line("everything is as it should be")
    if any(not finding.is_note and not finding.is_mended for finding in findings):
        raise ProblemsFound


def _verdict(finding: Finding) -> str:
    return "mended" if finding.is_mended else "note" if finding.is_note else "wrong"
