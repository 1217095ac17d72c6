"""The command that serves a database over HTTP."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003 - typer reads it at run time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.admin.options import named_path, with_ledger
from ledger.admin.output import print_line
from stream.urls import shown_url

if TYPE_CHECKING:
    from ledger.ledger import Ledger

_ORIGIN = re.compile(r"https?://[^/?#\s@]+")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Where to listen; other machines reach it only if this is one of its addresses.")]
    = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one and says which.", min=0, max=65535)] = 8000,
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="A file of bearer tokens: without one, everybody may do everything.", parser=named_path, metavar="PATH"
        ),
    ] = None,
    cors: Annotated[list[str] | None, typer.Option(help="A page's origin that may read this, or *.", metavar="ORIGIN")] = None,
    long_poll_timeout: Annotated[float, typer.Option(help="How long a long-poll waits, in seconds.", min=0.1)] = 30.0,
    max_body: Annotated[int, typer.Option(help="The largest body that is taken, in bytes.", min=1024)] = 16 * 1024 * 1024,
    max_connections: Annotated[
        int | None, typer.Option(help="More at once are answered 503; an EventSource comes back.", min=1)
    ] = None,
) -> None:  # fmt: skip
    """Serve conversations and streams over HTTP, until Ctrl-C."""
    from ledger.http import make_app  # noqa: PLC0415 - an extra that may be missing
    from ledger.http.server import Server, listen  # noqa: PLC0415 - the same
    from stream.http import BearerTokens, Tickets  # noqa: PLC0415 - the same
    from stream.http.hosts import LOOPBACK  # noqa: PLC0415 - the same

    for origin in cors or ():
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"--cors {origin[:80]!r} is no origin: write it as browsers send it, https://app.example, or *")
    if tokens is None and host not in _LOOPBACK:
        raise ValueError(f"{host} is reached by others: name a file of tokens with --tokens")
    options: dict[str, Any] = {
        "cors_origins": tuple(cors or ()), "long_poll_s": long_poll_timeout, "max_body_bytes": max_body,
    }  # fmt: skip
    if tokens is not None:
        known = BearerTokens(tokens)
        options |= {"authorize": known, "tickets": Tickets(known.secret)}
    else:
        options["hosts"] = LOOPBACK
    listener = listen(host, port)

    async def job(ledger: Ledger) -> None:
        server = Server(make_app(ledger, **options), max_connections=max_connections)
        named = f"[{host}]" if ":" in host else host
        print_line(f"serving {shown_url(context.obj.data)} at http://{named}:{listener.getsockname()[1]}")
        await server.serve([listener])

    with listener:
        with_ledger(context, job, create=True, fast_loop=True)
