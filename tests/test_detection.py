"""`--format auto`: the smallest files of each format, in each shape they come in, and all files of the public data."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger.transfer.files import FileError
from projector.formats import READERS, STREAMS, FormatError
from projector.formats.recordings.detection import Detected, detect
from projector.formats.recordings.documents import first_values
from projector.formats.recordings.exchanges import format_of
from projector.formats.recordings.transport import read_all
from tests.corpus import look
from tests.corpus_formats import kind_of, load
from tests.corpus_parts import files_of
from tests.corpus_sources import LOGS
from tests.shared_data import DATA, needs_data, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.transfer.recorded import Recorded
from tests.smallest_files import ANSWER, CALL, EVENTS, HISTORIES, REQUESTS, SAID, SMALLEST, USER, read


@pytest.mark.parametrize(("name", "ending", "content", "is_it"), SMALLEST, ids=[name for name, *_ in SMALLEST])
def test_the_smallest_files_are_what_they_are(name: str, ending: str, content: bytes, is_it: Detected, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.{ending}"
    path.write_bytes(content)
    found = read(path)
    assert found
    if ending == "yaml":
        [one] = found
        assert one.history is not None
        assert [answer.format for answer in one.kept_answers.values()] == [is_it.name]
    elif is_it.kind == "stream":
        assert [(one.history, [answer.format for answer in one.answers]) for one in found] == [(None, [is_it.name])]
    else:
        assert detect(*split(content)) == is_it
        named = read(path, is_it.name)
        assert [one.history for one in found] == [one.history for one in named]
        assert any(one.history is not None and one.history.drafts for one in found)


def split(content: bytes) -> tuple[str, list[str]]:
    first, *others = first_values(content.decode())
    return first, others


def test_every_format_is_in_the_table() -> None:
    assert set(HISTORIES) == set(READERS)
    assert set(EVENTS) == set(STREAMS)
    assert {name for name, (uri, _) in REQUESTS.items() if format_of(uri) == name} == set(REQUESTS)


@pytest.mark.parametrize(
    "odd", ["{}", '{"a":1}', "[1]", '["x"]', "[[]]", "[{}]", '{"messages":[]}', '{"role":"user"}', '{"type":"x"}', "[null]"]
)
def test_what_is_nothing_known_is_refused_and_says_how_to_name_it(odd: str) -> None:
    with pytest.raises(FormatError, match=r"no format is known that begins with|a JSON object was expected"):
        detect(*split(odd.encode()))


def kinds(found: list[Recorded]) -> set[str]:
    """The formats of streams in a file; of histories none, for a file says only what it holds."""
    return {answer.format for one in found for answer in one.answers}


OF_A_SOURCE: Final = {
    "tau-bench": "tau-bench", "swe-agent": "swe-agent", "open-assistant": "trees", "pi-mono": "pi",
    "claude-code-log": "claude-code", "claude-code-stream-json": "claude-code", "agui-benchmark": "agui",
}  # fmt: skip
assert set(OF_A_SOURCE.values()) >= {name for name in LOGS if name != "claude"}


def known_of(path: Path) -> str:
    """What the look at the data calls a file, by the keys of its first event."""
    first: Any = next(value for payload in read_all([read_bytes(path)]) if (value := load(payload.data)) is not None)
    return {"claude": "claude-code"}.get(str(kind := kind_of(first, str(path))), str(kind)).replace("_", "-")


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("source", sorted({*OF_A_SOURCE, "vercel-ai"}))
def test_every_file_of_the_public_data_is_what_it_is(source: str) -> None:
    seen = 0
    for path in files_of(DATA / source):
        if path.name.endswith(".meta.json"):
            continue
        file = look(DATA, path)
        if file.refused or not file.conversations or not read_bytes(path).strip():
            continue
        seen += 1
        wanted = OF_A_SOURCE.get(source) or known_of(path)
        content = read_bytes(path)
        if re.match(rb'\s*\{\s*"error"', content):  # nothing in it tells whose it is
            with pytest.raises(FileError, match="name it with --format"):
                read(path)
            assert kinds(read(path, wanted)) == {wanted}
        elif re.match(rb"\s*[\[{]", content):
            assert (path.name, detect(*split(content)).name) == (path.name, wanted)
        else:
            assert (path.name, kinds(read(path))) == (path.name, {wanted})
    assert seen > 1, source


def test_the_first_message_that_only_one_format_writes_tells() -> None:
    assert detect(json.dumps(USER), [json.dumps(ANSWER), json.dumps(SAID)]).name == "anthropic"
    assert detect(json.dumps({"messages": [USER, ANSWER, SAID]})).name == "anthropic"
    assert detect(json.dumps(USER), [json.dumps({"role": "assistant", "tool_calls": [CALL]})]).name == "chat"


def test_an_export_behind_something_else_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'[{"tailfold":1,"conversation":"c","floor":0,"origin":0,"head":1}]')
    with pytest.raises(FileError, match="its header was expected on the first line"):
        read(path)
