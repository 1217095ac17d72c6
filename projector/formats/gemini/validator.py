"""Rules of Gemini's `generateContent`. Sources are sections of its public documentation; errors are quoted as it gives them."""

from __future__ import annotations

import base64
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from projector.formats.shared.violations import apply, is_text, lone_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,128}")
_DATA: Final = (
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult", "toolCall",
    "toolResponse",
)  # fmt: skip
_OF_MODELS: Final = ("functionCall", "executableCode", "codeExecutionResult", "toolCall")


def validate_gemini(payload: Any) -> list[str]:
    """What `{"systemInstruction"?, "contents"}` violates; empty: `generateContent` takes it."""
    return apply(has_shape, RULES, payload)


def has_shape(payload: Any) -> Iterator[str]:
    """*generateContent, request body*: contents, each an object with `parts`, a list of objects."""
    contents = payload.get("contents") if isinstance(payload, dict) else None
    if not isinstance(contents, list):
        yield "contents: a list of contents was expected"
        return
    places = [(f"contents[{number}]", content) for number, content in enumerate(contents)]
    if payload.get("systemInstruction") is not None:
        places.append(("systemInstruction", payload["systemInstruction"]))
    for place, content in places:
        parts = content.get("parts") if isinstance(content, dict) else None
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            yield f"{place}.parts: a list of parts was expected"
            continue
        for at, part in enumerate(parts):
            if not all(isinstance(part.get(name), dict | None) for name in _DATA[1:]):
                yield f"{place}.parts[{at}]: an object was expected as what it is"


def has_contents(payload: Any) -> Iterator[str]:
    """*Errors*: "contents is not specified"; "Please use a valid role: user, model"."""
    if not payload["contents"]:
        yield "contents: at least one is required"
    for number, content in enumerate(payload["contents"]):
        if content.get("role", "user") not in ("user", "model"):
            yield f"contents[{number}].role: user or model was expected, not {content['role']!r}"


def has_parts(payload: Any) -> Iterator[str]:
    """*Errors*: "contents.parts must not be empty"."""
    for place, content in _contents(payload):
        if not content["parts"]:
            yield f"{place}.parts: it is empty"


def parts_say_one_thing(payload: Any) -> Iterator[str]:
    """*Errors*: "required oneof field 'data' must have one initialized field"."""
    for place, _, part in _parts(payload):
        said = [name for name in _DATA if part.get(name) is not None]
        if len(said) != 1 or not isinstance(part.get("text", ""), str | None):
            yield f"{place}: one of {', '.join(_DATA)} was expected, not {sorted(map(str, part))}"


def instruction_is_text(payload: Any) -> Iterator[str]:
    """*generateContent, systemInstruction*: "Developer set system instruction(s). Currently, text only"."""
    instruction = payload.get("systemInstruction") or {"parts": []}
    for at, part in enumerate(instruction["parts"]):
        if not isinstance(part.get("text"), str):
            yield f"systemInstruction.parts[{at}]: text was expected"


def text_is_well_formed(payload: Any) -> Iterator[str]:
    """*generateContent, request body*: a request is JSON in UTF-8."""
    yield from lone_surrogates(payload, "payload")


def parts_fit_role(payload: Any) -> Iterator[str]:
    """*Function calling*: the model calls, and the user's next turn brings the results."""
    for place, role, part in _parts(payload):
        if role == "model" and "functionResponse" in part:
            yield f"{place}: the result of a function can't stand in a content of the model"
        if role == "user" and any(name in part for name in _OF_MODELS):
            yield f"{place}: only a model has such a part"


def calls_have_results(payload: Any) -> Iterator[str]:
    """*Errors*: "the number of function response parts is equal to the number of function call parts"."""
    turns = _turns(payload)
    for at, (place, _, parts) in enumerate(turns):
        calls = _of(parts, "functionCall")
        results = _of(turns[at + 1][2], "functionResponse") if at + 1 < len(turns) else []
        if calls and len(calls) != len(results):
            yield f"{place}: {len(calls)} calls of functions, and {len(results)} results of them in the next content"


def results_have_calls(payload: Any) -> Iterator[str]:
    """*Errors*: "function response turn comes immediately after a function call turn"."""
    before: list[dict[str, Any]] = []
    for place, _, parts in _turns(payload):
        results = _of(parts, "functionResponse")
        if results and not before:
            yield f"{place}: results of functions, and the content before calls none"
        before = _of(parts, "functionCall")


