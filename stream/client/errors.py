"""Why a server is followed no further: what another try would not mend. Addresses are told without their query."""

from __future__ import annotations

from typing import Final

from stream.errors import StreamError

_WAYS_OUT: Final = {
    401: "send a token that it knows, as `Authorization: Bearer TOKEN`",
    403: "take a token that covers this stream",
    404: "look whether the address and the id are right",
}


class RemoteError(StreamError):
    """Base of them. `url` is the address."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"{url}: {why}")
        self.url = url


class RemoteRefused(RemoteError):
    """The server answered with a `status` that means no; `detail` is what it says about it, or empty."""

    def __init__(self, url: str, status: int, detail: str) -> None:
        way_out = _WAYS_OUT.get(status, "mend the request")
        said = f" ({detail})" if detail else ""
        super().__init__(url, f"the server answered {status}{said}: {way_out}")
        self.status, self.detail = status, detail


class RemoteUnreadable(RemoteError):
    """What answers there is no server of events."""


class RemoteOutOfOrder(RemoteError):
    """The server sends other events than the next ones, again and again: `seq` where `expected` was due."""

    def __init__(self, url: str, expected: int, seq: str) -> None:
        super().__init__(
            url,
            f"the server sent event {seq} where {expected} was due, each time it was asked: something between here and "
            f"there changes what it sends, or it serves another store; begin anew after 0, or look at `tailfold verify`",
        )
        self.expected, self.seq = expected, seq
