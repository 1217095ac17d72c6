"""A transcript as a person or a program reads it: what is committed, what open runs say, and what could not be applied."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ledger.admin import erased
from ledger.admin.json_shapes import of_erased, of_message, of_open_run
from ledger.admin.messages_in_words import Told, describe
from ledger.admin.output import columns_of_terminal, print_json, print_line, print_view
from ledger.tables.runs import models_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.following import OpenRun
    from ledger.ledger import Ledger
    from projector import Message
    from projector.run_draft import Anomaly


class OfLog(NamedTuple):
    """What only the log tells."""

    open_runs: Sequence[OpenRun]
    anomalies: Sequence[Anomaly]


async def print_transcript(
    ledger: Ledger, conversation: str, messages: Sequence[Message], of_log: OfLog | None, *, as_json: bool
) -> None:
    """What only the log tells is null in JSON where it can't be read."""
    if as_json:
        print_json(await _record(ledger, conversation, messages, of_log))
        return
    open_runs, anomalies = of_log or OfLog((), ())
    was_erased = await erased.print_erased(ledger, conversation)
    said = [*messages, *(message for run in open_runs for message in run.messages)]
    run_ids = dict.fromkeys(message.run_id for message in said if message.role == "assistant")
    models = await ledger.tables.look(partial(models_of, conversation=conversation, run_ids=run_ids))
    told = Told.of(said, models, columns_of_terminal())
    for message in messages:
        print_view(describe(message, told))
    for run in open_runs:
        print_line(f"open run {run.run_id}, since event {run.seq}: not committed", "bold red")
        for message in run.messages:
            print_view(describe(message, told, is_open=True))
    for anomaly in anomalies:
        what = "" if anomaly.is_applied else " could not be applied"
        print_line(f"event {anomaly.seq}{what}: {anomaly.why}", "magenta")
    if not (said or anomalies or was_erased):
        print_line("there are no messages here")


async def _record(ledger: Ledger, conversation: str, messages: Sequence[Message], of_log: OfLog | None) -> dict[str, Any]:
    return {
        "conversation": conversation,
        "erased": of_erased(await erased.erased(ledger, conversation)),
        "messages": [of_message(message) for message in messages],
        "open_runs": None if of_log is None else [of_open_run(run) for run in of_log.open_runs],
        "anomalies": None if of_log is None else [msgspec.to_builtins(anomaly) for anomaly in of_log.anomalies],
    }
