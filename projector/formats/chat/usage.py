"""Token counts of Chat Completions and its dialects, as totals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from projector import events as ev
from projector.formats.format import FormatError
from projector.formats.shared.fields import count_of, shown
from projector.json_text import JsonText, decode, dump, raw, split

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_usage(chunk: Mapping[str, JsonText], choice: Mapping[str, JsonText] | None) -> ev.RunUsage | None:
    """The usage of a chunk, wherever it has it; None where it has none. Run and request are for the caller to name.

    Raises `FormatError` where it is no object.
    """
    text = _find(chunk, choice)
    if text is None:
        return None
    usage = _object("usage", decode(text))
    prompt, output = (_object(name, usage.get(name) or {}) for name in ("prompt_tokens_details", "completion_tokens_details"))
    reasoning = _first(output.get("reasoning_tokens"), usage.get("reasoning_tokens"))
    given, made = count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens"))
    if reasoning and given is not None and made is not None and usage.get("total_tokens") == given + made + reasoning:
        made += reasoning  # xAI counts reasoning beside the completion; totals hold their parts
    return ev.RunUsage(
        run_id="",
        request_id="",
        input=given,
        output=made,
        cached=_first(prompt.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens")),
        cache_write=count_of(prompt.get("cache_write_tokens")),
        reasoning=reasoning,
        raw=raw(text),
    )


def _find(chunk: Mapping[str, JsonText], choice: Mapping[str, JsonText] | None) -> JsonText | None:
    """Beside the choices, in Groq's own field, or in the choice (Moonshot)."""
    places: list[Mapping[str, JsonText]] = [chunk, split(chunk["x_groq"]) if "x_groq" in chunk else {}, choice or {}]
    found = (fields["usage"] for fields in places if "usage" in fields)
    return next((text for text in found if text.strip() not in ("null", "{}")), None)


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f'"{name}" should be an object, not {shown(dump(value))}')
    return value


def _first(*counts: object) -> int | None:
    return next((count for count in map(count_of, counts) if count is not None), None)
