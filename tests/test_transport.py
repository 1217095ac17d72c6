"""Recorded HTTP is unwrapped alike however its bytes were cut; what is broken is told with its place."""

from __future__ import annotations

import base64
import itertools
import json
import random
import struct
import sys
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from projector.formats.format import FormatError
from projector.formats.recordings.framing import MAX_EVENT_BYTES
from projector.formats.recordings.transport import FrameReader, SseReader, Unwrap, read_all, read_cassette
from tests.shared_data import files, naughty, needs_data, read_bytes, read_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from projector.formats.shared.frames import Payload

SSE = (
    b": OPENROUTER PROCESSING\r\n\r\n"
    b"event: ping\r\ndata: \r\n\r\n"
    b'id: 7\r\nevent: message_start\r\ndata: {"a":\r\ndata:  "\xc3\xa9\xf0\x9f\x98\x80"}\r\n\r\n'
    b"retry: 10\nunknown: x\ndata\n\n"
    b'data:{"b":2}\r\r'
    b"data: [DONE]\n\n"
)
SSE_PAYLOADS = [('{"a":\n "é😀"}', "message_start", "7"), ('{"b":2}', None, "7"), ("[DONE]", None, "7")]


def frame(payload: bytes, **headers: str) -> bytes:
    """A frame as AWS writes it."""
    head = b"".join(
        bytes([len(name) + 1]) + b":" + name.replace("_", "-").encode() + b"\7" + struct.pack(">H", len(value)) + value
        for name, value in ((name, value.encode()) for name, value in headers.items())
    )
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return body + struct.pack(">I", zlib.crc32(body))


FRAMES = (
    frame(b'{"role":"assistant","p":"abc"}', message_type="event", event_type="messageStart")
    + frame(b'{"message":"slow down"}', message_type="exception", exception_type="throttlingException")
    + frame(b"", message_type="error", error_code="InternalError", error_message="oh é")
)
FRAME_PAYLOADS = [
    '{"messageStart":{"role":"assistant","p":"abc"}}',
    '{"throttlingException":{"message":"slow down"}}',
    '{"InternalError":{"message":"oh \\u00e9"}}',
]
LINES = b'\xef\xbb\xbf{"a": 1}\r\n\n  {"b": "\xc3\xa9\r"} \n{"torn": '
LIST = b' \n[{"a": [1, 2]}, {"b": 1e400},\n "x"]\n'
DOCUMENT = b'{\n  "a": {\n    "b": 1\n  }\n}\n'
CASES = [
    pytest.param(SSE, [data for data, _, _ in SSE_PAYLOADS], id="server-sent events"),
    pytest.param(FRAMES, FRAME_PAYLOADS, id="frames"),
    pytest.param(LINES, ['{"a": 1}', '{"b": "é\r"}', '{"torn":'], id="lines"),
    pytest.param(LIST, ['{"a": [1, 2]}', '{"b": 1e400}', '"x"'], id="list"),
    pytest.param(DOCUMENT, [DOCUMENT.decode()], id="document"),
    pytest.param(b"\n\n" + SSE, [data for data, _, _ in SSE_PAYLOADS], id="blank lines first"),
    pytest.param(b"", [], id="empty"),
    pytest.param(b" \r\n\n", [], id="blank"),
    pytest.param(b"data: x", ["x"], id="an event that nothing ends"),
]


def texts(payloads: list[Payload]) -> list[str]:
    return [payload.data for payload in payloads]


@pytest.mark.parametrize(("data", "wanted"), CASES)
def test_a_recording_is_read_alike_wherever_it_is_cut(data: bytes, wanted: list[str]) -> None:
    assert texts(list(read_all([data]))) == wanted
    whole = list(read_all([data]))
    for cut in range(len(data) + 1):
        assert list(read_all([data[:cut], b"", data[cut:]])) == whole
    assert list(read_all([data[at : at + 1] for at in range(len(data))])) == whole


