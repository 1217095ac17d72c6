"""Delta history: what a provider that keeps the session itself has not got yet.

`plan` is pure. What is remembered is a `ProviderSession`: that a send begins is stored before it goes out, so that a
crash is noticed; what arrived is stored afterwards.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from projector.context.tool_groups import ids_of, pair
from projector.json_text import encode
from projector.message import Message
from stream.checks import shown
from stream.limits import MAX_INTEGER

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Reason = Literal[
    "first_use", "checkpoint_not_on_path", "prefix_changed", "system_prompt_changed",
    "working_directory_changed", "expired", "unacknowledged_send",
]  # fmt: skip


class ProviderCapabilities(msgspec.Struct, frozen=True):
    """What a provider can do; a delta needs both of these."""

    session_resumption: bool = False
    history_management: Literal["stateless", "session-stateful"] = "stateless"

    @property
    def keeps_history(self) -> bool:
        """Whether it remembers what it was sent."""
        return self.session_resumption and self.history_management == "session-stateful"


class ProviderSession(msgspec.Struct, frozen=True):
    """What a provider holds of a conversation: everything up to `sent_through`, and the messages in `held`.

    The fingerprints are of the system prompt, and of the view up to the checkpoint. `sending`: something went out and
    was not acknowledged yet. `expires_at` in ms.
    """

    session_id: str | None
    sent_through: str | None = None
    held: tuple[str, ...] = ()
    system_fingerprint: str = ""
    prefix_fingerprint: str = ""
    working_directory: str | None = None
    sending: bool = False
    expires_at: int | None = None


class Full(msgspec.Struct, frozen=True, tag=True):
    """Everything, into a new session. `reason` is None where no session is in play."""

    messages: tuple[Message, ...]
    reason: Reason | None


class Delta(msgspec.Struct, frozen=True, tag=True):
    """What the provider does not hold; that may be nothing."""

    messages: tuple[Message, ...]


def plan(
    path: Sequence[Message],
    session: ProviderSession | None,
    capabilities: ProviderCapabilities,
    *,
    system_prompt: str = "",
    working_directory: str | None = None,
    now: int | None = None,
    mode: Literal["full", "delta"] | None = None,
) -> Full | Delta:
    """What to send of a path: the paired view, or its part that the provider lacks. Times in ms; see `plan_view`."""
    return plan_view(
        tuple(pair(path)),
        session,
        capabilities,
        system_prompt=system_prompt,
        working_directory=working_directory,
        now=now,
        mode=mode,
    )


def plan_view(
    view: tuple[Message, ...],
    session: ProviderSession | None,
    capabilities: ProviderCapabilities,
    *,
    system_prompt: str = "",
    working_directory: str | None = None,
    now: int | None = None,
    mode: Literal["full", "delta"] | None = None,
) -> Full | Delta:
    """What to send of a view that is paired: all of it, or the part that the provider lacks. Times in ms.

    A session that can't be continued for sure gives everything, with the first reason in the order of `Reason`. Raises
    `ValueError` for an unknown mode, and for a time that is no number from 0.
    """
    if mode not in (None, "full", "delta"):
        raise ValueError(f"mode must be full or delta, not {mode!r}")
    check_time("now", now)
    if mode == "full" or not capabilities.keeps_history:
        return Full(view, None)
    reason = _why_full(view, session, system_prompt, working_directory, now)
    if reason is not None or session is None or session.sent_through is None:
        return Full(view, reason)
    behind = ids_of(view).index(session.sent_through) + 1
    held = frozenset(session.held)
    return Delta(tuple(message for message in view[behind:] if message.id not in held))


def begin_send(
    session: ProviderSession | None,
    planned: Full | Delta,
    session_id: str,
    *,
    system_prompt: str = "",
    working_directory: str | None = None,
    expires_at: int | None = None,
) -> ProviderSession:
    """What is to be stored before a plan goes out. Everything goes into a new session, which holds nothing yet.

    Raises `ValueError` for an `expires_at` that is no number from 0.
    """
    check_time("expires_at", expires_at)
    if isinstance(planned, Delta) and session is not None:
        return replace(session, sending=True, expires_at=session.expires_at if expires_at is None else expires_at)
    return ProviderSession(
        session_id,
        system_fingerprint=fingerprint(system_prompt),
        working_directory=working_directory,
        sending=True,
        expires_at=expires_at,
    )


def acknowledge(
    session: ProviderSession, path: Sequence[Message], sent_ids: Collection[str], reply_ids: Collection[str]
) -> ProviderSession:
    """The session after what was sent has arrived and was answered.

    The checkpoint is the end of the longest part of the view that the provider holds from its beginning; so a message
    that came in between is in the next delta, even where the path puts it ahead of the reply.
    """
    view = pair(path)
    ids = ids_of(view)
    known = set(ids[: ids.index(session.sent_through) + 1]) if session.sent_through in ids else set[str]()
    holds = known | set(session.held) | set(sent_ids) | set(reply_ids)
    reach = next((place for place, message_id in enumerate(ids) if message_id not in holds), len(ids))
    return replace(
        session,
        sent_through=ids[reach - 1] if reach else None,
        held=tuple(message_id for message_id in ids[reach:] if message_id in holds),
        prefix_fingerprint=fingerprint_of(view[:reach]),
        sending=False,
    )


def renamed(session: ProviderSession, session_id: str) -> ProviderSession:
    """The session under the id that the provider gave it."""
    return replace(session, session_id=session_id)


def received(session: ProviderSession, path: Sequence[Message], ids: Collection[str]) -> ProviderSession:
    """The session after a crash, where the caller can prove what arrived of the last send; that may be nothing."""
    return acknowledge(session, path, ids, ())


def fingerprint(text: str) -> str:
    """Of a system prompt."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def fingerprint_of(messages: Sequence[Message]) -> str:
    """Of ids and content."""
    digest = hashlib.sha256()
    for message in messages:
        said: list[Any] = [message.id, message.role, message.name, message.blocks]
        digest.update(encode(msgspec.to_builtins(said)) + b"\n")
    return digest.hexdigest()


def check_time(what: str, value: object) -> None:
    """Raises `ValueError` for a time that is no number from 0; None is none."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INTEGER):
        raise ValueError(f"{what} must be a time in ms, 0 or more, not {shown(value)}")


def _why_full(
    view: Sequence[Message], session: ProviderSession | None, system_prompt: str, working_directory: str | None, now: int | None
) -> Reason | None:
    if session is None or session.session_id is None:
        return "first_use"
    ids = ids_of(view)
    is_there = session.sent_through in ids and set(session.held) <= set(ids)
    prefix = view[: ids.index(session.sent_through) + 1] if session.sent_through in ids else ()
    has_expired = session.expires_at is not None and now is not None and session.expires_at <= now
    checks: list[tuple[bool, Reason]] = [
        (session.sent_through is None and session.sending, "unacknowledged_send"),  # the first send of a session
        (not is_there, "checkpoint_not_on_path"),
        (session.prefix_fingerprint != fingerprint_of(prefix), "prefix_changed"),
        (session.system_fingerprint != fingerprint(system_prompt), "system_prompt_changed"),
        (session.working_directory != working_directory, "working_directory_changed"),
        (has_expired, "expired"),
        (session.sending, "unacknowledged_send"),
    ]
    return next((reason for is_so, reason in checks if is_so), None)
