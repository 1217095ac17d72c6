"""What the ledger refuses, with the way out."""

from __future__ import annotations

from datetime import UTC, datetime


class LedgerError(Exception):
    """Base of the errors of this package; errors of the log come through as they are."""


class RunOpen(LedgerError):
    """The conversation's last run has no end yet: wait for it, or recover it if its writer is gone.

    `last_event_at` is when that run last wrote, in ms.
    """

    def __init__(self, conversation: str, run_id: str, last_event_at: int) -> None:
        super().__init__(
            f"run {run_id!r} of conversation {conversation!r} is still open and last wrote at {_moment(last_event_at)}: begin "
            "with wait=True to come behind it, or name a parent for a branch of its own; if its writer is gone, end it with "
            f"`tailfold recover {run_id} --action commit`"
        )
        self.conversation, self.run_id, self.last_event_at = conversation, run_id, last_event_at


class RunExists(LedgerError):
    """A run id is used once."""

    def __init__(self, conversation: str, run_id: str) -> None:
        super().__init__(f"run {run_id!r} of conversation {conversation!r} exists: choose another id")
        self.conversation, self.run_id = conversation, run_id


class RunLost(LedgerError):
    """Another writer ended this run, or its conversation was erased; nothing more of it is taken."""

    def __init__(self, conversation: str, run_id: str, what: str = "recovered or erased elsewhere") -> None:
        super().__init__(f"run {run_id!r} of conversation {conversation!r} was {what}: begin a new run")
        self.conversation, self.run_id = conversation, run_id


class RunEnded(LedgerError):
    """This `Run` was finished or closed; nothing more is taken."""


class UnknownRun(LedgerError):
    """No conversation has such a run."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id!r}: `tailfold runs` lists them")
        self.run_id = run_id


class UnknownConversation(LedgerError):
    """There is no such conversation."""

    def __init__(self, conversation: str) -> None:
        super().__init__(f"there is no conversation {conversation!r}: `tailfold conversations` lists what there is")
        self.conversation = conversation


class NoConversation(LedgerError):
    """The stream is not one of the ledger's: what lies in it is for its own program to let go."""

    def __init__(self, stream_id: str, why: str) -> None:
        super().__init__(
            f"stream {stream_id!r} is no conversation, {why}: only the program that writes it knows what may go; "
            "it calls `truncate` of its store"
        )
        self.stream_id, self.why = stream_id, why


class UnknownMessage(LedgerError):
    """The conversation has no such message."""

    def __init__(self, conversation: str, message_id: str) -> None:
        super().__init__(
            f"conversation {conversation!r} has no committed message {message_id!r}: `tailfold tree` shows what there is"
        )
        self.conversation, self.message_id = conversation, message_id


class LedgerDamaged(LedgerError):
    """A committed message is not what was written; or, where `what` says so, what is kept of a run."""

    def __init__(self, conversation: str, message_id: str, what: str = "message") -> None:
        super().__init__(
            f"{what} {message_id!r} of conversation {conversation!r} is damaged, or the way to it is: "
            "restore the ledger from a backup"
        )
        self.conversation, self.message_id, self.what = conversation, message_id, what


class LedgerDiverged(LedgerError):
    """The log ends before the point the ledger has seen: it is not, or no longer, this ledger's log."""

    def __init__(self, conversation: str, projected: int, head: int) -> None:
        super().__init__(
            f"the ledger holds conversation {conversation!r} up to {projected}, but its log ends at {head}: "
            "restore the log that belongs to this ledger"
        )
        self.conversation, self.projected, self.head = conversation, projected, head


class LedgerBehind(LedgerError):
    """Events that the ledger needs are gone from the log: restore a newer ledger, or an older log."""

    def __init__(self, conversation: str, needed: int, floor: int) -> None:
        super().__init__(
            f"the ledger holds conversation {conversation!r} up to a point after {needed}, but its log begins after "
            f"{floor}: what lies between is gone; restore a newer ledger or an older log"
        )
        self.conversation, self.needed, self.floor = conversation, needed, floor


