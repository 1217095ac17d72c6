"""Serves conversations over HTTP: lists, transcripts, events to those who come back, AG-UI and AI SDK. Extra `server`.

What lives here turns requests into calls of `Ledger`, and what it answers into what public clients read. Rules of
conversations must not: they are the ledger's.
"""

from stream.extras import needs as _needs

with _needs("server", "ledger.http"):
    from ledger.http.app import make_app
    from stream.http import running

__all__ = ["make_app", "running"]
