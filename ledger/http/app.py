"""The application: everything a ledger serves, to be run by `tailfold serve` or mounted in a program's own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from ledger.http.agui import Agui
from ledger.http.chat import Chat
from ledger.http.conversations import Conversations
from stream.http import running, wrap
from stream.http.durable import make_route
from stream.http.service import serve_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette
    from starlette.routing import BaseRoute

    from ledger.ledger import Ledger


def make_app(ledger: Ledger, **options: Any) -> Starlette:
    """An ASGI application that serves this ledger; `options` are the fields of `stream.http.Service`.

    Mounted in another application (`app.mount("/", make_app(ledger))`) that application's lifespan has to enter
    `running(app.state.service)`, which ends those who follow. `app.state.agui` and `app.state.chat` answer in a program's
    own endpoint what their paths here would.
    """
    service = serve_store(ledger.store, **options)
    agui, chat = Agui(ledger, service), Chat(ledger, service)
    routes: list[BaseRoute] = [make_route(service)]
    for part in (Conversations(ledger, service), agui, chat):
        routes += [Route(path, endpoint, methods=methods) for path, endpoint, methods in part.routes()]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with running(service):
            yield

    app = wrap(routes, service, lifespan=lifespan)
    app.state.service, app.state.agui, app.state.chat = service, agui, chat
    return app
