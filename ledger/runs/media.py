"""The media of a run: their bytes go to the media store, and the events that name them after that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledger.tables.media import find_media_type, put_media
from projector import events as ev
from projector.formats.shared.media_refs import Detacher
from stream import StreamError
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.engine import Engine
    from projector.formats.shared.media_refs import Attachment

_LOG = Logger("tailfold.ledger")


class RunMedia:
    """Takes media out of the events of a run and keeps them; one call at a time, `wait` is for the next one."""

    def __init__(self, engine: Engine, conversation: str, run_id: str) -> None:
        self._engine = engine
        self._conversation = conversation
        self._run_id = run_id
        self._detacher = Detacher()
        self._keeping: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether `wait` has nothing to wait for."""
        return self._keeping is None

    async def type_of(self, media_id: str) -> str:
        """What media of this conversation are. Raises `UnknownMedia`."""
        return await find_media_type(self._engine.tables, self._conversation, media_id)

    async def put(
        self, bodies: Sequence[ev.Body], media: Sequence[Attachment], take: Callable[[Sequence[ev.Body]], None]
    ) -> None:
        """Gives the events to `take`, their media into the store ahead of them; a caller that is cancelled stops neither.

        `media` are those that the events name already; what they still carry is taken out of them.
        """
        found: list[Attachment] = []
        lean: list[ev.Body] = []
        for body in bodies:
            rest, attachments = self._detacher.detach(body)
            lean += map(_added, attachments)
            lean.append(rest)
            found += attachments
        if not found and not media:
            take(bodies)
            return
        self._keeping = asyncio.create_task(
            self._keep_and_take(media, found, lean, bodies, take), name=f"tailfold media of {self._run_id}"
        )
        self._keeping.add_done_callback(lambda task: task.cancelled() or task.exception())  # its caller may be gone
        await asyncio.shield(self._keeping)

    async def wait(self) -> None:
        """Returns when the events of the call before are taken, or refused."""
        while (keeping := self._keeping) is not None:
            await asyncio.wait([keeping])
            if self._keeping is keeping:  # others wait, too, and one of them may have gone on
                self._keeping = None

    async def _keep_and_take(
        self,
        media: Sequence[Attachment],
        found: Sequence[Attachment],
        lean: Sequence[ev.Body],
        whole: Sequence[ev.Body],
        take: Callable[[Sequence[ev.Body]], None],
    ) -> None:
        await self._keep(media)
        try:
            await self._keep(found)
        except StreamError as why:  # nothing is lost for it: the log has the bytes
            _LOG.warning("run.media_inline", conversation=self._conversation, run_id=self._run_id, error=type(why).__name__)
            lean = whole
        take([*map(_added, media), *lean])

    async def _keep(self, media: Sequence[Attachment]) -> None:
        for one in media:
            await put_media(self._engine.tables, self._conversation, one.data, one.media_type)


def _added(media: Attachment) -> ev.MediaAdded:
    return ev.MediaAdded(media.media_id, media.media_type, len(media.data))
