"""The streaming endpoints of Anthropic and OpenAI on loopback, as far as an example needs them."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_USAGE: Final = {"input_tokens": 9, "output_tokens": 3}
_ANTHROPIC: Final[list[dict[str, Any]]] = [
    {"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": _USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Blue scatters most."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]  # fmt: skip
_PART: Final = {"type": "output_text", "text": "Red is left.", "annotations": []}
_ITEM: Final = {"id": "msg_2", "type": "message", "role": "assistant", "status": "completed", "content": [_PART]}
_RESPONSE: Final = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "in_progress", "output": [],
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
}  # fmt: skip
_AT: Final = {"item_id": "msg_2", "output_index": 0, "content_index": 0}
_OPENAI: Final[list[dict[str, Any]]] = [
    {"type": "response.created", "response": _RESPONSE},
    {"type": "response.output_item.added", "output_index": 0, "item": _ITEM | {"status": "in_progress", "content": []}},
    {"type": "response.content_part.added", **_AT, "part": _PART | {"text": ""}},
    {"type": "response.output_text.delta", **_AT, "delta": "Red is left.", "logprobs": []},
    {"type": "response.output_text.done", **_AT, "text": "Red is left.", "logprobs": []},
    {"type": "response.content_part.done", **_AT, "part": _PART},
    {"type": "response.output_item.done", "output_index": 0, "item": _ITEM},
    {"type": "response.completed", "response": _RESPONSE | {"status": "completed", "output": [_ITEM]}},
]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        events = _ANTHROPIC if self.path == "/v1/messages" else _OPENAI
        is_right = self.path in ("/v1/messages", "/v1/responses") and asked["stream"] is True
        self.send_response(200 if is_right else 400)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for number, event in enumerate(events if is_right else []):
            body = json.dumps(event | ({} if events is _ANTHROPIC else {"sequence_number": number}))
            self.wfile.write(f"event: {event['type']}\ndata: {body}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Says nothing."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Who asked may have gone: an example need not read to the end."""


@contextmanager
def serve_providers() -> Iterator[str]:
    """The address under which both are."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
