"""What a message and a tool's result are made of: text, files and blocks, and for a result any JSON."""

from __future__ import annotations

import asyncio
import hashlib
import json
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from ledger.checks import check_blocks, check_json
from ledger.tables.media import MAX_MEDIA_BYTES
from projector.events import Kind
from projector.formats.shared.blocks import part_data
from projector.formats.shared.history import text_block, text_parts
from projector.formats.shared.media_refs import REFERENCE, Attachment
from projector.formats.shared.payloads import ADDRESSES
from projector.json_text import JsonText, dump, is_json
from projector.message import Block
from stream.checks import check_kind, check_list, check_name, check_text, refusal, shown
from stream.limits import check_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    FindType = Callable[[str], Awaitable[str]]

KINDS: Final = get_args(Kind)
_CONTENT: Final = "text, or a list of texts, Files and Blocks"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """An image or another file that is said: its bytes, its path, or the id of media that the conversation has.

    Of `data`, `path` and `media_id` one is given. `media_type` (`image/png`) must be said with `data`; of a path its name
    tells it, of media the store. `name` is what it is called, of a path its last part. The bytes go to the media store,
    once per content.

        await run.message("user", ["What is on it?", File(path="cat.png")])
    """

    data: bytes | None = None
    path: str | PathLike[str] | None = None
    media_id: str | None = None
    media_type: str | None = None
    name: str | None = None


class Content(NamedTuple):
    """Blocks, and the bytes of the media they name, which are to be kept before them."""

    blocks: tuple[Block, ...]
    media: tuple[Attachment, ...]


class Result(NamedTuple):
    """The parts of a tool's result as JSON text, and the bytes of the media they name."""

    parts: JsonText
    media: tuple[Attachment, ...]


def check_content(what: str, value: object) -> Sequence[str | File | Block]:
    """The pieces of a message; raises `ValueError` for what is none."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bytes | bytearray | memoryview | dict | None):
        raise refusal(what, _CONTENT, value)
    try:
        pieces = check_list(what, value, "texts, Files and Blocks")
    except ValueError:
        raise refusal(what, _CONTENT, value) from None
    for number, piece in enumerate(pieces):
        place = f"{what}[{number}]"
        if isinstance(piece, File):
            _check_file(place, piece)
        elif isinstance(piece, Block):
            _check_block(place, piece)
        elif not isinstance(piece, str):
            raise refusal(place, "text, a File or a Block", piece)
    return pieces


async def read_content(pieces: Sequence[str | File | Block], find_type: FindType) -> Content:
    """The blocks of pieces that were checked. Raises `OSError` for a path that can't be read, `UnknownMedia`."""
    blocks: list[Block] = []
    media: list[Attachment] = []
    for number, piece in enumerate(pieces):
        if isinstance(piece, str):
            block = text_block(piece)
        elif isinstance(piece, Block):
            block = piece
        else:
            media_type, name, reference = await _take(piece, find_type, media)
            block = Block("media", media_type=media_type, name=name, fields={"data": reference})
        blocks.append(replace(block, number=number, sealed=True))
    return Content(tuple(blocks), tuple(media))


def check_result(what: str, value: object) -> Any:
    """What a tool gave: text, a File, parts, or any other JSON; raises `ValueError`, `InvalidJson` for what is none."""
    pieces = [value] if isinstance(value, File) else value
    if isinstance(pieces, list | tuple) and any(isinstance(piece, File) for piece in pieces):
        for number, piece in enumerate(pieces):
            place = f"{what}[{number}]"
            if isinstance(piece, File):
                _check_file(place, piece)
            elif not isinstance(piece, str) and not _is_part(place, piece):
                raise refusal(place, "text, a File, or a part beside a File", piece)
        return tuple(pieces)
    if isinstance(value, str):
        return value
    check_json(what, value)
    if isinstance(value, list | tuple) and value and all(_is_part(f"{what}[{at}]", part) for at, part in enumerate(value)):
        return tuple(value)
    return _Json(as_said(what, value))


async def read_result(given: Any, find_type: FindType) -> Result:
    """The parts of what was checked. Raises `OSError` for a path that can't be read, `UnknownMedia`."""
    if isinstance(given, str):
        return Result(text_parts(given), ())
    if isinstance(given, _Json):
        return Result(f"[{part_data(given.text)}]", ())
    parts: list[JsonText] = []
    media: list[Attachment] = []
    for piece in given:
        part: Mapping[str, Any]
        if isinstance(piece, File):
            media_type, name, reference = await _take(piece, find_type, media)
            part = {"kind": "media", "media_type": media_type, "data": reference} | ({"name": name} if name else {})
        else:
            part = {"kind": "text", "text": piece} if isinstance(piece, str) else piece
        parts.append(dump(part))
    return Result(f"[{','.join(parts)}]", tuple(media))


