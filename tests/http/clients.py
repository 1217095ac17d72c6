"""A client of HTTP for tests, and of server-sent events: frames as they come over a real connection."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator


HTTP: Final = httpx.Client(verify=False, timeout=30, limits=httpx.Limits(max_keepalive_connections=0))
"""For all tests: to make one takes longer than a request. No connection outlives its request, so none is of a dead server."""


class Frame(NamedTuple):
    """One event: `id` as text, `data` as it came."""

    id: str
    event: str
    data: str

    @property
    def said(self) -> Any:
        """Its data as plain values."""
        return json.loads(self.data)


class Frames:
    """What comes over one response, frame by frame; comments and `retry` are passed over."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.status = response.status_code
        self._lines = _lines(response.iter_raw()) if self.status == httpx.codes.OK else iter(())

    def take(self, count: int) -> list[Frame]:
        """The next `count` frames."""
        return [next(self) for _ in range(count)]

    def __iter__(self) -> Iterator[Frame]:
        return self

    def __next__(self) -> Frame:
        fields: dict[str, str] = {}
        for line in self._lines:
            if not line and "data" in fields:
                return Frame(fields.get("id", ""), fields.get("event", "message"), fields["data"])
            if line:
                name, _, value = line.partition(":")
                assert name not in fields or name == "", f"{name} comes twice in one frame"
                fields[name] = value.removeprefix(" ")
            else:
                fields.clear()
        raise StopIteration


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """Lines end with a line feed here, and with nothing else that Unicode calls a line."""
    left = b""
    for chunk in chunks:
        *whole, left = (left + chunk).split(b"\n")
        for line in whole:
            yield line.decode()


@contextlib.contextmanager
def follow(url: str, timeout: float = 20.0, **headers: str) -> Iterator[Frames]:
    """The frames of a URL; a header's `_` stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with HTTP.stream("GET", url, headers=named, timeout=timeout) as response:
        yield Frames(response)
