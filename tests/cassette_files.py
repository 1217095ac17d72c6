"""What the tests of cassettes share: recorded exchanges as recorders write them, and what came of them."""

from __future__ import annotations

import gzip
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ledger.transfer.file_import import import_file

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from ledger.records import RunInfo
    from projector import Message

CHAT = "https://api.openai.com/v1/chat/completions"
CLAUDE = "https://api.anthropic.com/v1/messages"
INVOKE = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/anthropic.claude-x%3A0/invoke"


class Told(NamedTuple):
    """A conversation that was taken in."""

    messages: list[Message]
    active: list[Message]
    runs: list[RunInfo]
    losses: list[str]

    @property
    def texts(self) -> list[str]:
        """What each message says."""
        return ["".join(block.text for block in message.blocks) for message in self.messages]


def exchange(uri: str, asked: Any, answered: Any, status: int = 200, **headers: Any) -> dict[str, Any]:
    """An exchange as VCR libraries write it; a body that is no text or bytes is JSON."""
    body = answered if isinstance(answered, str | bytes) else json.dumps(answered)
    sent = asked if isinstance(asked, str) else json.dumps(asked)
    return {
        "request": {
            "method": "POST",
            "uri": uri,
            "headers": {},
            "body": sent,
        },
        "response": {
            "status": {"code": status, "message": ""},
            "headers": {name.replace("_", "-"): [value] for name, value in headers.items()},
            "body": {"string": body},
        },
    }


def write(path: Path, *exchanges: Any) -> Path:
    """A cassette of these."""
    return write_yaml(path, {"version": 1, "interactions": list(exchanges)})


def write_yaml(path: Path, document: Any) -> Path:
    """A document as a recorder writes it."""
    yaml: Any = import_module("yaml")
    path.write_text(yaml.safe_dump(document))
    return path


def completion(text: str, ref: str = "c1", calls: list[Any] | None = None, used: tuple[int, int] = (3, 2)) -> dict[str, Any]:
    """A Chat Completions answer that came whole."""
    message: dict[str, Any] = {"role": "assistant", "content": text or None} | ({"tool_calls": calls} if calls else {})
    return {
        "id": ref, "object": "chat.completion", "created": 1, "model": f"model-{ref}",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": used[0], "completion_tokens": used[1], "total_tokens": sum(used)},
    }  # fmt: skip


def call(ref: str, **given: Any) -> dict[str, Any]:
    """A call of a tool."""
    return {"id": ref, "type": "function", "function": {"name": "look", "arguments": json.dumps(given)}}


def ask(*messages: Any) -> dict[str, Any]:
    """A request; text alone is what the user says."""
    return {"messages": [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]}


def packed(value: Any) -> bytes:
    """JSON that is gzipped."""
    return gzip.compress(json.dumps(value).encode(), mtime=0)


async def taken(ledger: Ledger, path: Path, **options: Any) -> list[Told]:
    """The conversations of a file, taken in."""
    report = await import_file(ledger.engine, path, **options)
    found = []
    for one in report.conversations:
        messages = await ledger.transcript(one.conversation, branch="all")
        runs = [run async for run in ledger.runs(one.conversation)]
        losses = [loss.what for loss in getattr(one, "losses", ())]
        found.append(Told(messages, await ledger.transcript(one.conversation), runs, losses))
    return found
