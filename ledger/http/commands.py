"""What can be asked for of a conversation beside events: that a run stops, and that the log lets go what the ledger holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.http.answers import CancelAnswer, CompactionAnswer, CompactionWanted
from ledger.http.conversations import TAG, admit, answer
from stream.http.bodies import check_json_type, read_body, read_json_text
from stream.http.openapi import Content, describe

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ledger.ledger import Ledger
    from stream.http import Service
    from stream.http.routes import Handler

_MAX_BYTES = 16 * 1024


class Commands:
    """The endpoints."""

    def __init__(self, ledger: Ledger, service: Service) -> None:
        self._ledger = ledger
        self._service = service

    def routes(self) -> list[tuple[str, Handler, list[str]]]:
        """Path, endpoint, methods."""
        return [
            ("/v1/conversations/{id}/runs/{run}/cancel", self.cancel, ["POST"]),
            ("/v1/conversations/{id}/compact", self.compact, ["POST"]),
        ]

    @describe(
        TAG, "Asks the program that writes a run to stop; it ends the run itself",
        detail="To leave a stream of events does not stop the run. One that has ended stays as it is; the answer says so.",
        answers={200: Content("What has come of it.", CancelAnswer)}, problems=(404,),
    )  # fmt: skip
    async def cancel(self, request: Request) -> Response:
        """Notes the request in the log, where its program sees it."""
        conversation = await admit(self._service, "cancel", request)
        run_id = request.path_params["run"]
        is_asked = await self._ledger.cancel(conversation, run_id)
        run = await self._ledger.tables.run(conversation, run_id)
        outcome = None if run is None else run.outcome
        return answer({"conversation": conversation, "run_id": run_id, "is_asked": is_asked, "outcome": outcome})

    @describe(
        TAG, "Lets the log go as far as the transcript holds it",
        detail="Transcript, open runs and ids stay. Followers that are behind get a `snapshot` and go on.",
        body=Content("How; it may be left out.", CompactionWanted, example={"replay_window": 1000}), is_body_needed=False,
        answers={200: Content("How far it went.", CompactionAnswer)}, problems=(404, 408, 409, 413, 415, 422, 507),
    )  # fmt: skip
    async def compact(self, request: Request) -> Response:
        """Compacts."""
        conversation = await admit(self._service, "compact", request)
        body = await read_body(request, _MAX_BYTES)
        if body:
            check_json_type(request)
        wanted = read_json_text(body or b"{}", CompactionWanted)
        done = await self._ledger.compact(
            conversation, replay_window=wanted.replay_window, drop_unkept=wanted.drop_unkept, dry_run=wanted.dry_run
        )
        return answer({"conversation": conversation, "dry_run": wanted.dry_run, **done._asdict()})
