"""What Cohere's two chat interfaces and Google's Interactions answered: one more part of the reading that owes us nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.corpus_answers import Answer, Call, arguments_of, counts, joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def cohere(values: Sequence[dict[str, Any]]) -> Iterator[Answer]:
    """A response that came whole, or the events of a stream, of version 1 or 2."""
    if values and ("event_type" in values[0] or "text" in values[0]):
        yield _first_version(values)
    elif values and "finish_reason" not in values[0] and "type" not in values[0]:
        yield Answer(is_error=True, is_whole=False)
    else:
        yield _second_version(values)


def _first_version(values: Sequence[dict[str, Any]]) -> Answer:
    whole: dict[str, Any] = next(
        (value.get("response", value) for value in values if "response" in value or "event_type" not in value), {}
    )
    begun = next((value for value in values if "generation_id" in value), {})
    pieces = "".join(value.get("text") or "" for value in values if value.get("event_type") == "text-generation")
    calls = tuple(Call(None, call["name"], arguments_of(call.get("parameters"))) for call in whole.get("tool_calls") or [])
    return Answer(
        whole.get("text") or pieces,
        calls,
        tuple(whole.get("citations") or []),
        _tokens(whole.get("meta")),
        whole.get("finish_reason"),
        None,
        whole.get("generation_id") or begun.get("generation_id"),
        is_whole="finish_reason" in whole,
    )


def _second_version(values: Sequence[dict[str, Any]]) -> Answer:
    head: dict[str, Any] = {}
    text = ""
    calls: list[dict[str, Any]] = []
    citations: list[Any] = []
    for value in values:
        kind = value.get("type")
        message = value.get("message") or (value.get("delta") or {}).get("message") or {}
        head = joined(head, {name: value[name] for name in ("id", "finish_reason", "usage") if name in value})
        if kind == "message-end":
            head = joined(head, value["delta"])
        content: Any = message.get("content") or []
        parts = content if isinstance(content, list) else [content]
        text += "".join(part.get("text") or "" for part in parts if kind in (None, "content-delta", "content-start"))
        made: Any = message.get("tool_calls") or []
        if kind == "tool-call-delta":
            calls[-1]["arguments"] += made["function"]["arguments"]
        else:
            own = made if isinstance(made, list) else [made]
            calls += [{"id": one["id"], **one["function"], "arguments": one["function"].get("arguments") or ""} for one in own]
        cited: Any = message.get("citations") or []
        citations += cited if isinstance(cited, list) else [cited]
    return Answer(
        text,
        tuple(Call(call["id"], call["name"], arguments_of(call["arguments"])) for call in calls),
        tuple(citations),
        _tokens(head.get("usage")),
        head.get("finish_reason"),
        None,
        head.get("id"),
        is_whole="finish_reason" in head,
    )


def _tokens(said: Any) -> tuple[int | None, int | None] | None:
    """Tokens in all; beside them Cohere tells what it bills."""
    return counts((said or {}).get("tokens") or (said or {}).get("billed_units"), ("input_tokens",), ("output_tokens",))


def interactions(values: Sequence[dict[str, Any]]) -> Iterator[Answer]:
    """An interaction that came whole, or the events of one: steps, of which thoughts and tools of Google's say no text."""
    head: dict[str, Any] = {}
    steps: dict[int, dict[str, Any]] = {}
    for value in values:
        whole = value if value.get("object") == "interaction" else value.get("interaction") or {}
        head = joined(head, whole)
        steps |= dict(enumerate(whole.get("steps") or []))
        kind = value.get("event_type")
        if kind == "step.start":
            steps[value["index"]] = dict(value["step"])
        elif kind == "step.delta":
            _grow_step(steps[value["index"]], value["delta"])
    parts = [part for _, step in sorted(steps.items()) if step["type"] == "model_output" for part in step.get("content") or []]
    calls = [step for _, step in sorted(steps.items()) if step["type"] == "function_call"]
    yield Answer(
        "".join(part.get("text") or "" for part in parts),
        tuple(Call(call["id"], call["name"], arguments_of(call.get("pieces") or call["arguments"])) for call in calls),
        tuple(citation for part in parts for citation in part.get("annotations") or []),
        counts(
            head.get("usage"),
            ("total_input_tokens", "total_tool_use_tokens"),
            ("total_output_tokens", "total_thought_tokens"),
        ),
        None,
        head.get("model"),
        head.get("id"),
        is_error=head.get("status") == "failed",
        is_whole=head.get("status") in ("completed", "requires_action"),
    )


def _grow_step(step: dict[str, Any], delta: dict[str, Any]) -> None:
    if delta["type"] == "arguments_delta":
        step["pieces"] = step.get("pieces", "") + delta["arguments"]
    elif step["type"] == "model_output":
        step["content"] = [*(step.get("content") or []), delta]
