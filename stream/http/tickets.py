"""Hands out tickets: short-lived leave to read one stream, for the EventSource of a browser, which can't send a header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from starlette.responses import Response

from stream.http.access import MAX_TICKET_S
from stream.http.bodies import read_json
from stream.http.openapi import Content, describe
from stream.http.problems import Problem
from stream.limits import check_id

if TYPE_CHECKING:
    from starlette.requests import Request

    from stream.http.routes import Handler
    from stream.http.service import Service

_MAX_BYTES = 16 * 1024


class TicketWanted(msgspec.Struct, forbid_unknown_fields=True):
    """For what, and for how long (s)."""

    stream: str
    kind: Literal["conversation", "stream"] = "conversation"
    lasts_s: Annotated[int, msgspec.Meta(ge=1, le=MAX_TICKET_S)] = 60


class TicketGiven(msgspec.Struct):
    """Append `?ticket=…` to the address. `ends_at` in s since 1970: what is being read by then goes on."""

    ticket: str
    ends_at: int


class TicketDesk:
    """The endpoint."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[tuple[str, Handler, list[str]]]:
        """Path, endpoint, methods."""
        return [("/v1/tickets", self.give, ["POST"])]

    @describe(
        "access", "A ticket for one conversation or stream", problems=(413, 415, 422),
        detail="Whoever may read it gets one. A ticket gives leave to read, and not to get another ticket.",
        body=Content("What it is for.", TicketWanted, example={"kind": "conversation", "stream": "chat", "lasts_s": 60}),
        answers={200: Content("The ticket.", TicketGiven)},
    )  # fmt: skip
    async def give(self, request: Request) -> Response:
        """Makes one for somebody who may read it."""
        if "ticket" in request.query_params:
            raise Problem(403, "forbidden", "a ticket is no leave to get another: ask with what you got this one for")
        wanted = await read_json(request, _MAX_BYTES, TicketWanted)
        check_id("stream", wanted.stream)
        await self._service.check("read", wanted.kind, wanted.stream, request)
        ticket, ends_at = self._service.tickets.mint(wanted.kind, wanted.stream, lasts_s=wanted.lasts_s)
        return Response(
            msgspec.json.encode(TicketGiven(ticket, ends_at)), media_type="application/json",
            headers={"Cache-Control": "no-store"},
        )  # fmt: skip
