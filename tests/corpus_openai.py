"""What OpenAI's two interfaces answered, and the many that speak them: one more part of the reading that owes us nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.corpus_answers import Answer, Call, arguments_of, counts, joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ENDS = ("response.completed", "response.incomplete", "response.failed")


def chat(values: Sequence[dict[str, Any]]) -> Iterator[Answer]:
    """A completion that came whole, or its chunks: an answer for each choice; the last usage counts."""
    choices: dict[int, dict[str, Any]] = {}
    head: dict[str, Any] = {}
    usage: Any = None
    is_error = False
    for value in values:
        is_error = is_error or bool(value.get("error")) or value.get("object") == "error"
        head = joined(head, {name: value[name] for name in ("id", "model") if value.get(name)})
        for choice in value.get("choices") or []:
            own = choices.setdefault(choice.get("index") or 0, {"text": "", "calls": [], "citations": [], "finish": None})
            _add_choice(own, choice)
            usage = choice.get("usage") or usage
        usage = value.get("usage") or (value.get("x_groq") or {}).get("usage") or usage
    if not choices:
        yield Answer(is_error=is_error, is_whole=False)
    for at, own in sorted(choices.items()):
        calls = tuple(Call(call["id"], call["name"], arguments_of(call["arguments"])) for call in own["calls"])
        is_whole = own["finish"] is not None
        yield Answer(
            own["text"], calls, tuple(own["citations"]), _counts(usage), own["finish"], head.get("model"), head.get("id"), at,
            is_error, is_whole,
        )  # fmt: skip


def _counts(usage: Any) -> tuple[int | None, int | None] | None:
    """Completion tokens hold those of reasoning, but where the total says that they stand beside (xAI)."""
    found = counts(usage, ("prompt_tokens",), ("completion_tokens",))
    if found is None or None in found:
        return found
    details = usage.get("completion_tokens_details") or {}
    reasoning = details.get("reasoning_tokens") or usage.get("reasoning_tokens") or 0
    given, made = found
    return (given, made + reasoning) if usage.get("total_tokens") == given + made + reasoning else found  # type: ignore[operator]


def _add_choice(own: dict[str, Any], choice: dict[str, Any]) -> None:
    delta = choice.get("delta") or choice.get("message") or {}
    said = delta.get("content", choice.get("text"))
    parts = said if isinstance(said, list) else [{"type": "text", "text": said or ""}]
    own["text"] += "".join(part.get("text") or "" for part in parts if part.get("type") == "text")
    own["citations"] += delta.get("annotations") or []
    own["finish"] = choice.get("finish_reason") or own["finish"]
    pieces = list(delta.get("tool_calls") or [])
    if delta.get("function_call"):
        pieces.append({"index": -1, "function": delta["function_call"]})
    for number, piece in enumerate(pieces):
        _add_call(own["calls"], piece, piece.get("index", number if "message" in choice else None))


def _add_call(calls: list[dict[str, Any]], piece: dict[str, Any], at: int | None) -> None:
    """A piece with another id than the newest of its index begins a call."""
    said = piece.get("function") or piece.get("custom") or {}
    same = [call for call in calls if at is None or call["at"] == at]
    call = same[-1] if same else None
    if call is None or (piece.get("id") and call["id"] not in (None, piece["id"])):
        call = {"id": None, "name": "", "arguments": None, "at": at}
        calls.append(call)
    call["id"] = call["id"] or piece.get("id") or None
    call["name"] = call["name"] or said.get("name") or ""
    given = said.get("arguments", said.get("input"))
    if isinstance(given, str) and isinstance(call["arguments"], str | None):
        call["arguments"] = (call["arguments"] or "") + given
    elif given is not None:
        call["arguments"] = given


def responses(values: Sequence[dict[str, Any]]) -> Iterator[Answer]:
    """A response that came whole, or the events of one or more: the last list of items counts, else the items that ended."""
    streams: list[list[dict[str, Any]]] = []
    for value in values:
        if value.get("type") == "response.created" or not streams:
            streams.append([])
        streams[-1].append(value)
    for events in streams:
        yield _response(events)


def _response(events: Sequence[dict[str, Any]]) -> Answer:
    head: dict[str, Any] = {}
    done: dict[Any, dict[str, Any]] = {}
    texts: dict[tuple[Any, Any], str] = {}
    is_whole = is_error = False
    for event in events:
        kind = str(event.get("type", ""))
        place = event.get("output_index"), event.get("content_index")
        said = event if event.get("object") == "response" else event.get("response")
        if isinstance(said, dict):
            head = joined(head, said)
            is_whole = is_whole or kind in _ENDS or said is event
        is_error = is_error or kind in ("error", "response.failed") or bool(event.get("error"))
        if kind == "response.output_item.done":
            done[event.get("output_index", len(done))] = event["item"]
            texts |= {
                (event.get("output_index"), at): part.get("text") or "" for at, part in enumerate(_parts([event["item"]]))
            }
        elif kind == "response.output_text.delta":
            texts[place] = texts.get(place, "") + event["delta"]
        elif kind == "response.output_text.done":
            texts[place] = event["text"]
    items = head.get("output") or [item for _, item in sorted(done.items())]
    parts = [part for part in _parts(items) if part.get("type") == "output_text"]
    calls = [item for item in items if item.get("type") in ("function_call", "custom_tool_call")]
    return Answer(
        "".join(part.get("text") or "" for part in parts) if head.get("output") else "".join(texts.values()),
        tuple(
            Call(item["call_id"], item["name"], item["input"] if "input" in item else arguments_of(item["arguments"]))
            for item in calls
        ),
        tuple(citation for part in parts for citation in part.get("annotations") or []),
        counts(head.get("usage"), ("input_tokens",), ("output_tokens",)),
        None,
        head.get("model"),
        head.get("id"),
        is_error=is_error or head.get("status") == "failed",
        is_whole=is_whole,
    )


def _parts(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [part for item in items if item.get("type") == "message" for part in item.get("content") or []]
