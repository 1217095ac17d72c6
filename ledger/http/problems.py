"""What a client is told where the ledger refuses something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger import errors
from stream.http import Problem
from stream.logger import Logger

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_LOG: Final = Logger("tailfold.http")
_STATUS: Final[dict[type[errors.LedgerError], tuple[int, str]]] = {
    errors.UnknownConversation: (404, "unknown_conversation"),
    errors.UnknownRun: (404, "unknown_run"),
    errors.UnknownMessage: (404, "unknown_message"),
    errors.UnknownMedia: (404, "unknown_media"),
    errors.NoConversation: (409, "no_conversation"),
    errors.RunOpen: (409, "run_open"),
    errors.RunExists: (409, "run_exists"),
}
_NAMED: Final = {
    errors.UnknownConversation: "there is no such conversation: `/v1/conversations` lists what there is",
    errors.UnknownRun: "the conversation has no such run: `…/runs` lists them",
    errors.UnknownMessage: "the conversation has no such committed message: `…/transcript?branch=all` shows what there is",
}
"""What is told here in other words than on the command line."""


async def answer_ledger_error(_: Request, error: errors.LedgerError) -> Response:
    """The answer to an error of the ledger. What only an operator can mend is logged."""
    for kind, (status, word) in _STATUS.items():
        if isinstance(error, kind):
            return Problem(status, word, _NAMED.get(kind, str(error))).answer()
    _LOG.error("http.ledger_failed", error=type(error).__name__)
    why = "the ledger can't read what it keeps here, or not all of it: `tailfold reconcile` and `verify` name it"
    return Problem(500, "ledger_failed", why).answer()
