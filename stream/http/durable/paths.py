"""What a stream is called: the path in its URL, and the stream of the store that holds one of its lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from stream.http.problems import Problem
from stream.limits import PROTOCOL_PREFIX

if TYPE_CHECKING:
    from starlette.types import Scope

ROOT: Final = "/v1/stream/"
MAX_PATH_BYTES: Final = 230  # the id in the store takes the rest
_RESERVED: Final = "__ds"  # the protocol keeps it for itself (2.1)
_DELETE: Final = 0x7F
_FIRST_PRINTABLE: Final = 0x20


def path_of(scope: Scope) -> str:
    """The path of the stream that is asked for. Raises `Problem` 400 for one that is not what it seems."""
    return read_path(raw_path(scope).removeprefix(root_of(scope)))


def root_of(scope: Scope) -> str:
    """What stands before it, with the place where this is mounted. Raises `Problem` 400 where it is written in other signs."""
    raw = raw_path(scope)
    mounted = scope.get("root_path", "").rstrip("/").count("/")
    root = "/".join([*raw.split("/")[: 1 + mounted], ""]) + ROOT[1:]
    if not raw.startswith(root):
        raise _refusal(f"stands behind {ROOT}, written so")
    return root


def source_of(scope: Scope, named: str) -> str:
    """The path of another stream of this server, as a header names it: by its whole path, or as behind the root."""
    root = root_of(scope)
    if named.startswith("/") and not named.startswith(root):
        raise _refusal(f"begins with {root} or is what stands behind it")
    if "?" in named:
        raise _refusal("has no query")
    return read_path(named.removeprefix(root))


def raw_path(scope: Scope) -> str:
    """The path as it was sent, nothing decoded."""
    raw = scope.get("raw_path")
    return raw.partition(b"?")[0].decode("latin-1") if raw else quote(scope["path"])


def read_path(raw: str) -> str:
    """The path that is written so in a URL. Raises `Problem` 400; each segment is taken for what it is once decoded."""
    segments = []
    for part in raw.split("/"):
        try:
            segment = unquote_to_bytes(part.encode("latin-1")).decode()
        except UnicodeError:
            raise _refusal("is UTF-8") from None
        if segment in ("", ".", ".."):
            raise _refusal("has no segment that is empty, `.` or `..`")
        if any(sign in "/\\#" or ord(sign) < _FIRST_PRINTABLE or ord(sign) == _DELETE for sign in segment):
            raise _refusal("holds no control characters, `#`, `\\`, and no encoded `/`")
        segments.append(segment)
    if segments[0] == _RESERVED:
        raise _refusal(f"does not begin with {_RESERVED}, which is reserved")
    path = "/".join(segments)
    if len(path.encode()) > MAX_PATH_BYTES:
        raise _refusal(f"has at most {MAX_PATH_BYTES} bytes")
    return path


def stream_id(path: str, number: int) -> str:
    """The stream of the store that holds this life of the path, the first of which is 1."""
    return f"{PROTOCOL_PREFIX}{path}#{number}"


def read_id(stream: str) -> tuple[str, int] | None:
    """Path and number out of the id of a stream of the store; None for that of another kind."""
    path, _, number = stream.removeprefix(PROTOCOL_PREFIX).rpartition("#")
    is_one = stream.startswith(PROTOCOL_PREFIX) and path and number.isascii() and number.isdecimal()
    return (path, int(number)) if is_one else None


def _refusal(what: str) -> Problem:
    return Problem(400, "invalid_path", f"the path of a stream {what}")
