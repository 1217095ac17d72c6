"""Cassettes of recorded exchanges: whatever layout, packing or company, each answer is kept as its provider sent it."""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from ledger import FileError, open_ledger
from tests.cassette_files import CHAT, CLAUDE, INVOKE, ask, call, completion, exchange, packed, taken, write, write_yaml
from tests.test_transport import frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ledger import Ledger

pytestmark = pytest.mark.anyio
SSE = "".join(
    f"data: {json.dumps({'id': 'c1', 'choices': [{'index': 0, 'delta': delta, 'finish_reason': end}]})}\n\n"
    for delta, end in (({"content": "Hel"}, None), ({"content": "lo."}, None), ({}, "stop"))
)


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    async with open_ledger("memory:") as made:
        yield made


def in_two_lists(one: dict[str, Any]) -> dict[str, Any]:
    return {"requests": [one["request"]], "responses": [one["response"]]}


def with_plain_bodies(one: dict[str, Any]) -> dict[str, Any]:
    request = one["request"] | {"body": {"string": one["request"]["body"]}, "headers": [["A", "b"]]}
    return {"interactions": [{"request": request, "response": one["response"] | {"body": one["response"]["body"]["string"]}}]}


def as_betamax(one: dict[str, Any]) -> dict[str, Any]:
    body = base64.b64encode(one["response"]["body"]["string"].encode()).decode()
    request = {"method": "POST", "uri": CHAT, "body": {"encoding": "utf-8", "string": one["request"]["body"]}, "headers": {}}
    response = {"status": {"code": 200}, "headers": {}, "body": {"encoding": "utf-8", "base64_string": body}}
    return {"http_interactions": [{"request": request, "response": response}]}


def as_values(one: dict[str, Any]) -> dict[str, Any]:
    request = one["request"] | {"body": json.loads(one["request"]["body"])}
    response = {"status_code": 200, "headers": {}, "content": [one["response"]["body"]["string"]]}
    return in_two_lists({"request": request, "response": response})


LAYOUTS = [in_two_lists, with_plain_bodies, as_betamax, as_values]


@pytest.mark.parametrize("ending", ["yaml", "json"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: each.__name__)
async def test_every_layout_of_a_recorder_is_read(ledger: Ledger, tmp_path: Path, layout: Any, ending: str) -> None:
    document = layout(exchange(CHAT, ask("hi"), completion("Hello.")))
    path = tmp_path / f"c.{ending}"
    if ending == "yaml":
        write_yaml(path, document)
    else:
        path.write_text(json.dumps(document))
    [one] = await taken(ledger, path)
    assert (one.texts, one.losses) == (["hi", "Hello."], [])
    assert [(run.outcome, run.finish_reason) for run in one.runs] == [("completed", None), ("completed", "stop")]
    assert {ref: (used.input, used.output) for ref, used in one.runs[-1].usage.items()} == {"c1": (3, 2)}


def deflated(value: Any, bits: int) -> bytes:
    packer = zlib.compressobj(wbits=bits)
    return packer.compress(json.dumps(value).encode()) + packer.flush()


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (packed(completion("Hello.")), "gzip"),
        (packed(completion("Hello.")), ""),
        (base64.b64encode(packed(completion("Hello."))).decode(), "gzip"),
        (packed(completion("Hello.")).decode("latin-1"), "gzip"),
        (deflated(completion("Hello."), 15), "deflate"),
        (deflated(completion("Hello."), -15), "deflate"),
        (json.dumps(completion("Hello.")), "gzip"),
        (json.dumps(completion("Hello.")), "br"),
    ],
    ids=["gzip", "gzip-unsaid", "gzip-base64", "gzip-letters", "zlib", "deflate", "unpacked", "br-unpacked"],
)
async def test_a_body_is_unpacked_as_its_headers_or_its_bytes_say(
    ledger: Ledger, tmp_path: Path, body: Any, encoding: str
) -> None:
    headers: dict[str, Any] = {"Content_Encoding": encoding} if encoding else {}
    [one] = await taken(ledger, write(tmp_path / "c.yaml", exchange(CHAT, ask("hi"), body, **headers)))
    assert one.texts == ["hi", "Hello."]


async def test_a_body_that_needs_a_library_says_which_and_one_of_a_foreign_address_does_not_matter(
    ledger: Ledger, tmp_path: Path
) -> None:
    odd = exchange(CHAT, ask("hi"), b"\x0b\x02\x80hi\x03", Content_Encoding="br")
    with pytest.raises(FileError, match=r"interaction 1: its body .*br"):
        await taken(ledger, write(tmp_path / "c.yaml", odd))
    beside = exchange("https://e.org/page", ask("hi"), b"\x0b\x02\x80hi\x03", Content_Encoding="br")
    [one] = await taken(ledger, write(tmp_path / "d.yaml", beside, exchange(CHAT, ask("hi"), completion("Hello."))))
    assert one.texts == ["hi", "Hello."]


