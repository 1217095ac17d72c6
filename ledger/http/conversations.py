"""Conversations to look at: their list, each by itself, its transcript and its runs, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from ledger.errors import LedgerBehind, LedgerDiverged, UnknownConversation, UnknownMessage
from ledger.http.answers import ConversationInFull, ConversationPage, RunPage, TranscriptPage
from ledger.kinds import is_reserved
from ledger.listings import STATUSES, list_runs
from ledger.pages import present_page, read_cursor, read_page
from ledger.records import present_conversation
from ledger.tables.conversations import Page
from projector import present
from projector.json_text import encode
from stream import CorruptEvent
from stream.http import Problem
from stream.http.openapi import TEXT, Content, Parameter, describe
from stream.http.queries import query_choice, query_flag, query_number, query_text
from stream.limits import MAX_INTEGER, check_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.requests import Request

    from ledger.following import OpenRun
    from ledger.ledger import Ledger
    from stream.http import Service
    from stream.http.access import Action
    from stream.http.routes import Handler

TAG: Final = "conversations"
PAGE: Final = 100
MAX_PAGE: Final = 1000
_LIMIT: Final = Parameter("limit", f"At most so many, {PAGE} where it is not given.",
                          {"type": "integer", "minimum": 1, "maximum": MAX_PAGE})  # fmt: skip


class Conversations:
    """The endpoints."""

    def __init__(self, ledger: Ledger, service: Service) -> None:
        self._ledger = ledger
        self._service = service

    def routes(self) -> list[tuple[str, Handler, list[str]]]:
        """Path, endpoint, methods."""
        return [
            ("/v1/conversations", self.list, ["GET"]),
            ("/v1/conversations/{id}", self.show, ["GET"]),
            ("/v1/conversations/{id}/transcript", self.transcript, ["GET"]),
            ("/v1/conversations/{id}/runs", self.runs, ["GET"]),
        ]

    @describe(
        TAG, "A page of the conversations that may be seen, newest activity first",
        parameters=[
            _LIMIT,
            Parameter("after", "The next page: what the one before named as `next`.", TEXT),
            Parameter("prefix", "Only ids that begin so.", TEXT),
            Parameter("label", "Only those with this label.", TEXT),
            Parameter("title", "Only those with this in their title.", TEXT),
            Parameter("archived", "With those that are archived, too.", {"type": "boolean"}),
        ],
        answers={200: Content("The page.", ConversationPage)},
    )  # fmt: skip
    async def list(self, request: Request) -> Response:
        """Conversations."""
        within = await self._service.check("list", "conversation", None, request)
        after = query_text(request, "after")
        try:
            begin = None if after is None else read_cursor(after)
        except ValueError as error:
            raise Problem(400, "invalid_cursor", f"after {error}") from error
        page = Page(
            begin, query_number(request, "limit", PAGE, least=1, most=MAX_PAGE), query_flag(request, "archived"),
            query_text(request, "prefix") or "", query_text(request, "label"), query_text(request, "title"),
        )  # fmt: skip
        return answer(present_page(*await read_page(self._ledger.engine, page, within)))

    @describe(
        TAG, "One conversation, where its log stands, and what is under way in it",
        answers={200: Content("The conversation.", ConversationInFull)}, problems=(404,),
    )  # fmt: skip
    async def show(self, request: Request) -> Response:
        """A conversation."""
        conversation = await admit(self._service, "read", request)
        engine = self._ledger.engine
        bounds = await engine.read_up(conversation)
        info = await engine.tables.conversation(conversation)
        if info is None:
            raise UnknownConversation(conversation)
        try:
            open_runs = present_open_runs(await self._ledger.open_runs(conversation))
        except (LedgerBehind, LedgerDiverged, CorruptEvent, UnknownConversation):
            open_runs = None
        log = {"incarnation": engine.store.incarnation, "floor": bounds.floor, "head": bounds.head}
        return answer({**present_conversation(info), **log, "open_runs": open_runs})

    @describe(
        TAG, "A page of the committed messages, the last ones first, each page in order",
        parameters=[
            _LIMIT,
            Parameter("before", "The page ahead of this message: what the one before named as `next`.", TEXT),
            Parameter("through", "The path down to this message instead of the active one; it stays what it is.", TEXT),
            Parameter("branch", "`active`: the active path, or the one of `before`. `all`: every message, as the log has them.",
                      {"enum": ["active", "all"]}),
        ],
        answers={200: Content("The page.", TranscriptPage)}, problems=(404,),
    )  # fmt: skip
    async def transcript(self, request: Request) -> Response:
        """Messages."""
        conversation = await admit(self._service, "read", request)
        limit = query_number(request, "limit", PAGE, least=1, most=MAX_PAGE)
        before, through = query_text(request, "before"), query_text(request, "through")
        branch = query_choice(request, "branch", ("active", "all")) or "active"
        if through is not None and (before is not None or branch == "all"):
            raise Problem(400, "invalid_query", "through names the last message of a path: leave before and branch out")
        if through is None:
            found = await self._ledger.transcript(
                conversation, branch="all" if branch == "all" else "active", before=before, limit=limit + 1
            )
        else:
            await self._ledger.engine.read_up(conversation)
            tables = self._ledger.tables
            if await tables.message(conversation, check_id("through", through), on_path=True) is None:
                raise UnknownMessage(conversation, through)
            found = await tables.path(conversation, through, limit + 1)
        shown = found[-limit:]
        following = shown[0].id if len(found) > len(shown) else None
        return answer({"conversation": conversation, "messages": [present(each) for each in shown], "next": following})

    @describe(
        TAG, "A page of its runs, open ones too, in the order of their start",
        parameters=[
            _LIMIT,
            Parameter("after", "The next page: what the one before named as `next`.",
                      {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}),
            Parameter("status", "Only these; `open` are those without an end.", {"enum": [*STATUSES]}),
        ],
        answers={200: Content("The page.", RunPage)}, problems=(404,),
    )  # fmt: skip
    async def runs(self, request: Request) -> Response:
        """Runs."""
        conversation = await admit(self._service, "read", request)
        limit = query_number(request, "limit", PAGE, least=1, most=MAX_PAGE)
        after = query_number(request, "after", 0)
        status = query_choice(request, "status", STATUSES)
        place = (conversation, after)
        found = [run async for run in list_runs(self._ledger.engine, conversation, status=status, after=place, limit=limit + 1)]
        shown = found[:limit]
        following = shown[-1].seq if len(found) > len(shown) else None
        return answer({"runs": [msgspec.to_builtins(run) for run in shown], "next": following})


async def admit(service: Service, action: Action, request: Request) -> str:
    """The id in the path of a request that may do this. Raises `Problem`, `InvalidId`, and `UnknownConversation` for `ds:`."""
    conversation: str = check_id("conversation id", request.path_params["id"])
    await service.check(action, "conversation", conversation, request)
    if is_reserved(conversation):
        raise UnknownConversation(conversation)
    return conversation


def answer(value: Mapping[str, Any]) -> Response:
    """Plain values as JSON that nobody keeps."""
    return Response(encode(value), media_type="application/json", headers={"Cache-Control": "no-store"})


def present_open_runs(runs: Iterable[OpenRun]) -> list[dict[str, Any]]:
    """Open runs as plain values."""
    return [{**run._asdict(), "messages": [present(message) for message in run.messages]} for run in runs]
