"""What the public clients of AG-UI and of the AI SDK make of a stream, written after their sources: it owes nothing to ours."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Wire = list[dict[str, Any]]


class AguiClient:
    """An agent object of `@ag-ui/client` 1.0: its messages stay when it connects again. Raises where the client does."""

    def __init__(self) -> None:
        self.messages: Wire = []
        self.is_running = False
        self.ended = ""
        self._open: dict[str, set[str]] = {}

    def connect(self) -> None:
        """A new stream begins."""
        self.is_running, self.ended, self._open = False, "", {}

    def take(self, events: Iterable[dict[str, Any]]) -> None:
        """Some events of the stream."""
        for event in copy.deepcopy(list(events)):
            self._check(event)
            self._apply(event)

    def text(self, role: str = "assistant") -> str:
        """All that messages of a role say."""
        return "".join(message.get("content") or "" for message in self.messages if message["role"] == role)

    def calls(self) -> list[tuple[str, str, str]]:
        """Id, name and arguments of all calls."""
        calls = [call for message in self.messages for call in message.get("toolCalls", ())]
        return [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]

    def _check(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        assert not self.ended, f"{kind} behind {self.ended}"
        assert self.is_running or kind in ("RUN_STARTED", "RUN_ERROR"), f"{kind} before RUN_STARTED"
        if kind == "RUN_STARTED":
            assert not self.is_running
            self.is_running = True
        elif kind in ("RUN_FINISHED", "RUN_ERROR"):
            left = {sort: refs for sort, refs in self._open.items() if refs}
            assert kind == "RUN_ERROR" or not left, f"open at the end: {left}"
            self.ended = kind
        elif kind in ("STEP_STARTED", "STEP_FINISHED"):
            self._open_or_close("STEP", event["stepName"], begins=kind == "STEP_STARTED")
        elif kind.endswith(("_START", "_END")) and kind.startswith(("TEXT", "TOOL", "REASONING")):
            sort, _, phase = kind.rpartition("_")
            self._open_or_close(sort, event.get("toolCallId") or event["messageId"], begins=phase == "START")
        elif kind in ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT"):
            assert event["messageId"] in self._open.get(kind.removesuffix("_CONTENT"), ())
        elif kind == "TOOL_CALL_ARGS":
            assert event["toolCallId"] in self._open.get("TOOL_CALL", ())

    def _open_or_close(self, sort: str, ref: str, *, begins: bool) -> None:
        refs = self._open.setdefault(sort, set())
        assert (ref in refs) != begins, f"{sort} {ref} {'is open' if begins else 'was not open'}"
        (refs.add if begins else refs.remove)(ref)

    def _apply(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind in ("TEXT_MESSAGE_START", "REASONING_MESSAGE_START"):
            if self._find(event["messageId"]) is None:
                self.messages.append({"id": event["messageId"], "role": event.get("role", "assistant"), "content": ""})
        elif kind in ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT"):
            message = self._find(event["messageId"])
            assert message is not None
            message["content"] = (message.get("content") or "") + event["delta"]
        elif kind == "TOOL_CALL_START":
            if self._call(event["toolCallId"]) is None:
                parent = self._find(event["parentMessageId"])
                if parent is None:
                    parent = {"id": event["parentMessageId"], "role": "assistant"}
                    self.messages.append(parent)
                function = {"name": event["toolCallName"], "arguments": ""}
                parent.setdefault("toolCalls", []).append({"id": event["toolCallId"], "function": function})
        elif kind == "TOOL_CALL_ARGS":
            call = self._call(event["toolCallId"])
            assert call is not None
            call["function"]["arguments"] += event["delta"]
        elif kind == "TOOL_CALL_RESULT":
            result = {"id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"], "content": event["content"]}
            self.messages.append(result)
        elif kind == "MESSAGES_SNAPSHOT":
            self._replace(event["messages"])

    def _replace(self, messages: Wire) -> None:
        given = {message["id"]: message for message in messages}
        has_reasoning = any(message["role"] == "reasoning" for message in messages)
        kept = [m for m in self.messages if m["id"] in given or (m["role"] == "reasoning" and not has_reasoning)]
        self.messages = [given.get(message["id"], message) for message in kept]
        there = {message["id"] for message in self.messages}
        self.messages += [message for message in messages if message["id"] not in there]

    def _find(self, ref: str) -> dict[str, Any] | None:
        return next((message for message in self.messages if message["id"] == ref), None)

    def _call(self, ref: str) -> dict[str, Any] | None:
        calls = (call for message in self.messages for call in message.get("toolCalls", ()))
        return next((call for call in calls if call["id"] == ref), None)


class ChatPage:
    """A page with a chat of the AI SDK: a stream that is resumed begins its last message anew."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {}
        self.ended = ""
        self._texts: dict[str, dict[str, Any]] = {}
        self._calls: dict[str, dict[str, Any]] = {}

    def take(self, chunks: Iterable[dict[str, Any]]) -> None:
        """Some chunks of the stream."""
        for chunk in chunks:
            assert not self.ended, f"{chunk['type']} behind {self.ended}"
            self._apply(chunk)

    def resume(self) -> None:
        """A new stream begins, which is a replay."""
        self.ended, self._texts, self._calls = "", {}, {}

    def text(self, kind: str = "text") -> str:
        """All that parts of a kind say."""
        return "".join(part["text"] for part in self.message.get("parts", ()) if part["type"] == kind)

    def calls(self) -> list[tuple[str, str]]:
        """Id and name of all calls."""
        return [(part["id"], part["name"]) for part in self.message.get("parts", ()) if part["type"] == "call"]

    def _apply(self, chunk: dict[str, Any]) -> None:
        kind = chunk["type"]
        parts = self.message.setdefault("parts", [])
        if kind == "start":
            self.message = {"id": chunk["messageId"], "parts": []}
        elif kind == "start-step":
            parts.append({"type": "step-start"})
        elif kind == "reset-step":
            begins = max(at for at, part in enumerate(parts) if part["type"] == "step-start")
            del parts[begins + 1 :]
        elif kind in ("text-start", "reasoning-start"):
            part = self._texts[chunk["id"]] = {"type": kind.removesuffix("-start"), "text": ""}
            parts.append(part)
        elif kind in ("text-delta", "reasoning-delta"):
            self._texts[chunk["id"]]["text"] += chunk["delta"]
        elif kind in ("text-end", "reasoning-end"):
            del self._texts[chunk["id"]]
        elif kind == "tool-input-start":
            call = self._calls[chunk["toolCallId"]] = {"type": "call", "id": chunk["toolCallId"], "name": chunk["toolName"]}
            parts.append(call)
        elif kind == "tool-input-delta":
            call = self._calls[chunk["toolCallId"]]
            call["said"] = call.get("said", "") + chunk["inputTextDelta"]
        elif kind.startswith("tool-"):
            self._calls[chunk["toolCallId"]][kind] = chunk
        elif kind == "finish-step":
            self._texts = {}
        elif kind in ("finish", "abort", "error"):
            self.ended = kind