FOREIGN = {
    "titan": exchange(INVOKE, {"inputText": "hi"}, {"results": [{"outputText": "x"}]}),
    "llama": exchange(INVOKE, {"prompt": "hi", "max_gen_len": 5}, {"generation": "x"}),
    "mistral": exchange(INVOKE, ask("hi"), {"outputs": [{"text": "x"}]}),
    "cohere": exchange(INVOKE, {"message": "hi", "chat_history": []}, {"text": "x"}),
    "embeddings": exchange("https://api.openai.com/v1/embeddings", {"input": "hi"}, {"data": []}),
    "counting": exchange(f"{CLAUDE}/count_tokens?beta=true", ask("hi"), {"input_tokens": 3}),
    "completions": exchange(CHAT, {"prompt": "hi"}, {"choices": [{"text": "x"}]}),
    "form": exchange(CHAT, "a=b&c=d", "x"),
    "rubbish": exchange("https://e.org/a.png", "x", b"\x89PNG\x00\xff"),
    "rubbish-answered": exchange(CHAT, ask("hi"), b"\x89PNG\x00\xff"),
    "page-answered": exchange(CHAT, ask("hi"), "<html>Hello</html>"),
    "another-answered": exchange(CHAT, ask("hi"), {"type": "message_start", "message": {"role": "assistant", "content": []}}),
}


@pytest.mark.parametrize("name", FOREIGN)
async def test_one_foreign_exchange_is_passed_over_and_named(ledger: Ledger, tmp_path: Path, name: str) -> None:
    good = exchange(CHAT, ask("How far?"), completion("Far."))
    [one] = await taken(ledger, write(tmp_path / "c.yaml", FOREIGN[name], good))
    assert one.texts == ["How far?", "Far."]
    [loss] = one.losses
    assert loss.startswith("interaction 1: ")


async def test_an_unknown_address_is_named_without_what_may_be_secret(ledger: Ledger, tmp_path: Path) -> None:
    odd = exchange("https://me:pass@llm.example.org/generate?key=secret#x", ask("hi"), completion("Hello."))
    with pytest.raises(FileError, match=r"https://llm\.example\.org/generate takes no conversation") as caught:
        await taken(ledger, write(tmp_path / "c.yaml", odd))
    assert "secret" not in str(caught.value)
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize("tail", ["#stream", "?api-version=1", "?a=b#c"])
async def test_a_fragment_and_a_query_are_no_part_of_the_path(ledger: Ledger, tmp_path: Path, tail: str) -> None:
    [one] = await taken(ledger, write(tmp_path / "c.yaml", exchange(CHAT + tail, ask("hi"), SSE)))
    assert one.texts == ["hi", "Hello."]


