"""Histories as no provider takes them: parts of all kinds, put together by hand or by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st
from msgspec.structs import replace

from projector import Block, Message
from projector.formats.shared.history import text_block, text_parts
from projector.formats.shared.payloads import opaque

if TYPE_CHECKING:
    from projector.events import MessageStatus, Role
    from projector.message import BlockKind


def message(name: str, role: Role, *blocks: Block, status: MessageStatus = "complete", **metadata: str) -> Message:
    numbered = tuple(replace(block, number=number) for number, block in enumerate(blocks))
    return Message(name, None, "r", role, status, numbered, 0, 0, metadata_text=metadata)


def user(name: str, text: str = "hi") -> Message:
    return message(name, "user", text_block(text))


def call(ref: str | None, arguments: str = "{}", name: str | None = "f", **more: Any) -> Block:
    return Block("tool_call", text=arguments, sealed=True, name=name, tool_call_id=ref, parse="ok", **more)


def result(name: str, ref: str, said: str = "ok", status: str = "ok") -> Message:
    return message(name, "tool", Block("tool_result", sealed=True, tool_call_id=ref, status=status, parts=text_parts(said)))


def thought(text: str = "hm", signature: str | None = "c2ln", **more: Any) -> Block:
    return Block("reasoning", text=text, sealed=True, signature=signature, **more)


TEXTS: Final = st.sampled_from(["", " ", "so", "so ", "a\ud83d", "b\0", "é"])
IDS: Final = st.sampled_from(["a", "b", "a.b", "s", "x" * 70, ""])
MAKERS: Final = st.sampled_from(["anthropic", "openai", "chat", "google", "bedrock"])
PAYLOADS: Final = st.sampled_from(
    [
        '{"type":"hologram"}', "7", '{"type":"tool_use","caller":{"tool_id":"s"}}', '{"id":"rs_1"}',
        '{"text":"so","thoughtSignature":"c2ln"}', '{"functionCall":{"name":"f","willContinue":true}}',
        '{"executableCode":{"code":"1","language":"PYTHON"}}', '{"toolUse":{"toolUseId":"s","type":"server_tool_use"}}',
        '{"reasoningContent":{"redactedContent":"AA=="}}', '{"cachePoint":{"type":"default"}}',
    ]
)  # fmt: skip
INPUTS: Final = st.sampled_from(["{}", '{"x": 1e400}', '{"x', "[1]", "", '{"y":"\\ud83d"}'])
EVERY_KIND: Final = [
    "text", "reasoning", "redacted_reasoning", "tool_call", "server_tool_call", "server_tool_result", "media", "provider",
    "compaction", "refusal", "source", "data", "tool_result",
]  # fmt: skip


def make_block(
    kind: BlockKind, text: str, ref: str, kept: str | None, given_input: str, sealed: bool, signature: str | None,  # noqa: FBT001
) -> Block:  # fmt: skip
    is_call = kind in ("tool_call", "server_tool_call")
    has_ref = is_call or kind in ("server_tool_result", "tool_result")
    return Block(
        kind,
        text=given_input if is_call else text,
        sealed=sealed or kind == "tool_result",  # one event brings it whole
        name="f g" if is_call else None,
        tool_call_id=ref if has_ref else None,
        media_type="image/png" if kind == "media" else None,
        fields={"data": "AA=="} if kind == "media" and text else {},
        signature=signature if kind in ("reasoning", "tool_call") else None,
        opaque=kept if kind != "tool_result" else None,
        status="ok" if kind == "tool_result" else None,
        parts=text_parts(text) if kind == "tool_result" else None,
    )


BLOCKS: Final = st.builds(
    make_block, st.sampled_from(EVERY_KIND), TEXTS, IDS, st.none() | st.builds(opaque, MAKERS, PAYLOADS), INPUTS,
    st.booleans() | st.just(value=True), st.none() | st.just("c2ln"),
)  # fmt: skip
MESSAGES: Final = st.builds(
    lambda name, role, status, blocks: message(name, role, *blocks, status=status),
    st.sampled_from("0123456789"), st.sampled_from(["system", "developer", "user", "assistant", "assistant", "tool"]),
    st.sampled_from(["complete", "partial"]), st.lists(BLOCKS, max_size=4),
)  # fmt: skip
HISTORIES: Final = st.lists(MESSAGES, max_size=8)