def test_names_ids_and_places_of_events_are_kept() -> None:
    payloads = list(read_all([SSE]))
    assert [(payload.data, payload.event, payload.id) for payload in payloads] == SSE_PAYLOADS
    assert [payload.place for payload in payloads] == ["line 8", "line 15", "line 17"]
    assert [payload.event for payload in read_all([FRAMES])] == ["messageStart", "throttlingException", "InternalError"]
    assert [payload.place for payload in read_all([LINES])] == ["line 1", "line 3", "line 4"]


@pytest.mark.parametrize("frame", ["data: {}", "{}", "[{}"], ids=["server-sent events", "lines", "list"])
def test_what_is_cut_inside_of_a_character_is_read_so_far(frame: str) -> None:
    first = frame.format('{"a":1}')
    head = (first + ("," if frame[0] == "[" else "\n\n") + frame.strip("[").format('{"b":"')).encode()
    for sign in "\u00e9\u20ac\U0001f600":
        whole = sign.encode()
        for cut in range(len(whole)):
            [one, torn] = read_all([head + whole[:cut]])
            assert (one.data, torn.data) == ('{"a":1}', '{"b":"')
    for broken in (b"\xff", b"\x80", b"\xc0", b"\xf0\x9f\x98\x80\x80"):
        with pytest.raises(FormatError, match="UTF-8 was expected"):
            list(read_all([head + broken]))


def test_an_id_with_a_nul_is_passed_over_as_the_standard_says() -> None:
    [payload] = read_all([b"id: a\0b\ndata: x\n\n"], SseReader())
    assert payload.id is None


@pytest.mark.parametrize("at", range(len(FRAMES)))
def test_a_frame_with_any_byte_changed_is_refused_and_what_came_before_is_kept(at: int) -> None:
    broken = FRAMES[:at] + bytes([FRAMES[at] ^ 0x40]) + FRAMES[at + 1 :]
    for pieces in ([broken], [broken[:at], broken[at:]], [broken[place : place + 1] for place in range(len(broken))]):
        found: list[str] = []
        with pytest.raises(FormatError, match=r"frame \d, at byte \d+: "):
            found.extend(payload.data for payload in read_all(pieces, FrameReader()))
        assert found == FRAME_PAYLOADS[: len(found)]
        ends = [len(frame_end) for frame_end in _prefixes()]
        assert len(found) == sum(end <= at for end in ends)


