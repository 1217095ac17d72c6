"""What a person sees of the demo: the steps, and a conversation as it reaches a client."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

from ledger.signs import printable
from projector.events import BlockDelta, BlockStarted, MessageStarted, ToolResult
from projector.json_text import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from projector import Message
    from stream import Event

_INDENT: Final = 12
_WIDEST: Final = 80
_STYLES: Final = {"reasoning": "dim italic", "tool_call": "magenta", "tool_result": "magenta"}


class Screen:
    """Prints steps, and each event of a conversation as soon as it is there, wrapped between words."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(console.width, _WIDEST)
        self._column = 0
        self._kinds: dict[tuple[str, int], str] = {}

    def step(self, text: str) -> None:
        """What is done now, and what came of it."""
        self.end_line()
        lines = textwrap.wrap(text, self._width - 2, break_long_words=False, break_on_hyphens=False)
        for number, line in enumerate(lines):
            self._console.print(("  " if number else "● ") + printable(line), style="bold", markup=False, soft_wrap=True)

    def say(self, role: str, text: str, style: str = "") -> None:
        """One who speaks, and what he says as a whole."""
        self._begin(role)
        self._words(text, style)

    def list(self, messages: Sequence[Message]) -> None:
        """Messages that are kept, without what was thought."""
        for message in messages:
            said = [
                f"→ {block.name} {block.text}" if block.kind == "tool_call" else block.text
                for block in message.blocks
                if block.kind != "reasoning"
            ]
            found = [part.get("text", "") for block in message.blocks if block.parts for part in decode(block.parts)]
            what = " ".join(piece.strip() for piece in (*said, *(f"← {text}" for text in found)) if piece)
            self.say(message.role, what + (" … (partial)" if message.status == "partial" else ""))

    def show(self, event: Event) -> None:
        """What an event adds to what can be read."""
        if event.type == MessageStarted.TYPE:
            self._begin(decode(event.data, MessageStarted).role)
        elif event.type == BlockStarted.TYPE:
            block = decode(event.data, BlockStarted)
            self._kinds[block.message_id, block.block] = block.kind
            if self._column > _INDENT:
                self._begin("")
            if block.name:
                self._words(f"→ {block.name} ", _STYLES["tool_call"])
        elif event.type == BlockDelta.TYPE:
            delta = decode(event.data, BlockDelta)
            self._words(delta.text, _STYLES.get(self._kinds.get((delta.message_id, delta.block), ""), ""))
        elif event.type == ToolResult.TYPE:
            for part in decode(bytes(decode(event.data, ToolResult).parts)):
                self.say("tool", f"← {part.get('text', '')}", _STYLES["tool_result"])

    def end_line(self) -> None:
        """Nothing more is said on this line."""
        if self._column:
            self._console.print()
            self._column = 0

    def _begin(self, role: str) -> None:
        self.end_line()
        self._print(f"  {role:<{_INDENT - 2}}", "bold")

    def _words(self, text: str, style: str) -> None:
        for word in re.findall(r"\S+ *| +", printable(text)):
            if self._column > _INDENT and self._column + len(word.rstrip()) > self._width:
                self._begin("")
            self._print(word[: max(self._width - self._column, len(word.rstrip()))], style)
        self._console.file.flush()

    def _print(self, text: str, style: str) -> None:
        self._console.print(text, end="", style=style, markup=False, highlight=False, soft_wrap=True)
        self._column += len(text)