ERRORS = {
    "chat": (CHAT, ask("hi"), {"error": {"message": "slow down"}}, 429),
    "chat-plain": (CHAT, ask("hi"), {"detail": "slow down"}, 422),
    "chat-page": (CHAT, ask("hi"), "<html>slow down</html>", 502),
    "anthropic": (CLAUDE, ask("hi"), {"type": "error", "error": {"type": "overloaded_error", "message": "slow down"}}, 529),
    "responses": ("https://a.org/v1/responses", {"input": "hi"}, {"error": {"message": "slow down"}}, 400),
    "gemini": (
        "https://g/v1/models/m:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
        [{"error": {"code": 503, "message": "slow down"}}],
        503,
    ),
    "converse": (
        "https://b/model/m/converse-stream",
        {"messages": [{"role": "user", "content": [{"text": "hi"}]}]},
        {"message": "slow down"},
        400,
    ),
    "invoke": (INVOKE, ask("hi") | {"anthropic_version": "bedrock-2023-05-31"}, {"message": "slow down"}, 403),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_is_a_failed_run_behind_what_was_asked(ledger: Ledger, tmp_path: Path, name: str) -> None:
    uri, asked, answered, status = ERRORS[name]
    odd = exchange(uri, asked, answered, status, x_amzn_errortype="ThrottlingException:http://x" if name == "converse" else "")
    [one] = await taken(ledger, write(tmp_path / "c.yaml", odd))
    assert one.texts == ["hi"]
    assert [run.outcome for run in one.runs] == ["completed", "failed"]
    assert "slow down" in (one.runs[-1].error or "")
    assert ("ThrottlingException" in (one.runs[-1].error or "")) == (name == "converse")


# Claude over Bedrock


def claude_events(*, error: bool = False) -> bytes:
    said: list[Any] = [
        {"type": "message_start", "message": {"id": "m1", "role": "assistant", "content": [], "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    chunks = [json.dumps({"bytes": base64.b64encode(json.dumps(each).encode()).decode()}).encode() for each in said]
    frames = [frame(chunk, message_type="event", event_type="chunk") for chunk in (chunks[:3] if error else chunks)]
    if error:
        frames.append(frame(b'{"message":"gone"}', message_type="exception", exception_type="modelStreamErrorException"))
    return b"".join(frames)


ASKED = ask("hi") | {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9}


async def test_claude_that_is_invoked_over_bedrock_is_read_whole_and_streamed(ledger: Ledger, tmp_path: Path) -> None:
    whole = {
        "id": "m1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hello."}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 2},
    }  # fmt: skip
    for name, uri, body in (("a", INVOKE, whole), ("b", f"{INVOKE}-with-response-stream", claude_events())):
        [one] = await taken(ledger, write(tmp_path / f"{name}.yaml", exchange(uri, ASKED, body)))
        assert one.texts == ["hi", "Hello."]
        assert (one.runs[-1].finish_reason, list(one.runs[-1].usage)) == ("end_turn", ["m1"])
    (tmp_path / "c.frames").write_bytes(claude_events())
    [bare] = await taken(ledger, tmp_path / "c.frames")
    assert (bare.texts, bare.runs[0].finish_reason) == (["Hello."], "end_turn")


@pytest.mark.parametrize("form", ["letters", "base64", "base64_string"])
async def test_frames_that_were_kept_as_text_are_frames(ledger: Ledger, tmp_path: Path, form: str) -> None:
    body = base64.b64encode(claude_events()).decode() if form != "letters" else claude_events().decode("latin-1")
    odd = exchange(f"{INVOKE}-with-response-stream", ASKED, body, Content_Type="application/vnd.amazon.eventstream")
    if form == "base64_string":
        odd["response"]["body"] = {"base64_string": body}
    [one] = await taken(ledger, write(tmp_path / "c.yaml", odd))
    assert one.texts == ["hi", "Hello."]


async def test_an_exception_inside_of_frames_fails_the_run_and_keeps_what_came(ledger: Ledger, tmp_path: Path) -> None:
    odd = exchange(f"{INVOKE}-with-response-stream", ASKED, claude_events(error=True))
    [one] = await taken(ledger, write(tmp_path / "c.yaml", odd))
    assert one.runs[-1].outcome == "failed"
    assert "modelStreamErrorException" in (one.runs[-1].error or "")
    assert "gone" in (one.runs[-1].error or "")


# what breaks off


async def test_of_answers_that_break_off_what_came_is_kept_and_the_run_is_incomplete(ledger: Ledger, tmp_path: Path) -> None:
    answers = {
        "sse": SSE.encode()[:-60],
        "gzip": stored(SSE)[:-70],
        "frames": claude_events()[:-150],
        "list": of_gemini("Hello.", "...")[:-9],
        "list-number": of_gemini("Hello.")[:-1] + b", 12",
    }
    for name, body in answers.items():
        uri, asked = (f"{INVOKE}-with-response-stream", ASKED) if name == "frames" else (CHAT, ask("hi"))
        if name.startswith("list"):
            uri = "https://g/v1/models/m:streamGenerateContent"
            asked = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
        [one] = await taken(ledger, write(tmp_path / f"{name}.yaml", exchange(uri, asked, body)))
        assert one.texts == ["hi", "Hello."], name
        assert one.runs[-1].outcome == "incomplete", name


async def test_a_document_that_breaks_off_leaves_an_incomplete_run_and_is_named(ledger: Ledger, tmp_path: Path) -> None:
    torn = packed(completion("Hello. " * 50))[:-30]
    [one] = await taken(ledger, write(tmp_path / "c.yaml", exchange(CHAT, ask("hi"), torn)))
    assert (one.texts, one.runs[-1].outcome) == (["hi"], "incomplete")
    assert one.losses == ["interaction 1: its answer breaks off, and nothing of it is whole"]


def of_gemini(*texts: str) -> bytes:
    """A stream of Gemini as one list."""
    return json.dumps([{"candidates": [{"content": {"parts": [{"text": text}]}}]} for text in texts]).encode()


def stored(text: str) -> bytes:
    """Gzipped without being made smaller, so that a part of it is a part of the text."""
    packer = zlib.compressobj(level=0, wbits=31)
    return packer.compress(text.encode()) + packer.flush()


async def test_a_request_without_an_answer_is_kept_and_that_is_named(ledger: Ledger, tmp_path: Path) -> None:
    [one] = await taken(ledger, write(tmp_path / "c.yaml", exchange(CHAT, ask("hi"), "")))
    assert (one.texts, one.losses) == (["hi"], ["interaction 1: it has no answer"])


async def test_a_cassette_is_taken_in_once(ledger: Ledger, tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.yaml",
        exchange(CHAT, ask("hi"), completion("", calls=[call("k", a=1)])),
        exchange(CHAT, ask("hi"), SSE),
    )
    await taken(ledger, path)
    [again] = (await ledger.import_file(path)).conversations
    assert again.added == 0


LAUGHS = "a:\n- &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"- &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("document", "why"), [(LAUGHS, "unfold to more"), ("interactions: &a\n- *a\n", "stands inside of what it names")]
)
async def test_aliases_without_measure_are_refused(ledger: Ledger, tmp_path: Path, document: str, why: str) -> None:
    (tmp_path / "c.yaml").write_text(document)
    with pytest.raises(FileError, match=why):
        await taken(ledger, tmp_path / "c.yaml")
