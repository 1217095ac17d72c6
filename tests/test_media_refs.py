"""Media in imported conversations lie in the media store, once a content, and every export has them again as they were."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from projector.formats import READERS, WRITERS
from projector.formats.recordings.documents import read_document
from projector.formats.shared.history import runs_of
from projector.formats.shared.media_refs import REFERENCE, Detacher
from tests.shared_data import imported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger import Ledger
    from projector.formats.shared.history import History
    from stream.sqlite import Sql

pytestmark = pytest.mark.anyio
IMAGE: Final = random.Random(1).randbytes(150_001)
SMALL: Final = random.Random(2).randbytes(300)
BASE64: Final = base64.b64encode(IMAGE).decode()
LITTLE: Final = base64.b64encode(SMALL).decode()
URL: Final = f"data:image/png;base64,{BASE64}"
USER: Final[dict[str, Any]] = {"role": "user", "content": "look"}
CALL: Final[dict[str, Any]] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def of_anthropic(data: str, kind: str = "image", media_type: str = "image/png") -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


CHAT: Final[list[Any]] = [
    {"role": "user", "content": [
        {"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{LITTLE}"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{BASE64}"}},
        {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}},
    ]},
    {"role": "assistant", "content": "seen"},
]  # fmt: skip
ANTHROPIC: Final[dict[str, Any]] = {"messages": [
    {"role": "user", "content": [
        {"type": "text", "text": "look"}, of_anthropic(BASE64), of_anthropic(LITTLE, media_type="image/gif"),
        of_anthropic(BASE64, "document", "application/pdf") | {"title": "A", "citations": {"enabled": True}},
    ]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "1"}, of_anthropic(BASE64)]},
    ]},
]}  # fmt: skip
RESPONSES: Final[list[Any]] = [
    {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{BASE64}"},
    ]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": [
        {"type": "input_image", "image_url": URL}, {"type": "input_image", "image_url": f"data:image/gif;base64,{LITTLE}"},
    ]},
    {"type": "image_generation_call", "id": "ig", "status": "completed", "result": BASE64},
]  # fmt: skip
CODEX: Final[list[Any]] = [
    {"timestamp": "2026-01-31T12:00:00Z", "type": "session_meta", "payload": {"id": "s", "cwd": "/river"}},
    *({"timestamp": "2026-01-31T12:00:01Z", "type": "response_item", "payload": item} for item in RESPONSES),
]
AI_SDK: Final[list[Any]] = [
    {"id": "u", "role": "user", "parts": [
        {"type": "text", "text": "look"}, {"type": "file", "mediaType": "image/png", "url": URL, "filename": "a.png"},
    ]},
    {"id": "a", "role": "assistant", "parts": [
        {"type": "step-start"}, {"type": "file", "mediaType": "image/png", "url": URL},
        {"type": "tool-f", "toolCallId": "c", "state": "output-available", "input": {},
         "output": {"type": "content", "value": [{"type": "media", "mediaType": "image/png", "data": BASE64}]}},
    ]},
]  # fmt: skip
AGUI: Final[list[Any]] = [
    {"id": "u", "role": "user", "content": [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "data", "value": BASE64, "mimeType": "image/png"}},
        {"type": "binary", "mimeType": "image/png", "data": BASE64},
    ]},
    {"id": "a", "role": "assistant", "content": "", "toolCalls": [CALL]},
    {"id": "t", "role": "tool", "toolCallId": "c", "content": BASE64},
]  # fmt: skip
LANGCHAIN: Final[list[Any]] = [
    {"type": "human", "content": [
        {"type": "text", "text": "look"}, {"type": "image", "base64": BASE64, "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": URL}}, {"type": "file", "base64": BASE64, "mime_type": "application/pdf"},
    ]},
    {"type": "ai", "content": "", "tool_calls": [{"id": "c", "name": "f", "args": {}, "type": "tool_call"}]},
    {"type": "tool", "tool_call_id": "c", "content": [{"type": "image", "base64": BASE64, "mime_type": "image/png"}]},
]  # fmt: skip
URL_SAFE: Final = base64.urlsafe_b64encode(IMAGE).decode()
FILE: Final = {"kind": "binary", "data": URL_SAFE, "media_type": "image/png"}
PYDANTIC_AI: Final[list[Any]] = [
    {"kind": "request", "parts": [
        {"part_kind": "user-prompt", "content": ["look", FILE, FILE | {"vendor_metadata": {"detail": "low"}}]},
    ]},
    {"kind": "response", "parts": [
        {"part_kind": "tool-call", "tool_name": "f", "args": {}, "tool_call_id": "c"}, {"part_kind": "file", "content": FILE},
        {"part_kind": "speech", "speaker": "assistant", "transcript": "hm", "audio": FILE | {"media_type": "audio/wav"}},
    ]},
    {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_name": "f", "tool_call_id": "c", "content": [FILE]}]},
]  # fmt: skip
GEMINI: Final[dict[str, Any]] = {"contents": [
    {"role": "user", "parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": BASE64}}]},
    {"role": "model", "parts": [{"inlineData": {"mimeType": "image/png", "data": BASE64}}]},
]}  # fmt: skip
QWEN_CODE: Final[list[Any]] = [
    {"uuid": kind, "parentUuid": parent, "sessionId": "s", "type": kind, "timestamp": "2026-01-31T12:00:00Z",
     "message": {"role": "model" if kind == "assistant" else "user", "parts": parts}}
    for kind, parent, parts in (
        ("user", None, [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": BASE64}}]),
        ("assistant", "user", [{"functionCall": {"id": "c", "name": "f", "args": {}}}]),
        ("tool_result", "assistant", [{"functionResponse": {"id": "c", "name": "f", "response": {"output": "1"}, "parts": [
            {"inlineData": {"mimeType": "image/png", "data": BASE64}}]}}]),
    )
]  # fmt: skip
BEDROCK: Final[dict[str, Any]] = {"messages": [
    {"role": "user", "content": [{"text": "look"}, {"image": {"format": "png", "source": {"bytes": BASE64}}}]},
    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]},
    {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [
        {"image": {"format": "png", "source": {"bytes": BASE64}}}]}}]},
]}  # fmt: skip
COHERE: Final[dict[str, Any]] = {"messages": [
    {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": URL}}]},
]}  # fmt: skip
INTERACTIONS: Final[dict[str, Any]] = {"input": [
    {"type": "user_input", "content": [{"type": "image", "mime_type": "image/png", "data": BASE64}]},
    {"type": "model_output", "content": [{"type": "image", "mime_type": "image/png", "data": BASE64}]},
]}  # fmt: skip
OLLAMA: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": "look", "images": [BASE64]}]}
DOCUMENTS: Final[dict[str, Any]] = {
    "chat": CHAT, "anthropic": ANTHROPIC, "responses": RESPONSES, "ai-sdk": AI_SDK, "agui": AGUI, "langchain": LANGCHAIN,
    "gemini": GEMINI, "codex": CODEX, "bedrock": BEDROCK, "cohere": COHERE, "gemini-interactions": INTERACTIONS,
    "ollama": OLLAMA, "pydantic-ai": PYDANTIC_AI, "qwen-code": QWEN_CODE,
}  # fmt: skip
MAKERS: Final = sorted(DOCUMENTS.keys() & WRITERS.keys())


def history_of(name: str, document: Any) -> History:
    text = "\n".join(map(json.dumps, document)) if name == "codex" else json.dumps(document)
    [history] = read_document(text, name)
    return history


async def logged(ledger: Ledger) -> str:
    return "".join(event.data.decode() for event in await ledger.store.read("c", limit=10_000))


async def media(ledger: Ledger) -> dict[str, tuple[str, bytes]]:
    rows = await ledger.tables.database.read("SELECT id, media_type, data FROM media", ())
    return {row[0]: (row[1], bytes(row[2])) for row in rows}


def timeless(payload: Any) -> str:
    """What is written, without when: where a history does not say, the ledger says when it took it in."""
    return re.sub(r'"timestamp": "[^"]*"', "", json.dumps(payload))


async def forget(ledger: Ledger, data: bytes) -> None:
    async def job(sql: Sql) -> None:
        await sql("DELETE FROM media WHERE id = ?", (hashlib.sha256(data).hexdigest(),))

    await ledger.tables.database.transact(job)


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_media_lie_in_the_store_once_and_not_in_the_log(ledger: Ledger, name: str) -> None:
    await ledger.take_in("c", history_of(name, DOCUMENTS[name]))
    said = await logged(ledger)
    assert not re.search(r"[A-Za-z0-9+/]{65536}", said)
    assert f"{REFERENCE}{hashlib.sha256(IMAGE).hexdigest()}" in said
    found = await media(ledger)
    assert found.keys() <= {hashlib.sha256(data).hexdigest() for data in (IMAGE, SMALL)}
    assert (await ledger.media(hashlib.sha256(IMAGE).hexdigest())).data == IMAGE
    added = [event for event in await ledger.store.read("c", limit=10_000) if event.type == "media.added"]
    runs = [run async for run in ledger.runs("c")]
    assert len(found) <= len(added) <= len(found) * len(runs)
    assert (await ledger.take_in("c", history_of(name, DOCUMENTS[name]))).events == 0


@pytest.mark.heavy
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("name", DOCUMENTS)
async def test_an_export_is_the_same_as_without_the_store(ledger: Ledger, name: str, maker: str) -> None:
    history = history_of(name, DOCUMENTS[name])
    await ledger.take_in("c", history)
    wanted = WRITERS[maker](imported(history, "c"))
    found = await ledger.export("c", maker)
    assert timeless(found.payload) == timeless(wanted.payload)
    assert REFERENCE not in json.dumps(found.payload)
    if name == maker:
        assert json.dumps(found.payload).count(BASE64) == json.dumps(DOCUMENTS[name]).count(BASE64)


@pytest.mark.parametrize("name", MAKERS)
async def test_a_medium_that_is_erased_is_a_loss(ledger: Ledger, name: str) -> None:
    await ledger.take_in("c", history_of(name, DOCUMENTS[name]))
    await forget(ledger, IMAGE)
    export = await ledger.export("c", name)
    assert any(hashlib.sha256(IMAGE).hexdigest() in loss.what for loss in export.losses)
    sent = json.dumps(export.payload)
    assert REFERENCE not in sent
    assert BASE64[:100] not in sent
    assert "look" in sent


async def test_media_of_several_conversations_are_there_once_and_stay_until_the_last_is_erased(ledger: Ledger) -> None:
    for conversation in ("c", "d"):
        await ledger.take_in(conversation, history_of("anthropic", ANTHROPIC))
    assert len(await media(ledger)) == 2
    await ledger.erase("c")
    assert json.dumps((await ledger.export("d", "anthropic")).payload).count(BASE64) == 3
    await ledger.erase("d")
    assert await media(ledger) == {}


# what stays where it is

THOUGHT: Final[dict[str, Any]] = {"type": "thinking", "thinking": "hm", "signature": BASE64}
SIGNED: Final[dict[str, Any]] = {
    "anthropic": [USER, {"role": "assistant", "content": [
        THOUGHT, {"type": "redacted_thinking", "data": BASE64}, {"type": "text", "text": "so"},
    ]}],
    "responses": [
        {"type": "message", "role": "user", "content": "look"},
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": BASE64},
        {"type": "message", "id": "m", "status": "completed", "role": "assistant",
         "content": [{"type": "output_text", "text": "so", "annotations": []}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNED)
async def test_what_a_provider_has_signed_or_encrypted_is_never_touched(ledger: Ledger, name: str) -> None:
    history = history_of(name, SIGNED[name])
    await ledger.take_in("c", history)
    assert await media(ledger) == {}
    count = json.dumps(SIGNED[name]).count(BASE64)
    assert (await logged(ledger)).count(BASE64) == count
    assert json.dumps((await ledger.export("c", name)).payload).count(BASE64) == count


def not_canonical() -> Iterator[str]:
    """Base64 that would come back as another text."""
    text = base64.b64encode(IMAGE[:-2]).decode()  # of a length that is padded
    assert text.endswith("=")
    yield text.rstrip("=")
    yield text[: -text.count("=") - 1] + chr(ord(text[-text.count("=") - 1]) + 1) + "=" * text.count("=")
    yield text[:100] + "\n" + text[100:]
    yield text.replace("+", "-").replace("/", "_")
    yield text + "="


@pytest.mark.parametrize(
    "odd", [*not_canonical()], ids=["no padding", "loose bits", "a line break", "url safe", "too much padding"]
)
async def test_base64_that_would_not_come_back_the_same_stays(ledger: Ledger, odd: str) -> None:
    talk = {"messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, of_anthropic(odd)]}]}
    history = history_of("anthropic", talk)
    await ledger.take_in("c", history)
    assert await media(ledger) == {}
    assert json.dumps((await ledger.export("c", "anthropic")).payload) == json.dumps(
        WRITERS["anthropic"](imported(history, "c")).payload
    )
    assert json.dumps(odd) in json.dumps((await ledger.export("c", "anthropic")).payload)


async def test_text_that_names_a_medium_is_text(ledger: Ledger) -> None:
    """Somebody may write such a name, or paste base64 into a question."""
    name = f"{REFERENCE}{hashlib.sha256(SMALL).hexdigest()}"
    history = history_of("chat", [{"role": "user", "content": name}, {"role": "assistant", "content": BASE64}])
    await ledger.take_in("c", history)
    await ledger.add_media("c", SMALL, "image/gif")
    assert [message["content"] for message in (await ledger.export("c", "chat")).payload] == [name, BASE64]


async def test_a_digest_in_a_result_is_text(ledger: Ledger) -> None:
    digest = hashlib.sha256(SMALL).hexdigest()
    talk = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    await ledger.take_in("c", history_of("chat", [*talk, {"role": "tool", "tool_call_id": "c", "content": digest}]))
    assert await media(ledger) == {}
    assert digest in (await ledger.transcript("c"))[-1].blocks[0].parts  # type: ignore[operator] # there are some


def test_every_reader_is_looked_at_or_has_no_media() -> None:
    assert READERS.keys() - DOCUMENTS.keys() == {
        "chatgpt", "claude-code", "pi", "sharegpt", "swe-agent", "tau-bench", "trees",
    }  # fmt: skip


async def test_a_session_of_claude_code_has_its_images_in_the_store_too(ledger: Ledger) -> None:
    record = {"parentUuid": None, "sessionId": "s", "type": "user", "uuid": "u", "timestamp": "2025-01-31T12:00:00Z"}
    message = {"role": "user", "content": [{"type": "text", "text": "look"}, of_anthropic(BASE64)]}
    await ledger.take_in("c", history_of("claude-code", record | {"message": message, "toolUseResult": {"base64": BASE64}}))
    assert len(await media(ledger)) == 1
    assert not re.search(r"[A-Za-z0-9+/]{65536}", await logged(ledger))
    assert BASE64 in json.dumps((await ledger.export("c", "anthropic")).payload)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_detaching_is_the_same_each_time(name: str) -> None:
    bodies = [body for run in runs_of(history_of(name, DOCUMENTS[name]), "c") for body in run.bodies]
    lean = [[Detacher().detach(body)[0] for body in bodies] for _ in range(2)]
    assert lean[0] == lean[1]
