"""Rules of OpenAI's Responses input items. Sources are sections of its public documentation; errors are quoted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from projector.formats.shared.violations import apply, is_text, lone_surrogates, nuls

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_CALL_ID: Final = 64
_INPUT: Final = ("input_text", "input_image", "input_file", "input_audio")
_PARTS: Final = {"user": _INPUT, "system": _INPUT, "developer": _INPUT, "assistant": ("output_text", "refusal")}
_OUTPUT_OF: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


def validate_responses(payload: Any) -> list[str]:
    """What items, or an object with `input`, violate; empty: the Responses API takes them."""
    return apply(has_shape, RULES, payload["input"] if isinstance(payload, dict) and "input" in payload else payload)


def has_shape(items: Any) -> Iterator[str]:
    """*Responses, input*: items with a type; a message may leave it out, its content is text or a list of typed parts."""
    if not isinstance(items, list):
        yield "input: a list of items was expected"
        return
    for number, item in enumerate(items):
        place = f"input[{number}]"
        if not isinstance(item, dict) or not isinstance(item.get("type", "message"), str):
            yield f"{place}: an object with a type was expected"
        elif not all(isinstance(item.get(name), str | None) for name in ("id", "call_id", "approval_request_id", "role")):
            yield f"{place}: text was expected as id and as role"
        elif _is_message(item):
            content = item.get("content")
            parts = content if isinstance(content, list) else []
            if not isinstance(content, list | str):
                yield f"{place}.content: text or a list of parts was expected"
            if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts):
                yield f"{place}.content: parts with a type were expected"


def has_items(items: Any) -> Iterator[str]:
    """*Responses, input*: at least one item; roles user, assistant, system, developer."""
    if not items:
        yield "input: at least one item is required"
    for number, item in enumerate(items):
        if _is_message(item) and item.get("role") not in _PARTS:
            yield f"input[{number}].role: {', '.join(_PARTS)} was expected, not {item.get('role')!r}"


def text_is_not_blank(items: Any) -> Iterator[str]:
    """EVENTS, rule 5. Not demanded by OpenAI itself; a blank message says nothing and is refused elsewhere."""
    for number, item in enumerate(items):
        if not _is_message(item):
            continue
        content = item["content"]
        said = (
            [content] if isinstance(content, str) else [part.get("text") for part in content if part["type"].endswith("_text")]
        )
        if not content or not all(is_text(text) for text in said):
            yield f"input[{number}].content: text that is not blank was expected"


def text_is_well_formed(items: Any) -> Iterator[str]:
    """*Error codes*: a body is JSON in UTF-8 ("We could not parse the JSON body of your request"); EVENTS, rule 4: no NUL."""
    yield from lone_surrogates(items, "input")
    yield from nuls(items, "input")


def parts_fit_role(items: Any) -> Iterator[str]:
    """*Errors*: "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'", and the other way round."""
    for number, item in enumerate(items):
        if _is_message(item) and isinstance(item["content"], list):
            for part in item["content"]:
                if part["type"] not in _PARTS.get(item.get("role"), ()):
                    yield f"input[{number}]: {part['type']} can't stand in a message of the {item.get('role')}"


def calls_are_whole(items: Any) -> Iterator[str]:
    """*Responses, input, Function tool call*: `call_id` of 1 to 64 characters, `name`, and `arguments`, which are text."""
    for number, item in enumerate(items):
        kind = item.get("type")
        if kind in ("function_call", "custom_tool_call"):
            said = item.get("arguments" if kind == "function_call" else "input")
            if not isinstance(said, str):
                yield f"input[{number}]: the arguments as text were expected"
            if not isinstance(item.get("name"), str) or not _NAME.fullmatch(item["name"]):
                yield f"input[{number}].name: up to 64 letters, digits, _ and - were expected, not {item.get('name')!r}"
        if kind in _OUTPUT_OF or kind in _OUTPUT_OF.values():
            call_id = item.get("call_id")
            if not isinstance(call_id, str) or not 1 <= len(call_id) <= _MAX_CALL_ID:
                yield f"input[{number}].call_id: 1 to {_MAX_CALL_ID} characters were expected"


def outputs_are_whole(items: Any) -> Iterator[str]:
    """*Responses, input, Function tool call output*: `output` is text, or a list of input text, images and files."""
    for number, item in enumerate(items):
        output = item.get("output")
        if item.get("type") not in ("function_call_output", "custom_tool_call_output"):
            continue
        if isinstance(output, list):
            if not all(isinstance(part, dict) and part.get("type") in _INPUT for part in output):
                yield f"input[{number}].output: {', '.join(_INPUT)} were expected"
        elif not isinstance(output, str):
            yield f"input[{number}].output: text or a list of parts was expected"


def calls_have_outputs(items: Any) -> Iterator[str]:
    """*Errors*: "No tool output found for function call …"."""
    for number, item in enumerate(items):
        wanted = _OUTPUT_OF.get(item.get("type", "message"))
        if wanted and not any(
            other.get("type") == wanted and other.get("call_id") == item.get("call_id") for other in items[number + 1 :]
        ):
            yield f"input[{number}]: no output of {item.get('call_id')!r} behind it"


def outputs_have_calls(items: Any) -> Iterator[str]:
    """*Errors*: "No tool call found for function call output with call_id …"; a second output has none any more."""
    open_calls: set[tuple[str, Any]] = set()
    for number, item in enumerate(items):
        kind = item.get("type", "message")
        if kind in _OUTPUT_OF:
            open_calls.add((_OUTPUT_OF[kind], item.get("call_id")))
        elif kind in _OUTPUT_OF.values():
            if (kind, item.get("call_id")) not in open_calls:
                yield f"input[{number}]: an output of {item.get('call_id')!r}, which is no open call"
            open_calls.discard((kind, item.get("call_id")))


def approvals_have_requests(items: Any) -> Iterator[str]:
    """*MCP and connectors, Approvals*: a response names the request before it by `approval_request_id`."""
    asked: set[Any] = set()
    for number, item in enumerate(items):
        if item.get("type") == "mcp_approval_request":
            asked.add(item.get("id"))
        elif item.get("type") == "mcp_approval_response" and item.get("approval_request_id") not in asked:
            yield f"input[{number}]: an answer to {item.get('approval_request_id')!r}, which nobody asked"


def ids_are_unique(items: Any) -> Iterator[str]:
    """*Errors*: "Duplicate item found with id …. Remove duplicate items from your input", and "Duplicate 'call_id'"."""
    seen: set[tuple[str, Any]] = set()
    for number, item in enumerate(items):
        names = [("id", item.get("id"))] if item.get("id") is not None else []
        names += [("call_id", item.get("call_id"))] if item.get("type") in _OUTPUT_OF else []
        for name in names:
            if name in seen:
                yield f"input[{number}].{name[0]}: {name[1]!r} is there twice"
            seen.add(name)


def ids_are_openais(items: Any) -> Iterator[str]:
    """*Errors*: "Invalid 'input[2].id': '…'. Expected an ID that begins with 'msg'" (`rs`, `fc`)."""
    for number, item in enumerate(items):
        prefix = _PREFIXES.get(item.get("type", "message"))
        if prefix and item.get("id") is not None and not str(item["id"]).startswith(prefix):
            yield f"input[{number}].id: an id that begins with {prefix} was expected, not {item['id']!r}"


def reasoning_is_whole(items: Any) -> Iterator[str]:
    """*Responses, input, Reasoning*: `id` and `summary` are required, `encrypted_content` is text."""
    for number, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        summary, encrypted = item.get("summary"), item.get("encrypted_content")
        if not isinstance(item.get("id"), str) or not isinstance(summary, list):
            yield f"input[{number}]: the id and summary of the reasoning were expected"
        if encrypted is not None and not is_text(encrypted):
            yield f"input[{number}].encrypted_content: text was expected"


def reasoning_is_followed(items: Any) -> Iterator[str]:
    """*Errors*: "Item 'rs_…' of type 'reasoning' was provided without its required following item"."""
    for number, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        following = next((other for other in items[number + 1 :] if other.get("type") != "reasoning"), None)
        kind = following.get("type", "message") if following is not None else ""
        is_input = kind.endswith("_output") or (
            following is not None and kind == "message" and following.get("role") != "assistant"
        )
        if not kind or is_input:
            yield f"input[{number}]: nothing that the model said follows the reasoning"


def media_have_sources(items: Any) -> Iterator[str]:
    """*Images and vision; File inputs*: a URL or data URL, file data, or the id of a file."""
    wanted = {"input_image": ("image_url", "file_id"), "input_file": ("file_data", "file_id", "file_url")}
    for number, item in enumerate(items):
        content = item.get("content") if _is_message(item) else item.get("output")
        for at, part in enumerate(content if isinstance(content, list) else ()):
            names = wanted.get(str(part.get("type"))) if isinstance(part, dict) else None
            if names and not any(is_text(part.get(name)) for name in names):
                yield f"input[{number}].content[{at}]: {' or '.join(names)} was expected"


RULES: Final = (
    has_items, text_is_not_blank, text_is_well_formed, parts_fit_role, calls_are_whole, outputs_are_whole,
    calls_have_outputs, outputs_have_calls, approvals_have_requests, ids_are_unique, ids_are_openais,
    reasoning_is_whole, reasoning_is_followed, media_have_sources,
)  # fmt: skip


def _is_message(item: dict[str, Any]) -> bool:
    return str(item.get("type", "message")) == "message"
