"""Media of Converse: kinds with a format each, bytes in base64 or a place in S3; names of documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from projector.formats.shared.payloads import media_of

if TYPE_CHECKING:
    from projector.message import Block

FORMATS: Final = {
    "image": ("png", "jpeg", "gif", "webp"),
    "document": ("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"),
    "video": ("mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"),
    "audio": (
        "mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "mka", "x-aac", "m4a", "mpeg", "mpga", "pcm", "webm",
    ),
}  # fmt: skip
_OFFICE: Final = "vnd.openxmlformats-officedocument"
_FORMAT_OF: Final = {
    "image/jpg": "jpeg",
    "text/plain": "txt",
    "text/markdown": "md",
    "text/csv": "csv",
    "text/html": "html",
    "application/msword": "doc",
    f"application/{_OFFICE}.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    f"application/{_OFFICE}.spreadsheetml.sheet": "xlsx",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
    "video/x-flv": "flv",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
    "audio/x-wav": "wav",
    "audio/x-m4a": "m4a",
}
_KIND_OF: Final = {"text": "document", "application": "document"}
_STANDARD: Final = str.maketrans("-_", "+/")
"""Google's library writes base64 for addresses; Converse takes the other one."""
_UNNAMED: Final = "document"
_NO_NAME: Final = re.compile(r"[^\w\s()\[\]-]|_", re.ASCII)
_MAX_NAME: Final = 200


def write_media(block: Block) -> dict[str, Any] | None:
    """Media as a block of Converse; None for a type that it does not take, and for an address outside of S3."""
    media = media_of(block)
    kind, form = _form_of(media.media_type or "")
    source: dict[str, Any] | None = None
    if media.data is not None:
        source = {"bytes": media.data.translate(_STANDARD)}
    elif media.url is not None and media.url.startswith("s3://"):
        source = {"s3Location": {"uri": media.url}}
    if source is None or form not in FORMATS.get(kind, ()):
        return None
    named = {"name": media.name or _UNNAMED} if kind == "document" else {}
    return {kind: {"format": form} | named | {"source": source}}


def fit_name(name: str, taken: set[str]) -> str:
    """A name as Converse takes it: letters, digits, single spaces, `-`, `(`, `)`, `[` and `]`; not one that is `taken`."""
    fitting = re.sub(r"\s+", " ", _NO_NAME.sub("-", name)).strip()[:_MAX_NAME] or _UNNAMED
    found, number = fitting, 1
    while found in taken:
        number += 1
        found = f"{fitting[: _MAX_NAME - len(str(number)) - 1]} {number}"
    return found


def _form_of(media_type: str) -> tuple[str, str]:
    """The kind and the format of a media type."""
    kind, _, form = media_type.partition(";")[0].strip().lower().partition("/")
    form = form.rpartition("/")[2]  # some call a format by its media type
    return _KIND_OF.get(kind, kind), _FORMAT_OF.get(f"{kind}/{form}", form)
