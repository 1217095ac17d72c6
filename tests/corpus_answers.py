"""What models answered, read from the bodies of exchanges by the providers' documentation: plain values, no reader of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Call(NamedTuple):
    """A tool that was called; `id` is None where the provider gives none, `arguments` is `...` where they are no JSON."""

    id: str | None
    name: str
    arguments: Any


class Answer(NamedTuple):
    """One answer, or one of several choices: its text, the client's tools it calls, sources, tokens in all, why it ended."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    citations: tuple[Any, ...] = ()
    usage: tuple[int | None, int | None] | None = None
    finish: str | None = None
    model: str | None = None
    id: str | None = None
    choice: int = 0
    is_error: bool = False
    is_whole: bool = True


def arguments_of(text: Any) -> Any:
    """The value of arguments: some send them as text, some as they are; what is no JSON is `...`."""
    if not isinstance(text, str):
        return {} if text is None else text
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:
        return ...


def counts(usage: Any, given: Sequence[str], made: Sequence[str]) -> tuple[int | None, int | None] | None:
    """The sums of what a usage says, None where it says nothing."""
    if not isinstance(usage, dict):
        return None
    sums = []
    for names in (given, made):
        said = [int(usage[name]) for name in names if isinstance(usage.get(name), int | float)]
        sums.append(sum(said) if said else None)
    return None if sums == [None, None] else (sums[0], sums[1])


def joined(pieces: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """Usage that is told again: what a later word leaves out, or calls null, stays."""
    return pieces | {name: value for name, value in said.items() if value is not None}


def anthropic(values: Sequence[dict[str, Any]]) -> Iterator[Answer]:
    """A message that came whole, or one for each `message_start`; counts are cumulative."""
    heads: list[dict[str, Any]] = []
    for value in values:
        kind = value.get("type")
        if kind in ("message", "message_start"):
            message = value if kind == "message" else value["message"]
            heads.append(message | {"content": list(message.get("content") or []), "usage": dict(message.get("usage") or {})})
        elif kind == "error" or "error" in value or not heads:
            yield from () if heads else (Answer(is_error=True),)
        elif kind == "content_block_start":
            heads[-1]["content"].append(value["content_block"] | {"index": value["index"]})
        elif kind == "content_block_delta":
            block = next(block for block in reversed(heads[-1]["content"]) if block.get("index") == value["index"])
            _grow(block, value["delta"])
        elif kind == "message_delta":
            heads[-1].update({name: said for name, said in value["delta"].items() if said is not None})
            heads[-1]["usage"] = joined(heads[-1]["usage"], value.get("usage") or {})
    for head in heads:
        texts = [block for block in head["content"] if block["type"] == "text"]
        calls = [block for block in head["content"] if block["type"] == "tool_use"]
        yield Answer(
            "".join(block.get("text", "") for block in texts),
            tuple(Call(block["id"], block["name"], arguments_of(block.get("json") or block["input"])) for block in calls),
            tuple(citation for block in texts for citation in block.get("citations") or []),
            counts(
                head["usage"], ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), ("output_tokens",)
            ),
            head.get("stop_reason"),
            head.get("model"),
            head.get("id"),
            is_whole=head.get("stop_reason") is not None,
        )


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if delta["type"] == "text_delta":
        block["text"] = block.get("text", "") + delta["text"]
    elif delta["type"] == "input_json_delta":
        block["json"] = block.get("json", "") + delta["partial_json"]
    elif delta["type"] == "citations_delta":
        block["citations"] = [*(block.get("citations") or []), delta["citation"]]


def gemini(values: Sequence[dict[str, Any]]) -> Iterator[Answer]:
    """Chunks are responses; each tells totals. Thoughts are no text, and stand beside the candidate's tokens."""
    found: dict[int, Answer] = {}
    head: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    for value in values:
        if "error" in value:
            yield Answer(is_error=True)
            return
        head = joined(head, value)
        usage = joined(usage, value.get("usageMetadata") or {})
        for candidate in value.get("candidates") or []:
            at = candidate.get("index") or 0
            found[at] = _with_parts(found.get(at, Answer(choice=at, is_whole=False)), candidate)
    total = counts(usage, ("promptTokenCount", "toolUsePromptTokenCount"), ("candidatesTokenCount", "thoughtsTokenCount"))
    if not found and values:
        found[0] = Answer(finish=str((head.get("promptFeedback") or {}).get("blockReason") or "") or None)
    for answer in found.values():
        yield answer._replace(usage=total, model=head.get("modelVersion"), id=head.get("responseId"))