class UnknownToolCall(LedgerError):
    """A result was to be recorded of a tool call that nobody has made."""

    def __init__(self, conversation: str, tool_call_id: str) -> None:
        super().__init__(
            f"conversation {conversation!r} has no tool call {tool_call_id!r}: record the call before its result, "
            "with the stream it came in or with `tool_call(name, input, id=…)`"
        )
        self.conversation, self.tool_call_id = conversation, tool_call_id


class UnknownMedia(LedgerError):
    """The media store has no such bytes, or not for this conversation."""

    def __init__(self, media_id: str) -> None:
        super().__init__(f"there is no media {media_id!r}: it was never added, or erased with its conversation")
        self.media_id = media_id


class LogReplaced(LedgerError):
    """The log is not the one this ledger was made from: another file, or one that was restored."""

    def __init__(self, known: str, found: str) -> None:
        super().__init__(
            f"this ledger belongs to the log {known}, but the log here is {found}: name the log that belongs to it, or "
            "let `tailfold reconcile --repair` compare the two and take this one over"
        )
        self.known, self.found = known, found


class ImportDiffers(LedgerError):
    """What is imported as a message is another one in the ledger."""

    def __init__(self, conversation: str, message_id: str) -> None:
        super().__init__(
            f"conversation {conversation!r} holds something else as message {message_id}: "
            "it was changed, or came from another file of that name; use --into for another conversation"
        )
        self.conversation, self.message_id = conversation, message_id


class HoldLost(LedgerError):
    """A hold could not be renewed in time, so a compaction may have gone beyond it: look at the floor, and begin again."""

    def __init__(self, conversation: str | None, through: int) -> None:
        where = "all logs" if conversation is None else f"the log of {conversation!r}"
        super().__init__(f"the hold on {where} through {through} ran out while it lasted: look at the floor, and hold again")
        self.conversation, self.through = conversation, through


class NothingFits(LedgerError):
    """Of a conversation with messages nothing would be sent: the newest of them, with its results, is too large.

    `needed` and `allowed` are in `unit`, messages or tokens; `by` names what allows no more.
    """

    def __init__(self, needed: int, allowed: int, *, unit: str = "messages", by: str = "the window") -> None:
        newest = "the newest message, with all results of its tool calls,"
        if not allowed:
            told = f"{by} leaves nothing of a history whose newest part is {needed:,} {unit}: mend it, or take it out"
        elif unit == "tokens":
            told = f"{newest} takes {needed:,} tokens, and {by} allows {allowed:,}: raise the token_budget of the model"
        else:
            told = (
                f"{newest} is {needed:,} messages, and {by} allows {allowed:,}: raise --max-ctx, the max_context of the model, "
                "or the ceiling (`tailfold history maxctx`)"
            )
        super().__init__(f"nothing is left to send: {told}")
        self.needed, self.allowed, self.unit, self.by = needed, allowed, unit, by


class NoSend(LedgerError):
    """Something was to be acknowledged that nobody has begun to send."""

    def __init__(self, conversation: str, provider: str) -> None:
        super().__init__(
            f"nothing of conversation {conversation!r} is on its way to provider {provider!r}: "
            "call begin_send before it goes out"
        )
        self.conversation, self.provider = conversation, provider


class SendOvertaken(LedgerError):
    """A delta does not fit any more: another send of this provider has begun or arrived since it was planned."""

    def __init__(self, conversation: str, provider: str) -> None:
        super().__init__(
            f"what provider {provider!r} holds of conversation {conversation!r} has changed since this context was made: "
            "make the context again"
        )
        self.conversation, self.provider = conversation, provider


class CopyDiffers(LedgerError):
    """A copy can't be made: something else lies there under this id, or the source does not hold still."""

    def __init__(self, stream_id: str, why: str) -> None:
        super().__init__(f"{stream_id!r} can't be copied: {why}; where it was changed since, copy into an empty place")
        self.stream_id, self.why = stream_id, why


def _moment(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "seconds").replace("+00:00", " UTC")
    except (OverflowError, ValueError, OSError):  # an import may say anything
        return f"{at_ms} ms"
