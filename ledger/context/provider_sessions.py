"""What providers that keep histories themselves hold of a conversation, as events of it.

That a send begins is stored before it goes out, so a crash in between is noticed: the next plan is full then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from projector.context.delta import ProviderSession
from projector.events import ProviderSessionChanged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from projector.events import Choice


def session_of(choices: Iterable[Choice], provider: str) -> ProviderSession | None:
    """The session of a provider as it was stored last; None where there is none, or it was given up."""
    newest: ProviderSessionChanged | None = None
    for choice in choices:
        if isinstance(choice, ProviderSessionChanged) and choice.provider == provider:
            newest = choice
    if newest is None or newest.state == "invalidated":
        return None
    return ProviderSession(
        newest.session_id,
        newest.sent_through,
        tuple(newest.held),
        newest.system_fingerprint,
        newest.prefix_fingerprint,
        newest.working_directory,
        newest.sending,
        newest.expires_at,
    )


def to_body(
    provider: str,
    session: ProviderSession,
    state: Literal["opened", "sending", "acked", "invalidated"],
    reason: str | None = None,
) -> ProviderSessionChanged:
    """The event that stores a session."""
    return ProviderSessionChanged(
        provider,
        state,
        session.session_id,
        session.sent_through,
        list(session.held),
        session.system_fingerprint,
        session.prefix_fingerprint,
        session.working_directory,
        session.sending,
        session.expires_at,
        reason,
    )
