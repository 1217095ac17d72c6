"""The command `context`: what a model would be sent of a conversation, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from ledger.admin.json_shapes import of_message
from ledger.admin.listing import Select, read_selections
from ledger.admin.messages_in_words import brief
from ledger.admin.options import AsJson, Conversation, named_path, with_ledger
from ledger.admin.output import print_json, print_line
from ledger.admin.rendering import report_of, tell_changes
from ledger.admin.tables import Rows, print_rows
from ledger.history.discovery import discover, load_chain
from ledger.history.settings import read_configuration
from projector.context.budget import Budget
from projector.context.chain import ChainSession, open_session
from projector.context.model_registry import read_models
from projector.context.pipeline import Pipeline, Summaries
from projector.context.plugins import DEFAULT, Bundled, keep_window
from projector.context.policies import PolicyRegistry, read_registry
from projector.context.report import sum_up
from projector.context.result_stages import Expiration
from projector.context.tokens import weight_of
from projector.context.windows import MOST, check_limit
from projector.formats import WRITERS

if TYPE_CHECKING:
    from ledger.context.context import Context
    from ledger.ledger import Ledger

_SHOWN: Final = 60
Turn = Annotated[int | None, typer.Option(help="How many prompts went out before; counted without.", min=0)]
RunOption = Annotated[str | None, typer.Option("--run", help="An open run, with what it has said so far.", metavar="RUN")]
MaxCtx = Annotated[int | None, typer.Option(help="Show at most so many messages.")]
MaxTokens = Annotated[int | None, typer.Option(help="Tell when the view is longer; recorded summaries stand in anyway.")]
Policies = Annotated[
    Path | None, typer.Option(help="Policies of the results of tools, as JSON.", parser=named_path, metavar="PATH")
]
Config = Annotated[
    Path | None, typer.Option(envvar="TAILFOLD_PLUGINS", help="Settings of a history chain.", parser=named_path, metavar="PATH")
]
Models = Annotated[
    Path | None, typer.Option(help="The models of that chain (llm-models.json).", parser=named_path, metavar="PATH")
]
Model = Annotated[str | None, typer.Option(help="One of these models.")]
As = Annotated[
    str | None,
    typer.Option(
        "--format",
        help=f"Print it as a provider takes it: {', '.join(WRITERS)}.",
        metavar="FORMAT",
        autocompletion=lambda: list(WRITERS),
    ),
]
Explain = Annotated[bool, typer.Option("--explain", help="Tell what was left out, shortened or added, and why.")]


def context(
    context: typer.Context,
    conversation: Conversation,
    turn: Turn = None,
    run: RunOption = None,
    select: Select = None,
    max_ctx: MaxCtx = None,
    max_tokens: MaxTokens = None,
    policies: Policies = None,
    config: Config = None,
    models: Models = None,
    model: Model = None,
    format_name: As = None,
    *,
    explain: Explain = False,
    as_json: AsJson = False,
) -> None:
    """Show what a model would be sent of a conversation: a view, which changes nothing."""
    if format_name is not None and format_name not in WRITERS:
        raise ValueError(f"{format_name!r} is no format to export to: use one of {', '.join(WRITERS)}")
    chain, session = _chain(config, models, model, max_ctx)
    budget = Budget(MOST if max_tokens is None else max_tokens)
    registry = PolicyRegistry() if policies is None else read_registry(_read_text(policies), str(policies))
    pipeline = Pipeline(expiration=Expiration(registry), summaries=Summaries(budget), chain=chain, session=session)

    async def job(ledger: Ledger) -> None:
        selections = await read_selections(ledger, conversation, select or ())
        made = await ledger.context(conversation, pipeline=pipeline, turn=turn, run=run, selections=selections)
        reason = budget.reason(made.tokens)
        if format_name is not None:
            export = await ledger.export(conversation, format_name, messages=made.messages)
            report = report_of(conversation, format_name, export)
            print_json(report | {"payload": export.payload} if as_json else export.payload)
            tell_changes([] if as_json else [report])
        elif as_json:
            print_json(_record(made, reason))
        else:
            _print(made, reason, is_explained=explain)

    with_ledger(context, job, only_looks=True)


def _chain(
    config: Path | None, models: Path | None, model: str | None, max_ctx: int | None
) -> tuple[tuple[Any, ...], ChainSession]:
    """The chain of a settings file, or a window alone, or nothing. Raises what reading them raises, and `ValueError`."""
    if max_ctx is not None:
        check_limit("--max-ctx", max_ctx)
    if config is None:
        if model is not None or models is not None:
            raise ValueError("--model and --models belong to a history chain: name its settings with --config")
        window = () if max_ctx is None else (Bundled(DEFAULT, keep_window),)
        return window, ChainSession(max_ctx=max_ctx or MOST)
    found = discover(config.parent)
    settings = read_configuration(config, found)
    limit = settings.agent_max_ctx if max_ctx is None else min(max_ctx, settings.agent_max_ctx)
    if (model is None) != (models is None):
        raise ValueError("--model is one of --models: name both, or none")
    if model is None or models is None:
        session = ChainSession(max_ctx=limit)
    else:
        session = open_session(model, read_models(_read_text(models), str(models)), agent_max_ctx=limit)
    return tuple(load_chain(settings.chain, found)), session


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: this is no UTF-8 text ({error.reason} at byte {error.start})") from error


def _record(made: Context, reason: str | None) -> dict[str, Any]:
    return {
        "conversation": made.conversation,
        "view_id": made.view.view_id,
        "turn": made.view.source.turn,
        "tokens": made.tokens,
        "tokens_of_path": made.view.tokens_of_path,
        "messages_of_path": len(made.view.source.path),
        "reason": reason,
        "messages": [of_message(message) for message in made.messages],
        "changes": [msgspec.to_builtins(change) for change in made.view.changes],
        "stages": [msgspec.to_builtins(one) for one in sum_up(made.view.changes)],
        "failures": [msgspec.to_builtins(failure) for failure in made.view.failures],
    }


def _print(made: Context, reason: str | None, *, is_explained: bool) -> None:
    view = made.view
    title = (
        f"{made.conversation}: {len(made.messages):,} of {len(view.source.path):,} messages, "
        f"about {made.tokens:,} of {view.tokens_of_path:,} tokens, after {view.source.turn:,} prompts"
    )
    rows = [(number, message.role, weight_of(message), brief(message, _SHOWN)) for number, message in enumerate(made.messages)]
    print_rows(Rows(title, ("#", "role", "tokens", "text"), rows, prose=("text",)))
    if reason is not None:
        print_line(f"it is too long: {reason}")
    for failure in view.failures:
        print_line(f"{failure.plugin} was passed over: {failure.why}")
    if is_explained:
        changes = [
            (change.stage, change.message_id if change.block is None else f"{change.message_id} [{change.block}]",
             change.what.replace("_", " "), change.saved, change.by, change.why)
            for change in view.changes
        ]  # fmt: skip
        if changes:
            columns = ("stage", "message", "what", "saved", "by", "why")
            print_line("")
            print_rows(Rows("What differs from the path", columns, changes, prose=("what", "by", "why")))
            kinds = ("left_out", "shortened", "changed", "added", "moved", "saved")
            sums = [(one.stage, *(getattr(one, kind) for kind in kinds)) for one in sum_up(view.changes)]
            print_line("")
            print_rows(Rows("By stage", ("stage", *(kind.replace("_", " ") for kind in kinds)), sums))
        else:
            print_line("it is the path as it is")
