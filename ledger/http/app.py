"""The application: everything a ledger serves, to be run by `tailfold serve` or mounted in a program's own."""

from __future__ import annotations

import contextlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import anyio

from ledger.errors import LedgerError
from ledger.http.commands import Commands
from ledger.http.conversations import Conversations
from ledger.http.events import Events
from ledger.http.problems import answer_ledger_error
from ledger.http.vocabulary import Vocabulary
from stream.http import wrap
from stream.http.documentation import Documentation
from stream.http.routes import make_routes
from stream.http.service import serve_store
from stream.http.tickets import TicketDesk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette

    from ledger.ledger import Ledger
    from stream.http import Service


def make_app(ledger: Ledger, **options: Any) -> Starlette:
    """An ASGI application that serves this ledger; `options` are the fields of `stream.http.Service`.

    Mounted in another application (`app.mount("/", make_app(ledger))`) that application's lifespan has to enter
    `running(app.state.service)`, which ends those who follow.
    """
    service = serve_store(ledger.store, **options)
    parts = (
        Conversations(ledger, service), Events(ledger, service), Commands(ledger, service), Vocabulary(), TicketDesk(service),
    )  # fmt: skip
    endpoints = make_routes(route for part in parts for route in part.routes())
    routes = [*endpoints, *Documentation("Tailfold", version("tailfold"), endpoints).endpoints]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with running(service):
            yield

    app = wrap(routes, service, handlers={LedgerError: answer_ledger_error}, lifespan=lifespan)
    app.state.service = service
    return app


@contextlib.asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """While the block lasts, those who never read are let go; at its end all who follow are ended."""
    async with anyio.create_task_group() as group:
        group.start_soon(service.followers.watch)
        try:
            yield
        finally:
            service.followers.close()
            group.cancel_scope.cancel()