def _with_parts(answer: Answer, candidate: dict[str, Any]) -> Answer:
    parts = (candidate.get("content") or {}).get("parts") or []
    calls = [part["functionCall"] for part in parts if part.get("functionCall")]
    sources = list((candidate.get("groundingMetadata") or {}).get("groundingChunks") or [])
    reason = candidate.get("finishReason")
    made = [
        Call(call.get("id"), call["name"], ... if "partialArgs" in call or call.get("willContinue") else call.get("args") or {})
        for call in calls
        if call.get("name")
    ]
    return answer._replace(
        text=answer.text + "".join(part.get("text") or "" for part in parts if not part.get("thought")),
        calls=(*answer.calls, *made),
        citations=(*answer.citations, *(source for source in sources if source not in answer.citations)),
        finish=answer.finish if reason is None else _REASONS.get(reason, str(reason)),
        is_whole=answer.is_whole or reason is not None,
    )


_REASONS: Final[dict[Any, str]] = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION"}
"""Some libraries write the numbers of the enumeration."""


def bedrock(values: Sequence[dict[str, Any]]) -> Iterator[Answer]:
    """A response of Converse, or the events of its stream; what is cached stands beside the input."""
    blocks: dict[int, dict[str, Any]] = {}
    head: dict[str, Any] = {}
    is_error = False
    for value in values:
        name = next(iter(value), "")
        said = value.get(name) or {}
        if "output" in value:
            head = joined(head, value)
            blocks |= dict(enumerate(value["output"]["message"]["content"]))
        elif name == "contentBlockStart":
            blocks[said["contentBlockIndex"]] = {**said["start"]}
        elif name == "contentBlockDelta":
            _grow_block(blocks.setdefault(said["contentBlockIndex"], {}), said["delta"])
        elif name in ("messageStop", "metadata"):
            head = joined(head, said)
        is_error = is_error or name.endswith("Exception") or "message" in value
    calls = [block["toolUse"] for block in blocks.values() if "toolUse" in block]
    cited = [block["citationsContent"] for block in blocks.values() if "citationsContent" in block]
    yield Answer(
        "".join(_text_of(block) for _, block in sorted(blocks.items())),
        tuple(Call(call["toolUseId"], call["name"], arguments_of(call.get("input"))) for call in calls),
        tuple(
            [citation for block in cited for citation in block.get("citations") or []]
            + [citation for block in blocks.values() for citation in block.get("citation") or []]
        ),
        counts(head.get("usage"), ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"), ("outputTokens",)),
        head.get("stopReason"),
        is_error=is_error and "stopReason" not in head,
        is_whole="stopReason" in head,
    )


def _text_of(block: dict[str, Any]) -> str:
    cited = (block.get("citationsContent") or {}).get("content") or []
    return (block.get("text") or "") + "".join(part.get("text") or "" for part in cited)


def _grow_block(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    elif "toolUse" in delta:
        call = block["toolUse"]
        block["toolUse"] = call | {"input": call.get("input", "") + delta["toolUse"].get("input", "")}
    elif "citation" in delta:
        block["citation"] = [*block.get("citation", []), delta["citation"]]


def ollama(values: Sequence[dict[str, Any]]) -> Iterator[Answer]:
    """Lines that each add to a message; the last one counts."""
    if not values or "error" in values[-1]:
        yield Answer(is_error=True)
        return
    messages = [value.get("message") or {} for value in values]
    calls = [call["function"] for message in messages for call in message.get("tool_calls") or []]
    last = values[-1]
    yield Answer(
        "".join(message.get("content") or "" for message in messages),
        tuple(Call(None, call["name"], arguments_of(call.get("arguments"))) for call in calls),
        (),
        counts(last, ("prompt_eval_count",), ("eval_count",)),
        last.get("done_reason"),
        last.get("model"),
        is_whole=bool(last.get("done")),
    )