def _prefixes() -> list[bytes]:
    sizes, at = [], 0
    while at < len(FRAMES):
        at += struct.unpack(">I", FRAMES[at : at + 4])[0]
        sizes.append(FRAMES[:at])
    return sizes


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (frame(b"{}", message_type="event"), "its headers do not say what it is"),
        (frame(b"{", message_type="event", event_type="x"), "its payload is no JSON"),
        (frame(b"\xff", message_type="event", event_type="x"), "can't be read"),
        (b"version: 1\ninteractions: []\n", "server-sent events .* were expected, not version: 1"),
        (b"<html><body>Bad Gateway</body></html>", "were expected, not <html>"),
        (b"data: \xff\n\n", "line 1: UTF-8 was expected"),
        (b'{"a": 1}\n{"\xff": 1}\n', "line 2: UTF-8 was expected"),
        (b'[{"a": 1} {"b": 1}]', "the list: a list was expected"),
        (frame(b'{"bytes": "!"}', message_type="event", event_type="chunk"), '"bytes" in base64'),
        (frame(b'{"bytes": "eA=="}', message_type="event", event_type="chunk"), "what its chunk holds is no JSON"),
        (b'["\xff"]', "byte 2: UTF-8 was expected"),
    ],
)
def test_what_is_broken_is_told_with_its_place(data: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        list(read_all([data]))
    with pytest.raises(FormatError, match=why):
        list(read_all([data[at : at + 1] for at in range(len(data))]))


TORN = [
    (FRAMES[:-3], FRAME_PAYLOADS[:2], "frame 3"),
    (FRAMES[:5], [], "frame 1"),
    (b'[{"a": [1]}, {"b": ', ['{"a": [1]}'], "item 2"),
    (b'[{"a": [1]}, "b", 12', ['{"a": [1]}', '"b"'], "item 3"),
    (b'[{"a": 1}', ['{"a": 1}'], "item 2"),
]


@pytest.mark.parametrize(("data", "whole", "place"), TORN, ids=[case[2] for case in TORN])
def test_of_what_breaks_off_the_whole_events_are_given_and_then_one_that_is_torn(
    data: bytes, whole: list[str], place: str
) -> None:
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        *found, last = read_all(pieces)
        assert [payload.data for payload in found] == whole
        assert (last.is_torn, last.place) == (True, place)
        assert not any(payload.is_torn for payload in found)


def test_a_chunk_of_a_model_that_is_invoked_is_what_it_holds() -> None:
    inner = '{"type": "message_start", "é": 1}'
    chunk = json.dumps({"bytes": base64.b64encode(inner.encode()).decode(), "p": "abc"}).encode()
    found = list(read_all([frame(chunk, message_type="event", event_type="chunk")]))
    assert [(payload.data, payload.event) for payload in found] == [(inner, None)]


@pytest.mark.parametrize("head", [b"data: ", b'{"a": "', b"[1,", b'{"a":1}\n{"a": "'])
def test_a_line_that_never_ends_is_refused_before_it_fills_the_memory(head: bytes) -> None:
    reader = Unwrap()
    reader.feed(head)
    pieces = itertools.repeat(b"x" * (1024 * 1024), 100)
    with pytest.raises(FormatError, match=str(MAX_EVENT_BYTES)):
        list(read_all(pieces, reader))


def test_naughty_strings_come_through_every_framing() -> None:
    wanted = [json.dumps({"text": text}) for text in naughty()]
    plain = [json.dumps({"text": text}, ensure_ascii=False) for text in naughty() if text.isprintable()]
    for texts_ in (wanted, plain):
        lines = "".join(f"{text}\n" for text in texts_).encode()
        events = "".join(f"data: {text}\r\n\r\n" for text in texts_).encode()
        frames = b"".join(frame(text.encode(), message_type="event", event_type="x") for text in texts_)
        assert texts(list(read_all([lines]))) == texts(list(read_all([events]))) == texts_
        assert texts(list(read_all([frames]))) == [f'{{"x":{text}}}' for text in texts_]


CASSETTE = """
interactions:
- request: {method: POST, uri: "https://x/v1", parsed_body: {a: [1, "2024-01-01"]}}
  response:
    status: {code: 200}
    headers: {Content-Type: [text/event-stream]}
    body: {string: "data: {\\"b\\": 1}\\r\\n\\r\\n"}
- request: {method: POST, uri: "https://x/v2", body: '{"c": 1}'}
  response: {status: {code: 429}, parsed_body: {error: {message: no}}}
- request: {method: GET, uri: "https://x/v3", body: ''}
  response: {status: {code: 200}, body: {string: !!binary AAEC}}
- {kind: message, direction: sent, data: {type: hello}}
- {kind: message, direction: received, data: '{"type": "answer"}'}
- {kind: close, code: 1000, reason: "", ok: true}
version: 1
"""


def test_a_cassette_gives_its_exchanges_and_frames() -> None:
    cassette = read_cassette(CASSETTE)
    first, second, third = cassette.exchanges
    assert (first.method, first.status, first.content_type) == ("POST", 200, "text/event-stream")
    assert json.loads(first.request or "") == {"a": [1, "2024-01-01"]}
    assert texts(list(read_all([first.body]))) == ['{"b": 1}']
    assert (second.request, second.status, json.loads(second.body)) == ('{"c": 1}', 429, {"error": {"message": False}})
    assert (third.request, third.body, third.place) == (None, b"\0\1\2", "interaction 3")
    assert [(frame.is_sent, json.loads(frame.data)["type"]) for frame in cassette.frames] == [
        (True, "hello"),
        (False, "answer"),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("interactions: [", "line 2: this is no YAML"),
        ("a: b: c", "line 1: this is no YAML"),
        ("a: 1", 'a cassette was expected: a YAML document with "interactions"'),
        ("", "a cassette was expected"),
        ("interactions: [7]", "interaction 1: an exchange or a frame was expected, not 7"),
        ("interactions: [{kind: x}]", 'interaction 1: "request", or "kind" and "data", were expected'),
        ("interactions: [{request: {}, response: {}}]", 'interaction 1: "request" with a "uri"'),
        ("interactions: [{request: {uri: x}, response: {status: {code: x}}}]", "interaction 1: "),
        ("interactions: [{kind: message, data: 2024-01-01}]", "interaction 1: its body can't be written as JSON"),
        ("interactions: !!python/object:os.system []", "this is no YAML"),
    ],
)
def test_what_is_no_cassette_is_told_with_its_place(text: str, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        read_cassette(text)


def test_without_pyyaml_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(FormatError, match=r"pip install .tailfold\[formats\]."):
        read_cassette(CASSETTE)


def read_sse(text: str) -> list[str]:
    """The data of events, by a reading that knows the whole text."""
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        data = "\n".join(line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:"))
        if data.strip():
            found.append(data)
    return found


def recorded() -> list[Path]:
    return files("pydantic-ai", "**/*.yaml", "**/*.yaml.gz", "**/*.sse", "**/*.sse.gz")


@needs_data
@pytest.mark.heavy
def test_recorded_bodies_are_read_as_an_independent_reading_has_them_and_counted_as_published() -> None:
    choose = random.Random(7)
    counts = {"exchanges": 0, "streams": 0, "frames": 0, "sent": 0}
    for path in recorded():
        bodies: list[tuple[str, bytes]] = []
        if path.name.removesuffix(".gz").endswith(".sse"):
            bodies = [("text/event-stream", read_bytes(path))]
        else:
            cassette = read_cassette(read_bytes(path))
            bodies = [(exchange.content_type, exchange.body) for exchange in cassette.exchanges]
            if path.parts[-3] != "realtime-ws":
                counts["exchanges"] += len(cassette.exchanges)
            counts["sent"] += sum(frame.is_sent for frame in cassette.frames)
        for kind, body in bodies:
            if "event-stream" in kind or "eventstream" in kind:
                counts["streams"] += 1
                payloads = list(read_all([body]))
                cuts = sorted(choose.sample(range(len(body) + 1), 3))
                pieces = [body[first:last] for first, last in zip([0, *cuts], [*cuts, len(body)], strict=True)]
                assert list(read_all(pieces)) == payloads
                if "eventstream" in kind:
                    counts["frames"] += len(payloads)
                else:
                    assert texts(payloads) == read_sse(body.decode())
    counts["exchanges"] += len(files("pydantic-ai", "http-bodies/**/*.request.json"))
    assert counts == {"exchanges": 459, "streams": 95, "frames": 164, "sent": 457}


@needs_data
def test_recorded_lines_and_lists_are_read_as_they_stand() -> None:
    for path in files("vercel-ai", "**/*.chunks.txt", "**/*.chunks.txt.gz"):
        wanted = [line for line in read_text(path).split("\n") if line.strip()]
        assert texts(list(read_all([read_bytes(path)]))) == [line.strip(" \t\r") for line in wanted]
    for path in files("vercel-ai", "**/*.json", "**/*.json.gz"):
        value: Any = json.loads(read_text(path))
        read: Callable[[str], Any] = json.loads
        assert [read(text) for text in texts(list(read_all([read_bytes(path)])))] == (
            value if isinstance(value, list) else [value]
        )


@needs_data
def test_comments_ids_and_lines_of_the_protocols_own_cases_are_read() -> None:
    [path] = files("ag-ui", "conformance/*sse*.txt")
    cases = read_text(path)
    assert list(read_all([cases.encode()], SseReader()))
    assert texts(list(read_all([cases.encode()], SseReader()))) == read_sse(cases)
