"""The messages that a client of AG-UI shows after events, for one that comes later and gets them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from projector.formats.outgoing.display import HINT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Wire = list[dict[str, Any]]


class ClientView:
    """Takes events in the order in which they went out. A call that is open is kept apart: it is to be sent once more."""

    def __init__(self) -> None:
        self._pieces: dict[str, dict[str, Any]] = {}
        self._calls: dict[str, tuple[str, dict[str, Any]]] = {}
        """Calls with the message each stands in."""
        self._open: set[str] = set()

    def take(self, events: Iterable[dict[str, Any]]) -> None:
        """Some more events."""
        for event in events:
            handle = _HANDLERS.get(event["type"])
            if handle is not None:
                handle(self, event)

    def pieces_of(self, message_id: str) -> Wire:
        """What it shows of a message of ours, without calls that are open."""
        return [piece for ref, piece in self._pieces.items() if _owner(ref, piece) == message_id and _says_something(piece)]

    def parent_of(self, tool_call_id: str) -> str:
        """The message of AG-UI that a call stands in."""
        return self._calls[tool_call_id][0]

    def arguments(self, tool_call_id: str) -> str:
        """The arguments of a call, as far as they have gone out."""
        said: str = self._calls[tool_call_id][1]["function"]["arguments"]
        return said

    def start_text(self, event: dict[str, Any]) -> None:
        """A text begins, or goes on where it is open again."""
        self._piece(event["messageId"], event["role"], event).setdefault("content", "")

    def start_thought(self, event: dict[str, Any]) -> None:
        """Reasoning begins."""
        self._piece(event["messageId"], "reasoning", event).setdefault("content", "")

    def say(self, event: dict[str, Any]) -> None:
        """Text or reasoning goes on."""
        self._pieces[event["messageId"]]["content"] += event["delta"]

    def start_call(self, event: dict[str, Any]) -> None:
        """A call begins; it stands nowhere until it ends."""
        self._piece(event["parentMessageId"], "assistant", {"metadata": _group(event)})
        function = {"name": event["toolCallName"], "arguments": ""}
        call = {"id": event["toolCallId"], "type": "function", "function": function} | _noted(event.get("metadata"))
        self._calls[event["toolCallId"]] = event["parentMessageId"], call
        self._open.add(event["toolCallId"])

    def argue(self, event: dict[str, Any]) -> None:
        """Arguments of a call go on."""
        self._calls[event["toolCallId"]][1]["function"]["arguments"] += event["delta"]

    def end_call(self, event: dict[str, Any]) -> None:
        """A call is whole, and stands with its message."""
        parent, call = self._calls[event["toolCallId"]]
        self._open.discard(event["toolCallId"])
        call |= _noted({**call.get("metadata", {}), **event.get("metadata", {})})
        self._pieces[parent].setdefault("toolCalls", []).append(call)

    def encrypt(self, event: dict[str, Any]) -> None:
        """What only its maker can read of a message or call."""
        ref = event["entityId"]
        holder = self._calls[ref][1] if event["subtype"] == "tool-call" else self._pieces.get(ref)
        if holder is not None:
            holder |= {"encryptedValue": event["encryptedValue"]}
            holder |= _noted(_merged(holder.get("metadata", {}), event.get("metadata", {})))

    def act(self, event: dict[str, Any]) -> None:
        """An activity, whole."""
        known = {name: event[name] for name in ("activityType", "content") if name in event}
        self._pieces[event["messageId"]] = {"id": event["messageId"], "role": "activity"} | known

    def answer(self, event: dict[str, Any]) -> None:
        """A result, whole."""
        known = {name: event[name] for name in ("role", "content", "toolCallId")}
        self._pieces[event["messageId"]] = {"id": event["messageId"]} | known | _noted(event.get("metadata"))

    def _piece(self, ref: str, role: str, event: dict[str, Any]) -> dict[str, Any]:
        piece = self._pieces.setdefault(ref, {"id": ref, "role": role})
        if "name" in event:
            piece["name"] = event["name"]
        piece |= _noted(_merged(piece.get("metadata", {}), event.get("metadata", {})))
        return piece


_HANDLERS: Final[dict[str, Callable[[ClientView, dict[str, Any]], None]]] = {
    "TEXT_MESSAGE_START": ClientView.start_text,
    "TEXT_MESSAGE_CONTENT": ClientView.say,
    "REASONING_MESSAGE_START": ClientView.start_thought,
    "REASONING_MESSAGE_CONTENT": ClientView.say,
    "REASONING_ENCRYPTED_VALUE": ClientView.encrypt,
    "TOOL_CALL_START": ClientView.start_call,
    "TOOL_CALL_ARGS": ClientView.argue,
    "TOOL_CALL_END": ClientView.end_call,
    "TOOL_CALL_RESULT": ClientView.answer,
    "ACTIVITY_SNAPSHOT": ClientView.act,
}


def _owner(ref: str, piece: dict[str, Any]) -> str:
    owner: str = piece.get("metadata", {}).get(HINT, {}).get("message", ref)
    return owner


def _says_something(piece: dict[str, Any]) -> bool:
    return "content" in piece or "toolCalls" in piece


def _group(event: dict[str, Any]) -> dict[str, Any]:
    """Which message of ours a call is of: a message of AG-UI that has only calls says it, too."""
    message = event.get("metadata", {}).get(HINT, {}).get("message")
    return {HINT: {"message": message}} if message else {}


def _merged(known: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    hints = known.get(HINT, {}) | told.get(HINT, {})
    return known | told | ({HINT: hints} if hints else {})


def _noted(metadata: dict[str, Any] | None) -> dict[str, Any]:
    return {"metadata": metadata} if metadata else {}
