"""The answers of a file by a reading of its own, and what was stored of it: nothing that a model said may be missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests import corpus_answers, corpus_openai, corpus_others
from tests.corpus_claims import claim, claim_of_event, is_claimed, is_talk
from tests.corpus_exchanges import content_of, events_of, exchanges_of, is_cassette

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ledger.records import RunInfo
    from projector import Message
    from projector.run_draft import Usage
    from tests.corpus_answers import Answer, Call

_READS: Final[dict[str, Callable[[Sequence[dict[str, Any]]], Iterator[Answer]]]] = {
    "anthropic": corpus_answers.anthropic,
    "bedrock": corpus_answers.bedrock,
    "chat": corpus_openai.chat,
    "cohere": corpus_others.cohere,
    "gemini": corpus_answers.gemini,
    "gemini-interactions": corpus_others.interactions,
    "ollama": corpus_answers.ollama,
    "responses": corpus_openai.responses,
}
_LONGEST: Final = 8
"""How many messages in a row one answer may have become."""


class Given(NamedTuple):
    """An answer of a file, and where it stands."""

    format: str
    place: str
    answer: Answer


class Stored(NamedTuple):
    """What a ledger holds of a file."""

    messages: list[Message]
    runs: list[RunInfo]
    losses: list[str]


def read_answers(name: str, values: Sequence[Any]) -> list[Answer]:
    """The answers in a body of a format; none where this reading does not know it."""
    objects = [value for value in values if isinstance(value, dict)]
    return list(_READS[name](objects)) if objects and name in _READS else []


def answers_in(path: Path) -> list[Given]:
    """The answers of the claimed formats in a cassette, a stream or a response."""
    if is_cassette(path):
        return [
            Given(claim(sent), sent.place, answer)
            for sent in exchanges_of(path)
            if is_talk(sent)
            for answer in _of_status(sent.status, read_answers(claim(sent), sent.answer))
        ]
    values, _ = events_of(content_of(path))
    name = claim_of_event(values[0]) if values else ""
    return [Given(name, "the file", answer) for answer in read_answers(name, values)] if is_claimed(name) else []


def _of_status(status: int, answers: list[Answer]) -> list[Answer]:
    return answers if status < 400 else [corpus_answers.Answer(is_error=True, is_whole=False)]


def missing(given: Sequence[Given], stored: Stored) -> Iterator[str]:
    """What the answers say and the ledger does not."""
    chains = list(_chains(stored.messages))
    runs = {run.run_id: run for run in stored.runs}
    usages = [(name, usage) for run in stored.runs for name, usage in run.usage.items()]
    for _, place, answer in given:
        named = f"{place}, choice {answer.choice}" if answer.choice else place
        if answer.is_error and not any(run.outcome == "failed" for run in stored.runs):
            yield f"{named}: the error is not told"
        found = [chain for chain in chains if _says(chain, answer)]
        own = [chain for chain in found if _is_named(chain, answer)] or found
        if not found and (answer.text or answer.calls):
            if not answer.choice or not any("choice" in loss or "candidate" in loss for loss in stored.losses):
                yield f"{named}: its {_what(answer)} is nowhere"
            continue
        yield from (f"{named}: {what}" for what in _unsaid(answer, own, runs))
        if answer.usage is not None and answer.id is None and not any(_counts(usage) == answer.usage for _, usage in usages):
            yield f"{named}: the usage {answer.usage} is nowhere"
    yield from _missing_usage(given, usages)


def _unsaid(answer: Answer, chains: Sequence[list[Message]], runs: dict[str, RunInfo]) -> Iterator[str]:
    """What no message that says its text says beside it."""
    if not chains:
        return
    told = [_told(chain, runs) for chain in chains]
    if answer.id and not any(json.dumps(answer.id)[1:-1] in said for said in told):
        yield f"the id {answer.id} is nowhere"
    if answer.finish and answer.is_whole and not any(json.dumps(answer.finish)[1:-1] in said for said in told):
        yield f"the finish reason {answer.finish} is nowhere"
    if answer.model and not any(json.dumps(answer.model)[1:-1] in said for said in told):
        yield f"the model {answer.model} is nowhere"
    if answer.citations and all(_cited(chain, answer) for chain in chains):
        yield f"{min(_cited(chain, answer) for chain in chains)} of {len(answer.citations)} citations are nowhere"


def _missing_usage(given: Sequence[Given], usages: Sequence[tuple[str, Usage]]) -> Iterator[str]:
    """Of each answer that has an id its usage, once."""
    wanted = {one.answer.id: one for one in given if one.answer.id is not None and one.answer.usage is not None}
    left = [_counts(usage) for _, usage in usages]
    for one in wanted.values():
        if one.answer.usage in left:
            left.remove(one.answer.usage)
        else:
            yield f"{one.place}: the usage {one.answer.usage} is nowhere"


def _counts(usage: Usage) -> tuple[int | None, int | None]:
    return usage.input, usage.output


def _told(chain: Sequence[Message], runs: dict[str, RunInfo]) -> str:
    """All that is told of messages beside what they say."""
    own = {message.run_id: runs[message.run_id] for message in chain if message.run_id in runs}
    said = [text for message in chain for text in (message.provider_ref or "", *message.metadata_text.values())]
    said += [block.provider_ref or "" for message in chain for block in message.blocks]
    for run in own.values():
        said += [run.finish_reason or "", run.model or "", *run.usage]
    return "\n".join(map(str, said))


def _chains(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Each message of a model, alone and with those of a model behind it."""
    known = {message.id: message for message in messages}
    for message in messages:
        chain: list[Message] = []
        at: Message | None = message
        while at is not None and at.role == "assistant" and len(chain) < _LONGEST:
            chain.insert(0, at)
            yield list(chain)
            at = known.get(at.parent_id or "")


def _says(chain: Sequence[Message], answer: Answer) -> bool:
    """Whether messages have the text and the calls of an answer."""
    if "".join(message.text for message in chain) != answer.text:
        return False
    made = [block for message in chain for block in message.blocks if block.kind == "tool_call"]
    return len(made) == len(answer.calls) and all(
        block.name == call.name and call.id in (None, block.tool_call_id) and _same(call, block.input, block.text)
        for call, block in zip(answer.calls, made, strict=True)
    )


def _same(call: Call, arguments: Any, text: str) -> bool:
    return call.arguments is ... or call.arguments in ({} if arguments is None else arguments, text)


def _is_named(chain: Sequence[Message], answer: Answer) -> bool:
    return answer.id is not None and any(message.provider_ref == answer.id for message in chain)


def _cited(chain: Sequence[Message], answer: Answer) -> int:
    """How many of its sources are missing."""
    blocks = [block for message in chain for block in message.blocks]
    there = [json.loads(citation).get("source") for block in blocks for citation in block.citations]
    return sum(source not in there for source in answer.citations)


def _what(answer: Answer) -> str:
    calls = ", ".join(call.name for call in answer.calls)
    return f"answer {answer.text[:60]!r}" + (f" with calls of {calls}" if calls else "")
