"""Files of other programs and providers: which format they have, and the conversations in them."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledger.transfer.adapted import Recording, check_stream, read_streams
from ledger.transfer.archive import read_lines, read_lines_left
from ledger.transfer.cassettes import read_conversations
from ledger.transfer.files import FileError, open_lines, read_whole, telling
from ledger.transfer.formats import AUTO, MESSAGES
from ledger.transfer.recorded import Recorded
from projector.formats import READERS, STREAMS, FormatError
from projector.formats.recordings.cassettes import is_cassette, is_json_cassette
from projector.formats.recordings.detection import TAILFOLD, Detected, detect
from projector.formats.recordings.documents import first_values, is_of_lines, read_document
from projector.formats.recordings.framing import without_half
from projector.formats.recordings.salvage import text_of, whole_text
from projector.formats.recordings.transport import Unwrap, read_all
from projector.formats.shared.history import is_empty
from stream.limits import MAX_ID_BYTES, check_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

    from ledger.transfer.adapted import Skip
    from projector.formats.shared.frames import Payload
    from projector.formats.shared.history import History
    from projector.json_text import JsonText

_CHUNK_BYTES: Final = 64 * 1024
_DIGEST: Final = 12
_ERROR: Final = re.compile(r'\s*\{\s*"(error|[Mm]essage|__type)"\s*:')


def read_file(
    stack: ExitStack, file: IO[bytes], path: Path, format_name: str = AUTO, skip: Skip | None = None
) -> list[Recorded]:
    """The conversations of a file, all of which was looked through; what came of its streams is kept as long as `stack`.

    Raises `FileError` with the place and the way out; what is wrong with a line, a message, a conversation or an exchange
    goes to `skip`, if that is given, and the rest is read.
    """
    with telling(path):
        file.seek(0)
        try:
            return _read(stack, file, path, format_name, skip)
        except FormatError as error:
            raise FileError(f"{path}: {error}") from error
        except RecursionError as error:
            raise FileError(f"{path}: it is nested too deeply to be read") from error


def is_tailfold(file: IO[bytes], path: Path) -> bool:
    """Whether a file is an export of ours. Raises `FileError`."""
    with telling(path):
        file.seek(0)
        return re.match(rb'(\xef\xbb\xbf)?\s*\{\s*"tailfold"', file.read(_CHUNK_BYTES)) is not None


def is_messages(head: bytes) -> bool:
    """Whether a file begins as `export --format tailfold-messages` writes it."""
    return re.match(rb'(\xef\xbb\xbf)?\s*\{\s*"tailfold_messages"', head) is not None


def look_through(path: Path, format_name: str) -> Recording:
    """A recorded stream, played into nothing, so that a wrong one is refused before anything is stored.

    Raises `FileError`. A last event that breaks off is no error: the recording was cut.
    """
    if format_name not in (*STREAMS, AUTO):
        raise FileError(f"{format_name!r} is no format that can be played: use one of {', '.join(STREAMS)}")
    with ExitStack() as stack:
        file = stack.enter_context(open_lines(path))
        if format_name == AUTO:
            found = read_file(stack, file, path)
            if len(found) != 1 or found[0].history is not None or not found[0].answers:
                raise FileError(f"{path}: this is no recorded stream but a history: use `tailfold import`")
            stream = found[0].answers[-1]
            name, checked = stream.format, stream.checked
            if len(found[0].answers) > 1:  # a live run takes the chunks as they are
                checked = check_stream(path, name, _payloads(file, path))
        else:
            try:
                name, checked = format_name, check_stream(path, format_name, _payloads(file, path))
            except FormatError as error:
                raise FileError(f"{path}: {error}") from error

    def read() -> Iterator[Payload]:
        with open_lines(path) as again:
            yield from _payloads(again, path)

    return Recording(name, read, checked.chunk_count, checked.is_torn)


def name_of(base: str, recorded: Sequence[Recorded]) -> list[str]:
    """Ids for the conversations of a file: its name, and where it holds several their own names or numbers."""
    names: list[str] = []
    for number, one in enumerate(recorded, 1):
        if one.kept is not None:
            names.append(check_id("conversation id", one.kept.conversation))
            continue
        name = base if len(recorded) == 1 else f"{base}/{one.name or number}"
        names.append(fit_id(name if name not in names else f"{name}#{number}"))
    return names


def base_of(path: Path, folder: Path | None = None) -> str:
    """What a file is called without what its name says of its format; below the folder that was named, if one was."""
    said = path.name if folder is None else path.relative_to(folder).as_posix()
    said = said.removesuffix(".gz")
    stem = Path(said).stem
    return said[: len(said) - (len(Path(said).name) - len(stem))] if stem else said


def bases_of(paths: Sequence[Path], folder: Path | None = None) -> dict[Path, str]:
    """What each file is called; of several that would be called alike each is called by all of its name."""
    bases = {path: base_of(path, folder) for path in paths}
    alike = Counter((path.parent.resolve(), base) for path, base in bases.items())
    for path, base in bases.items():
        if alike[path.parent.resolve(), base] > 1:
            bases[path] = path.name if folder is None else path.relative_to(folder).as_posix()
    return bases


def fit_id(name: str) -> str:
    """The name as an id: where it is no text, or too long, it is cut and told apart by a digest."""
    clean = name.encode("utf-8", "replace").replace(b"\0", b"?")
    if clean.decode() == name and 0 < len(clean) <= MAX_ID_BYTES:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{clean[: MAX_ID_BYTES - _DIGEST - 1].decode(errors='ignore')}-{digest}"


def _read(stack: ExitStack, file: IO[bytes], path: Path, format_name: str, skip: Skip | None) -> list[Recorded]:
    head = file.read(_CHUNK_BYTES)
    body = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    if is_cassette(head, path.name):
        return read_conversations(stack, path, head + read_whole(file, path), skip)
    if body and body[:1] not in (b"{", b"["):
        first = _first_payload(head, file)
        found = _choose(format_name, [first.data], first.place)
        if found.name not in STREAMS:
            raise FormatError(f"{first.place}: a JSON document of the format {found.name} was expected, and this is a stream")
        return [_streamed(stack, path, found.name, file, skip)]
    text = _text(head + read_whole(file, path), skip)
    if is_json_cassette(text):
        return read_conversations(stack, path, text.encode(), skip)
    if format_name in (AUTO, MESSAGES) and (format_name == MESSAGES or is_messages(body)):
        return [Recorded(kept=kept) for kept in (read_lines(text) if skip is None else read_lines_left(text, skip))]
    return _read_document(stack, file, path, text, format_name, skip)


def _read_document(
    stack: ExitStack, file: IO[bytes], path: Path, text: str, format_name: str, skip: Skip | None
) -> list[Recorded]:
    """A JSON document, or lines that are each one."""
    torn: list[FormatError] = []
    may_be_cut = skip is not None or text.lstrip("\ufeff \t\r\n").startswith("[")  # the list of a stream breaks off anywhere
    whole = whole_text(text, torn.append) if may_be_cut else text
    place = "line 1" if is_of_lines(whole) else "the document"
    found = _choose(format_name, first_values(whole), place)
    if found.name == TAILFOLD:
        raise FormatError("this is an export of Tailfold behind something else: its header was expected on the first line")
    if found.kind == "stream":
        return [_streamed(stack, path, found.name, file, skip)]
    if skip is not None:
        text = whole
        for error in torn:
            skip(error)
    try:
        return [Recorded(history) for history in _histories(text, found.name, skip)]
    except FormatError as error:
        if format_name != AUTO:
            raise
        raise FormatError(f"{error} (it looks like {found.name}; if it is something else, name it with --format)") from error


def _histories(text: str, name: str, skip: Skip | None) -> list[History]:
    histories = list(read_document(text, name, skip))
    if all(is_empty(draft) for history in histories for draft in history.drafts):
        raise FormatError(f"the document holds no message of the format {name}")
    return histories


def _choose(format_name: str, values: Sequence[JsonText], place: str) -> Detected:
    """What the file is; a format that was named counts, and what the file looks like tells stream from history."""
    if format_name == AUTO:
        return detect(values[0], values[1:], place=place)
    try:
        looks = detect(values[0], values[1:])
    except FormatError:  # an error alone is what was answered, and nothing tells by whom
        looks = Detected("stream" if _ERROR.match(values[0]) else "history", format_name)
    if looks.kind == "stream" and format_name in STREAMS:
        return Detected("stream", format_name)
    return Detected("history" if format_name in READERS else "stream", format_name)


def _streamed(stack: ExitStack, path: Path, name: str, file: IO[bytes], skip: Skip | None) -> Recorded:
    streams = read_streams(path, name, _payloads(file, path), skip=skip)
    losses = tuple(loss for stream in streams for loss in stream.losses)
    return Recorded(answers=tuple(stack.enter_context(closing(stream)) for stream in streams), losses=losses)


def _payloads(file: IO[bytes], path: Path) -> Iterator[Payload]:
    """What a recording carries."""
    with telling(path):
        file.seek(0)
        yield from read_all(iter(lambda: file.read(_CHUNK_BYTES), b""))


def _first_payload(head: bytes, file: IO[bytes]) -> Payload:
    reader = Unwrap()
    chunk = head
    while chunk:
        for payload in reader.feed(chunk):
            return payload
        chunk = file.read(_CHUNK_BYTES)
    for payload in reader.end():
        return payload
    raise FormatError("the file holds no event")


def _text(data: bytes, skip: Skip | None) -> str:
    data = without_half(data)  # a recording may break off inside a character
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if skip is not None:
            return text_of(data, skip)
        number = data.count(b"\n", 0, error.start) + 1
        raise FormatError(f"line {number}: UTF-8 text was expected ({error.reason} at byte {error.start})") from error
