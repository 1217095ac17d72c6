"""The events of a conversation that another machine serves, as `events --follow --url` prints them."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from ledger.admin.loop import run_in_loop
from ledger.admin.output import leave_pipe, print_json, print_record, print_warning

if TYPE_CHECKING:
    from pathlib import Path


def print_remote(url: str, conversation: str, *, after: int, token_file: Path | None, as_json: bool) -> None:
    """Prints what comes, until Ctrl-C. Raises `ValueError` for a file without a token, and what `follow_remote` raises."""
    headers = {} if token_file is None else {"Authorization": f"Bearer {read_token(token_file)}"}
    place = f"{url.rstrip('/')}/v1/conversations/{quote(conversation, safe='')}/events"
    try:
        run_in_loop(_print, place, after, headers, as_json)
    except BrokenPipeError:
        leave_pipe()


def read_token(path: Path) -> str:
    """The first token of a file; one for `serve --tokens` will do. Raises `ValueError` where there is none."""
    for line in path.read_text(encoding="utf-8-sig", errors="replace").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return line.split()[0]
    raise ValueError(f"{path} holds no token: write it on a line of its own")


async def _print(place: str, after: int, headers: dict[str, str], as_json: bool) -> None:  # noqa: FBT001 - called by `run_in_loop`
    from stream.client import RemoteEvent, follow_remote  # noqa: PLC0415 - an extra that may be missing

    async with aclosing(follow_remote(place, after=after, headers=headers, broken=print_warning)) as events:
        async for event in events:
            kind = event.type if isinstance(event, RemoteEvent) else "snapshot"
            if as_json:
                print_json({"seq": event.seq, "type": kind, "at": None, "at_iso": None} | _as_stored(event.data))
            else:
                print_record(f"{event.seq:>8}  {kind:<20} {event.data.decode()}")


def _as_stored(data: bytes) -> dict[str, Any]:
    """As `events --json` prints a body of this machine; when it was stored is not sent."""
    packed = None
    if data.startswith(b'{"base64":'):
        packed = msgspec.json.decode(data)
    if isinstance(packed, dict) and list(packed) == ["base64"]:
        return {"data_base64": packed["base64"]}
    return {"data": data.decode()}
