"""The application: everything a ledger serves, to be run by `tailfold serve` or mounted in a program's own."""

from __future__ import annotations

import contextlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ledger.errors import LedgerError
from ledger.http.agui import Agui
from ledger.http.chat import Chat
from ledger.http.commands import Commands
from ledger.http.conversations import Conversations
from ledger.http.events import Events
from ledger.http.problems import answer_ledger_error
from ledger.http.vocabulary import Vocabulary
from stream.http import running, wrap
from stream.http.documentation import Documentation
from stream.http.durable import make_route
from stream.http.routes import make_routes
from stream.http.service import serve_store
from stream.http.tickets import TicketDesk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette

    from ledger.ledger import Ledger


def make_app(ledger: Ledger, **options: Any) -> Starlette:
    """An ASGI application that serves this ledger; `options` are the fields of `stream.http.Service`.

    Mounted in another application (`app.mount("/", make_app(ledger))`) that application's lifespan has to enter
    `running(app.state.service)`, which ends those who follow. `app.state.agui` and `app.state.chat` answer in a program's
    own endpoint what their paths here would.
    """
    service = serve_store(ledger.store, **options)
    agui, chat = Agui(ledger, service), Chat(ledger, service)
    parts = (
        Conversations(ledger, service), Events(ledger, service), Commands(ledger, service), agui, chat, Vocabulary(),
        TicketDesk(service),
    )  # fmt: skip
    endpoints = make_routes(route for part in parts for route in part.routes())
    streams = make_route(service)
    documentation = Documentation("Tailfold", version("tailfold"), [*endpoints, streams])
    routes = [streams, *endpoints, *documentation.endpoints]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with running(service):
            yield

    app = wrap(routes, service, handlers={LedgerError: answer_ledger_error}, lifespan=lifespan)
    app.state.service, app.state.agui, app.state.chat = service, agui, chat
    return app