def calls_follow_the_user(payload: Any) -> Iterator[str]:
    """*Errors*: "function call turn comes immediately after a user turn or after a function response turn"."""
    turns = _turns(payload)
    if turns and turns[0][1] == "model" and _of(turns[0][2], "functionCall"):
        yield f"{turns[0][0]}: a call of a function, and nobody has said anything before"


def results_are_of_their_calls(payload: Any) -> Iterator[str]:
    """*Function calling*: a result has the `name` of its call, and its `id` where the call has one."""
    turns = _turns(payload)
    for (_, _, before), (place, _, parts) in pairwise(turns):
        called = [(str(call.get("id")), str(call.get("name"))) for call in _of(before, "functionCall")]
        given = [(str(result.get("id")), str(result.get("name"))) for result in _of(parts, "functionResponse")]
        if len(called) == len(given) and sorted(called) != sorted(given):
            yield f"{place}: results of {given}, and {called} were called"


def functions_are_named(payload: Any) -> Iterator[str]:
    """*FunctionDeclaration, name*: "a-z, A-Z, 0-9, or contain underscores, colons, dots, and dashes"."""
    for place, _, part in _parts(payload):
        for kind in ("functionCall", "functionResponse"):
            name = part[kind].get("name") if part.get(kind) is not None else "f"
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                yield f"{place}.{kind}.name: up to 128 letters, digits, _, :, . and - were expected, not {name!r}"


def values_are_objects(payload: Any) -> Iterator[str]:
    """*FunctionCall, args; FunctionResponse, response*: each is an object, the response is required."""
    for place, _, part in _parts(payload):
        if not isinstance((part.get("functionCall") or {}).get("args"), dict | None):
            yield f"{place}.functionCall.args: an object was expected"
        if part.get("functionResponse") is not None and not isinstance(part["functionResponse"].get("response"), dict):
            yield f"{place}.functionResponse.response: an object was expected"


def media_have_sources(payload: Any) -> Iterator[str]:
    """*Blob; FileData*: bytes in base64 with their `mimeType`, or a `fileUri`."""
    for place, _, part in _parts(payload):
        inside = (part.get("functionResponse") or {}).get("parts")
        beside = [one for one in inside if isinstance(one, dict)] if isinstance(inside, list) else []
        for one in (part, *beside):
            blob, file = one.get("inlineData"), one.get("fileData")
            if isinstance(blob, dict) and not (is_text(blob.get("mimeType")) and _is_base64(blob.get("data"))):
                yield f"{place}.inlineData: a mimeType and data in base64 were expected"
            if isinstance(file, dict) and not is_text(file.get("fileUri")):
                yield f"{place}.fileData.fileUri: an address was expected"


def signatures_are_bytes(payload: Any) -> Iterator[str]:
    """*Thought signatures*: a signature is given back as it came, in base64."""
    for place, _, part in _parts(payload):
        if part.get("thoughtSignature") is not None and not is_text(part["thoughtSignature"]):
            yield f"{place}.thoughtSignature: bytes in base64 were expected"


RULES: Final = (
    has_contents, has_parts, parts_say_one_thing, instruction_is_text, text_is_well_formed, parts_fit_role,
    calls_have_results, results_have_calls, calls_follow_the_user, results_are_of_their_calls, functions_are_named,
    values_are_objects, media_have_sources, signatures_are_bytes,
)  # fmt: skip


def _contents(payload: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(f"contents[{number}]", content) for number, content in enumerate(payload["contents"])]


def _parts(payload: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each part with its place and the role of its content."""
    for place, content in _contents(payload):
        for at, part in enumerate(content["parts"]):
            yield f"{place}.parts[{at}]", content.get("role") or "user", part


def _turns(payload: Any) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Contents of one role in succession: the place of the first, the role, all parts."""
    turns: list[tuple[str, str, list[dict[str, Any]]]] = []
    for place, content in _contents(payload):
        role = content.get("role") or "user"
        if turns and turns[-1][1] == role:
            turns[-1][2].extend(content["parts"])
        else:
            turns.append((place, role, list(content["parts"])))
    return turns


def _of(parts: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [part[kind] for part in parts if part.get(kind) is not None]


def _is_base64(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(base64.b64decode(value.translate({45: "+", 95: "/"}) + "=="))
    except ValueError:
        return False
