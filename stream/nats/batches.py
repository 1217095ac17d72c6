"""Sends messages of many logs together: what waits while others are under way goes as one batch, which costs one commit.

Each message still moves its own log only from where it was expected. Where one of a batch can't go in the server refuses
all: then each goes alone, so that only its own sender is told.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from stream.errors import StreamError
from stream.nats.errors import Moved, Unclear

if TYPE_CHECKING:
    from stream.nats.client import Client

_MIN_BATCH: Final = 8  # a batch takes as long as some single messages
_MAX_BATCH: Final = 500
_MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
_ABREAST: Final = 4


class _Message(NamedTuple):
    subject: str
    data: bytes
    headers: dict[str, str]
    expected: int
    answer: asyncio.Future[int]


class Batches:
    """The messages for one JetStream stream. What is under way at once are distinct logs: each has one message there."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: list[_Message] = []
        self._task: asyncio.Task[None] | None = None

    async def send(self, subject: str, data: bytes, headers: dict[str, str], *, expected: int, is_alone: bool = False) -> int:
        """As `Client.send`. Who `is_alone` has nobody to wait for: there it is sent at once."""
        if is_alone and self._task is None:
            return await self._client.send(subject, data, headers, expected=expected)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Message(subject, data, headers, expected, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        """Ends when nothing waits any more; each answer comes, whatever happens."""
        under_way: set[asyncio.Task[None]] = set()
        while self._waiting or under_way:
            if len(under_way) >= _ABREAST or not self._waiting:
                _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                continue
            messages = self._take()
            if len(messages) < _MIN_BATCH:
                under_way |= {asyncio.create_task(self._send(message)) for message in messages}
            else:
                under_way.add(asyncio.create_task(self._send_together(messages)))
                _, under_way = await asyncio.wait(under_way)
        self._task = None

    def _take(self) -> list[_Message]:
        size_bytes = count = 0
        for message in self._waiting[:_MAX_BATCH]:
            size_bytes += len(message.data)
            if count and size_bytes > _MAX_BATCH_BYTES:
                break
            count += 1
        messages, self._waiting = self._waiting[:count], self._waiting[count:]
        return messages

    async def _send(self, message: _Message) -> None:
        try:
            js = await self._client.send(message.subject, message.data, message.headers, expected=message.expected)
        except Exception as error:  # noqa: BLE001 - its sender raises it
            _refuse(message, error)
        else:
            if not message.answer.done():
                message.answer.set_result(js)

    async def _send_together(self, messages: list[_Message]) -> None:
        try:
            last = await self._client.send_batch([message[:4] for message in messages], name=secrets.token_hex(8))
        except (Moved, StreamError):  # nothing of it was stored
            await asyncio.gather(*map(self._send, messages))
        except Exception as error:  # noqa: BLE001 - their senders raise it, of `Unclear` each looks whether his is there
            for message in messages:
                _refuse(message, error)
        else:
            for js, message in enumerate(messages, last - len(messages) + 1):
                if not message.answer.done():
                    message.answer.set_result(js)


def _refuse(message: _Message, error: Exception) -> None:
    if not message.answer.done():
        message.answer.set_exception(Unclear(str(error)) if isinstance(error, Unclear) else error)
