"""Cassettes: the longest conversation in the exchanges of a file, as runs of events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from projector import events as ev
from projector.formats.recordings.transport import read_all
from projector.formats.shared.frames import Payload
from projector.formats.shared.history import History, runs_of
from tests.corpus_claims import claim, is_talk
from tests.corpus_exchanges import Sent, content_of, events_of, exchanges_of, frames_of, unpacked
from tests.corpus_formats import history_format
from tests.corpus_parts import Conversation, File
from tests.corpus_play import Played, check_text, has_error, play

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_ERROR = 400


class _Talk(NamedTuple):
    """A history that was sent, with its exchange."""

    history: History
    sent: Sent
    format: str


def take_cassette(file: File) -> None:
    """HTTP exchanges, or a two-way websocket session, which no format takes in."""
    file.counts["conv"] += 1
    directions = frames_of(file.path)
    file.counts["websocket frames sent"] += directions["sent"]
    if directions or "realtime-ws" in file.name:
        file.refused.append("a realtime session over a websocket: no format takes two-way events in")
        return
    take_exchanges(file, exchanges_of(file.path))


def take_bodies(file: File, folder: Path) -> None:
    """Bodies of exchanges whose headers were not taken: a folder is one conversation, told with its first file."""
    exchanges = []
    for path in sorted(folder.glob("*.request.json*")):
        stem = path.name.split(".")[0]
        [answer] = folder.glob(f"{stem}.response.*")
        request = json.loads(content_of(path))
        body = unpacked(content_of(answer))
        uri = "https://host/v1/chat/completions" if "messages" in request else "https://host/v1/responses"
        if b'"message_start"' in body[:400]:
            uri = "https://host/v1/messages"
        exchanges.append(Sent(stem, uri, 200, request, *events_of(body), body))
    file.counts["conv"] += 1
    take_exchanges(file, exchanges)


def take_exchanges(file: File, exchanges: Sequence[Sent]) -> None:
    """The exchanges of a cassette: its conversation is the longest history that was sent, with its answer."""
    best: _Talk | None = None
    before: dict[str, list[ev.Body]] = {}
    for sent in exchanges:
        file.counts["HTTP exchanges"] += 1
        file.counts["streams"] += sent.is_stream
        file.counts["binary AWS event-stream frames"] += len(sent.answer) if sent.body[:1] == b"\0" else 0
        if not is_talk(sent):
            file.counts["exchanges that are no conversation"] += 1
            continue
        name = claim(sent)
        [history] = history_format(name)(json.dumps(sent.request))
        if name in before:
            differing = differing_calls(before.pop(name), history)
            file.check("calls come back as they were made", not differing, f"{sent.place}: {differing[:1]}")
        talk = _Talk(history, sent, name)
        if sent.status < _ERROR and sent.answer:
            answered = check_answer(file, talk)
            if answered.outcome == "completed":
                before[name] = answered.bodies
        if best is None or len(history.drafts) >= len(best.history.drafts):
            best = talk
    if best is not None:
        made = Conversation.of(best.history, file.name)
        parent = made.messages[-1].id if made.messages else None
        runs = [answer_of(best, f"{file.name}/answer", parent).bodies] if best.sent.answer else []
        file.conversations.append(made._replace(runs=[*made.runs, *runs]))
    elif exchanges:
        file.refused.append("no exchange of it is a conversation")


def check_answer(file: File, talk: _Talk) -> Played:
    """An answer by itself: it is read to its end, and says what its deltas say."""
    payloads = payloads_of(talk.sent)
    played = answer_of(talk, f"{file.name}{talk.sent.place}", None)
    is_right = played.outcome == ("failed" if has_error(payloads) else "completed")
    file.check("an answer is read to its end, or fails with its error", is_right, f"{talk.sent.place}: {played.outcome}")
    if talk.sent.is_stream:
        check_text(file, talk.format, payloads, played)
    return played


def payloads_of(sent: Sent) -> list[Payload]:
    """What an answer carries; of a model that was invoked, what is inside its frames."""
    if sent.body[:1] == b"\0":
        return [Payload(json.dumps(value), place=f"frame {number}") for number, value in enumerate(sent.answer, 1)]
    return list(read_all([sent.body]))


def answer_of(talk: _Talk, known: str, parent: str | None) -> Played:
    """What a provider answered, as a run: a stream, or a response that came whole."""
    whole = talk.sent.answer[0]
    if talk.format == "anthropic" and whole.get("type") == "message":
        [run] = runs_of(next(history_format("anthropic")(json.dumps(whole))), known)
        return Played([replace_parent(body, parent) for body in run.bodies], "completed", [])
    return play(talk.format, payloads_of(talk.sent), Conversation.run_id(known), parent)


def replace_parent(body: ev.Body, parent: str | None) -> ev.Body:
    if isinstance(body, ev.RunStarted):
        return ev.RunStarted(body.run_id, parent, body.trigger, body.producer, body.model, body.provider, body.created_at)
    return body


def differing_calls(answer: list[ev.Body], history: History) -> list[str]:
    """The calls of an answer that the history sent next has with another name or input; a client may leave some out."""
    made = [block for message in Conversation("", None, {}, [answer], 0).messages for block in message.blocks]
    ours = {block.tool_call_id: (block.name, block.input) for block in made if block.kind == "tool_call"}
    sent = [block for draft in history.drafts for block in draft.blocks if block.kind == "tool_call"]
    return [
        f"{block.name}({block.input}), not {ours[block.tool_call_id]}"
        for block in sent
        if block.tool_call_id in ours and ours[block.tool_call_id] != (block.name, block.input)
    ]