def check_input(what: str, value: object) -> tuple[JsonText, bool]:
    """The input of a tool as text, and whether that is JSON; a text is what a model wrote of it. Raises `ValueError`."""
    if isinstance(value, str):
        return value, is_json(value)
    if not isinstance(value, dict):
        raise refusal(what, "a dict of arguments, or their text as a model wrote it", value)
    return as_said(what, value), True


def as_said(what: str, value: object) -> JsonText:
    """A plain value as JSON text, all signs as they are and not by escapes. Raises `InvalidJson`."""
    check_json(what, value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Json(NamedTuple):
    text: JsonText


def _check_block(what: str, block: Block) -> None:
    check_blocks(what, [block])
    if block.kind == "tool_result":
        raise ValueError(f"{what} is a tool's result, which is a message of its own: use tool_result")
    if block.kind not in KINDS:
        raise ValueError(f"{what} is of kind {shown(block.kind)}, use one of {', '.join(KINDS)}")
    if (block.status, block.parts, block.approval) != (None, None, None):
        raise ValueError(f"{what} must have no status, parts or approval: they are of results, and of who answers")


def _check_file(what: str, file: File) -> None:
    given = [name for name in ("data", "path", "media_id") if getattr(file, name) is not None]
    if len(given) != 1:
        raise ValueError(f"{what} must have data, path or media_id, one of them, not {' and '.join(given) or 'none'}")
    if file.data is not None:
        check_kind(f"data of {what}", file.data, bytes, "bytes")
        if file.media_type is None:
            raise ValueError(f"media_type of {what} must be said, such as image/png: bytes do not tell it")
    if file.path is not None:
        check_kind(f"path of {what}", file.path, str | PathLike, "a path")
    if file.media_id is not None:
        check_id(f"media_id of {what}", file.media_id)
    if file.media_type is not None and "/" not in check_name(f"media_type of {what}", file.media_type):
        raise refusal(f"media_type of {what}", "such as image/png", file.media_type)
    if file.name is not None:
        check_text(f"name of {what}", file.name)


def _is_part(what: str, value: Any) -> bool:
    """Whether this is a part as our log has them, and no JSON of the tool's own: that would be lost on the way to a model."""
    match value:
        case {"kind": "text"}:
            check_text(f"text of {what}", value.get("text"))
            return True
        case {"kind": "data", "text": str(text), **more}:
            return not more and is_json(text)
        case {"kind": "provider"}:
            return isinstance(value.get("opaque"), dict)
        case {"kind": "media"}:
            return any(isinstance(value.get(name), str) for name in ADDRESSES)
    return False


async def _take(file: File, find_type: FindType, media: list[Attachment]) -> tuple[str, str | None, str]:
    """Media type, name, and what stands for the bytes, which are put among the media."""
    if file.media_id is not None:
        found = await find_type(file.media_id)
        return file.media_type or found, file.name, REFERENCE + file.media_id
    data, media_type, name = file.data or b"", file.media_type or "", file.name
    if file.path is not None:
        data, media_type, name = await asyncio.to_thread(_read, file)
    if len(data) > MAX_MEDIA_BYTES:
        raise ValueError(f"a file of {len(data):,} bytes is too large: at most {MAX_MEDIA_BYTES:,}")
    media_id = hashlib.sha256(data).hexdigest()
    media.append(Attachment(media_id, media_type, data))
    return media_type, name, REFERENCE + media_id


def _read(file: File) -> tuple[bytes, str, str]:
    import mimetypes  # noqa: PLC0415 - few need it

    path = Path(fspath(file.path or ""))
    media_type = file.media_type or mimetypes.guess_type(path.name)[0]
    if media_type is None:
        raise ValueError(f"the name of {path.name!r} does not tell its media_type: say it, such as image/png")
    if path.stat().st_size > MAX_MEDIA_BYTES:
        raise ValueError(f"{path.name!r} has {path.stat().st_size:,} bytes, which is too large: at most {MAX_MEDIA_BYTES:,}")
    return path.read_bytes(), media_type, file.name or path.name
