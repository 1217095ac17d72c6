"""Each rule of a provider rejects something, and none rejects what that provider took when it was recorded."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.formats.anthropic import validator as anthropic
from projector.formats.chat import validator as chat
from projector.formats.responses import validator as responses
from projector.formats.validators import validate_anthropic, validate_chat, validate_responses
from tests.shared_data import DATA, files, needs_data, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

USER: Final = {"role": "user", "content": "hi"}
EMPTY: Final[dict[str, Any]] = {"role": "user", "content": []}


def says(*blocks: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def call(ref: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": ref, "name": "f", "input": {}} | more


def result(ref: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ref, "content": "ok"} | more


def search(ref: str = "s") -> dict[str, Any]:
    return {"type": "server_tool_use", "id": ref, "name": "web_search", "input": {}}


def found(ref: str = "s") -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": ref, "content": []}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


def program() -> dict[str, Any]:
    return call(caller={"type": "code_execution_20250825", "tool_id": "s"})


THINKING: Final = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
ANTHROPIC: Final[dict[str, list[list[Any]]]] = {
    "has_messages": [[], [USER, {"role": "tool", "content": "x"}]],
    "instructions_have_their_place": [
        [{"role": "system", "content": "x"}, says(text("a"))],
        [USER, {"role": "system", "content": "x"}, USER],
        [USER, says(text("a")), {"role": "system", "content": "x"}],
    ],
    "has_content": [[EMPTY], [{"role": "user", "content": ""}]],
    "text_is_not_blank": [
        [says(text(""), role="user")], [says(text(" \n"))], [{"role": "user", "content": "  "}],
        [USER, says(call()), says(result(content=[text("")]), role="user")],
    ],
    "text_is_well_formed": [[{"role": "user", "content": "\ud83d"}], [USER, says(call(input={"\udc00": 1}))]],
    "blocks_fit_role": [
        [says(call(), role="user")], [says(result())], [says(image(type="url", url="u"))], [says(found(), role="user")],
        [says(THINKING, role="user")],
    ],
    "calls_have_results": [
        [USER, says(call())], [USER, says(call()), USER], [USER, says(call("a"), call("b")), says(result("a"), role="user")],
        [USER, says(call()), says(text("x")), {"role": "system", "content": "x"}, says(result(), role="user")],
    ],
    "results_have_calls": [[says(result(), role="user")], [USER, says(call("a")), says(result("b"), role="user")]],
    "calls_have_one_result": [[USER, says(call()), says(result(), result(), role="user")]],
    "results_come_first": [[USER, says(call()), says(text("x"), result(), role="user")]],
    "errors_say_something": [[USER, says(call()), says(result(is_error=True, content=[]), role="user")]],
    "programs_get_results_only": [[USER, says(search(), program()), says(result(), text("and"), role="user")]],
    "ids_are_unique": [[USER, says(call(), call())], [USER, says(search(), found(), search())]],
    "calls_are_named": [
        [says(call("a.b"))], [says(call(""))], [says(call(name="f g"))], [says(call(name="f" * 65))], [says(call(name=None))],
    ],
    "input_is_object": [[says(call(input="{}"))], [says(call(input=None))], [says(search() | {"input": []})]],
    "thinking_is_signed": [
        [says(THINKING | {"signature": ""})], [says({"type": "thinking", "thinking": "x"})],
        [says({"type": "redacted_thinking", "data": ""})],
    ],
    "thinking_is_not_last": [[says(text("a"), THINKING)], [says(THINKING)]],
    "server_calls_have_results": [
        [USER, says(search()), USER], [USER, says(search(), text("x"))], [USER, says(search()), USER, says(text("x"))],
        [USER, says(search(), program()), says(result(), role="user"), USER],
    ],
    "server_results_have_calls": [[says(found())], [says(search(), found(), found())], [says(found(), search())]],
    "media_have_sources": [
        [says(image(), role="user")], [says(image(type="base64", media_type="image/png"), role="user")],
        [says(image(type="base64", media_type="image/tiff", data="AA=="), role="user")],
        [says({"type": "document"}, role="user")], [says(image(type="text", data="x"), role="user")],
        [USER, says(call()), says(result(content=[image()]), role="user")],
    ],
    "end_is_trimmed": [[USER, says(text("so "))], [USER, {"role": "assistant", "content": "so\n"}]],
}  # fmt: skip
TAKEN_BY_ANTHROPIC: Final[list[list[Any]]] = [
    [USER, USER, says(THINKING, call("a"), call("b")), says(result("b"), result("a"), text("and"), role="user")],
    [USER, says(call("a")), says(call("b")), says(result("a"), result("b"), role="user"), USER],
    [USER, says(search())],
    [USER, says(search(), found()), {"role": "system", "content": "be brief"}, says(text("x"))],
    [USER, {"role": "system", "content": "be brief"}, says(text("x"))],
    [USER, says(search(), program()), says(result(), role="user")],
    [
        USER,
        says(search(), program()),
        says(result(), role="user"),
        says({"type": "code_execution_tool_result", "tool_use_id": "s"}),
    ],
    [says(image(type="base64", media_type="image/png", data="AA=="), {"type": "hologram"}, role="user")],
    [says(text("the assistant may begin")), USER],
]


def tool_calls(*refs: str, **more: Any) -> dict[str, Any]:
    calls = [{"id": ref, "type": "function", "function": {"name": "f", "arguments": "{}"}} | more for ref in refs]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answer(ref: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ref, "content": "ok"}


def function(**more: Any) -> dict[str, Any]:
    return {"function": {"name": "f", "arguments": "{}"} | more}


CHAT: Final[dict[str, list[list[Any]]]] = {
    "has_messages": [[], [{"role": "robot", "content": "x"}]],
    "has_content": [[{"role": "user", "content": None}], [{"role": "user", "content": []}], [{"role": "assistant"}]],
    "text_is_not_blank": [[{"role": "user", "content": " "}], [says(text("\n"), role="user")]],
    "text_is_well_formed": [[{"role": "user", "content": "\ud83d"}], [{"role": "user", "content": "a\0"}]],
    "parts_fit_role": [
        [says(text("a"), {"type": "image_url"}, role="system")], [says({"type": "input_audio"})],
        [says({"type": "refusal", "refusal": "no"}, role="user")], [says({"type": "hologram"}, role="user")],
    ],
    "calls_are_whole": [
        [tool_calls()], [tool_calls("")], [tool_calls("a", type="robot")], [tool_calls("a", **function(arguments={}))],
        [tool_calls("a", **function(name="f g"))], [tool_calls("a", **function(name=""))],
        [tool_calls("a", type="custom", custom={"name": "f"})],
    ],
    "calls_have_results": [[tool_calls("a")], [tool_calls("a", "b"), answer("a")], [tool_calls("a"), USER, answer("a")]],
    "results_have_calls": [
        [answer("a")], [tool_calls("a"), answer("a"), answer("a")], [tool_calls("a"), answer("a"), USER, answer("a")],
    ],
    "only_assistants_call": [[USER | {"tool_calls": []}], [USER | {"refusal": "no"}], [USER | {"tool_call_id": "a"}]],
    "ids_are_unique": [[tool_calls("a", "a")], [tool_calls("a"), answer("a"), tool_calls("a"), answer("a")]],
    "participants_are_named": [[USER | {"name": "a b"}], [USER | {"name": ""}], [USER | {"name": "<a>"}]],
    "media_have_sources": [
        [says({"type": "image_url", "image_url": {}}, role="user")], [says({"type": "file", "file": {}}, role="user")],
    ],
}  # fmt: skip
TAKEN_BY_CHAT: Final[list[list[Any]]] = [
    [{"role": "developer", "content": "x"}, USER, tool_calls("a", "b"), answer("b"), answer("a"), USER],
    [USER | {"name": "ann"}, {"role": "assistant", "content": None, "refusal": "no"}, USER],
    [says(text("a"), {"type": "image_url", "image_url": {"url": "u"}}, role="user"), {"role": "assistant", "content": "x"}],
    [tool_calls("a", type="custom", custom={"name": "f", "input": "x"}), answer("a") | {"content": ""}],
]


def function_call(ref: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": ref, "name": "f", "arguments": "{}"} | more


def output(ref: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": ref, "output": "ok"} | more


def reasoning(ref: str = "rs_1", **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": ref, "summary": [], "encrypted_content": "x"} | more


RESPONSES: Final[dict[str, list[list[Any]]]] = {
    "has_items": [[], [{"role": "tool", "content": "x"}]],
    "text_is_not_blank": [
        [{"role": "user", "content": ""}], [says({"type": "input_text", "text": " "}, role="user")], [EMPTY],
    ],
    "text_is_well_formed": [[{"role": "user", "content": "\udc00"}], [function_call(arguments="\0"), output()]],
    "parts_fit_role": [
        [says({"type": "output_text", "text": "x"}, role="user")], [says({"type": "input_text", "text": "x"})],
    ],
    "calls_are_whole": [
        [function_call(arguments={})], [function_call(name="f g")], [function_call("")], [function_call("c" * 65)],
        [{"type": "custom_tool_call", "call_id": "c", "name": "f"}], [output("")],
    ],
    "outputs_are_whole": [[function_call(), output(output=None)], [function_call(), output(output=[{"type": "text"}])]],
    "calls_have_outputs": [
        [function_call()], [output(), function_call()], [function_call(), output(type="custom_tool_call_output")],
        [{"type": "shell_call", "call_id": "c"}],
    ],
    "outputs_have_calls": [[output()], [function_call(), output(), output()]],
    "approvals_have_requests": [[{"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}]],
    "ids_are_unique": [
        [reasoning(), reasoning(), says({"type": "output_text", "text": "x"})],
        [function_call(), function_call(), output(), output()],
    ],
    "ids_are_openais": [
        [reasoning("x"), function_call(), output()], [function_call(id="call_1"), output()], [USER | {"id": "1"}],
    ],
    "reasoning_is_whole": [
        [reasoning(summary=None), function_call(), output()], [reasoning(encrypted_content=""), function_call(), output()],
    ],
    "reasoning_is_followed": [[USER, reasoning()], [reasoning(), USER], [function_call(), reasoning(), output()]],
    "media_have_sources": [
        [says({"type": "input_image"}, role="user")], [function_call(), output(output=[{"type": "input_file"}])],
    ],
}  # fmt: skip
TAKEN_BY_RESPONSES: Final[list[list[Any]]] = [
    [USER, reasoning(), function_call(), reasoning("rs_2"), function_call("d"), output("d"), output("c")],
    [USER, reasoning(), {"type": "web_search_call", "id": "ws_1"}, says({"type": "output_text", "text": "x"})],
    [{"type": "mcp_approval_request", "id": "a"}, {"type": "mcp_approval_response", "approval_request_id": "a"}],
    [USER, {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}, output(type="custom_tool_call_output")],
]
WRONG_SHAPES: Final = [
    None, 7, "x", {}, {"messages": None}, {"messages": [None]}, {"messages": [{"role": "user", "content": 7}]},
    {"messages": [{"role": ["user"], "content": "x"}]}, {"messages": [{"role": "user", "content": ["x"]}]},
    {"messages": [{"role": "user", "content": [{"type": 7}]}]}, {"input": [None]}, {"input": [{"type": 7}]},
    {"input": [{"role": "user"}]}, {"input": [{"type": "function_call", "call_id": []}]},
    {"input": [{"role": "user", "content": [{"text": "x"}]}]},
]  # fmt: skip


def cases(table: dict[str, list[list[Any]]]) -> list[Any]:
    return [
        pytest.param(name, payload, id=f"{name}-{at}") for name, all_of in table.items() for at, payload in enumerate(all_of)
    ]


@pytest.mark.parametrize(("rule", "messages"), cases(ANTHROPIC))
def test_each_rule_of_anthropic_rejects_something(rule: str, messages: list[Any]) -> None:
    assert list(getattr(anthropic, rule)({"messages": messages}))
    assert validate_anthropic({"messages": messages})


@pytest.mark.parametrize(("rule", "messages"), cases(CHAT))
def test_each_rule_of_chat_completions_rejects_something(rule: str, messages: list[Any]) -> None:
    assert list(getattr(chat, rule)(messages))
    assert validate_chat(messages) == validate_chat({"messages": messages}) != []


@pytest.mark.parametrize(("rule", "items"), cases(RESPONSES))
def test_each_rule_of_responses_rejects_something(rule: str, items: list[Any]) -> None:
    assert list(getattr(responses, rule)(items))
    assert validate_responses(items) == validate_responses({"input": items}) != []


def test_a_system_prompt_has_no_blank_block() -> None:
    assert validate_anthropic({"system": [text(" ")], "messages": [USER]})
    assert not validate_anthropic({"system": "x", "messages": [USER]})


def test_no_rule_is_without_a_case_and_each_names_its_source() -> None:
    for module, table in ((anthropic, ANTHROPIC), (chat, CHAT), (responses, RESPONSES)):
        assert [rule.__name__ for rule in module.RULES] == list(table)
        for rule in (module.has_shape, *module.RULES):
            assert (rule.__doc__ or "").lstrip().startswith(("*", "EVENTS, rule")), rule.__name__


@pytest.mark.parametrize("messages", TAKEN_BY_ANTHROPIC)
def test_what_anthropic_takes_is_not_rejected(messages: list[Any]) -> None:
    assert validate_anthropic({"messages": messages}) == []


@pytest.mark.parametrize("messages", TAKEN_BY_CHAT)
def test_what_chat_completions_takes_is_not_rejected(messages: list[Any]) -> None:
    assert validate_chat(messages) == []


@pytest.mark.parametrize("items", TAKEN_BY_RESPONSES)
def test_what_responses_takes_is_not_rejected(items: list[Any]) -> None:
    assert validate_responses(items) == []


@pytest.mark.parametrize("payload", WRONG_SHAPES, ids=str)
@pytest.mark.parametrize("validate", [validate_anthropic, validate_chat, validate_responses])
def test_a_wrong_shape_is_a_violation_and_no_exception(validate: Callable[[Any], list[str]], payload: Any) -> None:
    assert validate(payload)


KINDS: Final = [
    "text",
    "tool_use",
    "tool_result",
    "image",
    "thinking",
    "server_tool_use",
    "x_tool_result",
    "input_text",
    "file",
]
NAMES: Final = ["id", "tool_use_id", "text", "input", "caller", "source", "content", "is_error", "signature", "file", "name"]
SCALARS: Final = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
VALUES: Final = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner)
)
BLOCKS: Final = st.builds(
    lambda kind, rest: {**rest, "type": kind}, st.sampled_from(KINDS), st.dictionaries(st.sampled_from(NAMES), VALUES)
)
ITEM_KINDS: Final = ["message", "reasoning", "function_call", "function_call_output", "mcp_approval_response"]
ITEM_NAMES: Final = ["role", "id", "call_id", "output", "summary", "name", "arguments", "tool_calls", "tool_call_id", "refusal"]
ITEMS: Final = st.builds(
    lambda kind, role, content, rest: {"role": role, **rest, "type": kind, "content": content},
    st.sampled_from(ITEM_KINDS), st.sampled_from(["user", "assistant", "system", "tool"]),
    st.lists(BLOCKS, max_size=3) | VALUES, st.dictionaries(st.sampled_from(ITEM_NAMES), VALUES | st.lists(VALUES, max_size=2)),
)  # fmt: skip


@pytest.mark.heavy
@given(st.lists(ITEMS, max_size=4), VALUES)
def test_whatever_comes_no_rule_raises(items: list[Any], system: Any) -> None:
    validate_anthropic({"messages": items, "system": system})
    validate_chat(items)
    validate_responses(items)


@functools.cache
def taken() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Recorded requests that were answered with 200: the file, host and path, and the body."""
    cassettes = pytest.importorskip("projector.formats.recordings.cassettes")
    pytest.importorskip("yaml")
    return [
        (path.name, exchange.uri.split("/")[2], exchange.uri, json.loads(exchange.request))
        for path in files("pydantic-ai", "http/**/*.yaml*", "http-multi/**/*.yaml*")
        for exchange in cassettes.read_cassette(read_bytes(path)).exchanges
        if exchange.request and exchange.status == 200
    ]


def taken_by(host: str, path: str, field: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, from_host, uri, body in taken():
        if from_host == host and path in uri and isinstance(body.get(field), list):
            yield name, body


@needs_data
def test_no_rule_rejects_what_anthropic_took() -> None:
    recorded = list(taken_by("api.anthropic.com", "/v1/messages", "messages"))
    violations = {name: found for name, body in recorded if (found := validate_anthropic(body))}
    assert len(recorded) > 100
    # One conversation that came from Gemini has an id twice, in two turns: Anthropic took it, its reference says "unique".
    assert [found for found in violations.values() if "is there twice" not in str(found)] == []
    assert len(violations) < 2


@needs_data
def test_no_rule_rejects_what_openai_took() -> None:
    chats = list(taken_by("api.openai.com", "/chat/completions", "messages"))
    items = [
        (name, body)
        for name, body in taken_by("api.openai.com", "/responses", "input")
        if not (body.get("previous_response_id") or body.get("conversation"))  # there, the rest of the history is with OpenAI
    ]
    assert DATA.is_dir()
    assert len(chats) > 20
    assert len(items) > 50
    assert not {name: found for name, body in chats if (found := validate_chat(body))}
    assert not {name: found for name, body in items if (found := validate_responses(body))}
