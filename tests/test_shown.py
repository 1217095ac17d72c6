"""What commands say of a conversation: whole to a program, in words to a person, in any writing, and nothing else anywhere."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len
from structlog.testing import capture_logs

from ledger import open_ledger, standard_output
from ledger.admin.json_shapes import iso
from ledger.admin.messages_in_words import MOST_LINES, Told, brief, describe
from ledger.admin.tables import Rows, print_rows
from ledger.admin.wrapping import wrapped
from ledger.tables.counts import count
from projector import Block, Message
from projector import events as ev
from projector.json_text import decode, dump, readable
from tests import fixed_talks
from tests.ledger_commands import record, turns
from tests.on_screen import shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.on_screen import Shown


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the fixed talks."""
    made = tmp_path_factory.mktemp("talks")

    async def main() -> None:
        async with open_ledger(str(made / "tailfold.db"), durability="normal") as ledger:
            await fixed_talks.fill(ledger)

    with capture_logs():
        asyncio.run(main())
    return made


@pytest.fixture
def say(talks: Path, tmp_path: Path) -> Callable[..., Shown]:
    """Runs a command in a copy of it."""
    shutil.copy(talks / "tailfold.db", tmp_path / "tailfold.db")
    return lambda line, **how: shown(f"tailfold {line}", tmp_path, **how)


def read(say: Callable[..., Shown], line: str) -> Any:
    told = say(f"{line} --json")
    assert (told.code, told.err) == (0, ""), told
    return json.loads(told.out)


# for programs


def test_the_same_thing_has_the_same_shape_wherever_it_is_said(say: Callable[..., Shown]) -> None:
    [trip] = [one for one in read(say, "conversations")["conversations"] if one["conversation"] == "trip"]
    assert read(say, "describe trip --title 'A trip to Lyon'").keys() == trip.keys()
    run = read(say, "runs trip --status streaming")["runs"][0]
    assert run.keys() == read(say, "recover r4 --action commit").keys()
    shown_messages = read(say, "show trip")["messages"]
    assert [message.keys() for message in read(say, "context trip")["messages"]] == [one.keys() for one in shown_messages]


def test_every_time_in_ms_has_the_same_in_iso_beside_it(say: Callable[..., Shown]) -> None:
    def times(value: Any) -> list[tuple[Any, Any]]:
        if isinstance(value, list):
            return [pair for item in value for pair in times(item)]
        if not isinstance(value, dict):
            return []
        own = [(at, value[f"{name}_iso"]) for name, at in value.items() if name == "at" or name.endswith("_at")]
        return own + [pair for item in value.values() for pair in times(item)]

    asked = ("conversations", "runs", "show trip", "show gone", "events trip", "stats", "stats trip", "context trip")
    for line in asked:
        found = [pair for row in say(f"{line} --json").out.splitlines() for pair in times(json.loads(row))]
        assert found, line
        assert [at_iso for _, at_iso in found] == [None if at is None else iso(at) for at, _ in found], line
    assert iso(fixed_talks.BEGIN_MS) == "2025-11-29T19:30:00.000Z"
    assert iso(10**18) is None


def test_other_writing_is_shown_as_it_is_to_people_and_programs(say: Callable[..., Shown]) -> None:
    whole = "新幹線で約2時間15分です。🚄"
    for line in (
        "show 日本語の会話", "show 日本語の会話 --json", "events 日本語の会話", "context 日本語の会話 --format chat",
        "export 日本語の会話 --format chat",
        "sql 'SELECT body FROM messages'", "sql 'SELECT body FROM messages' --json", "tree 日本語の会話",
    ):  # fmt: skip
        assert whole in say(line).out, line
        assert "\\u" not in say(line).out, line
    assert "日本語の会話" in say("conversations --json").out


def test_json_stays_json_where_there_are_no_signs_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of another encoding, and halves of a sign."""
    line = readable({"a": "é🚄", "half": "\ud83d"})
    assert json.loads(line) == {"a": "é🚄", "half": "\ud83d"}
    assert line.encode()
    monkeypatch.setattr(standard_output, "sys", SimpleNamespace(stdout=io.TextIOWrapper(io.BytesIO(), encoding="latin-1")))
    assert standard_output.writable_json('{"a":"é"}') == '{"a":"é"}'
    narrow = standard_output.writable_json(line)
    assert narrow.isascii()
    assert json.loads(narrow) == json.loads(line)


@pytest.mark.parametrize(("encoding", "line"), [("ascii", "------"), ("utf-8", "──────")])
def test_a_drawing_is_made_of_signs_that_there_are(monkeypatch: pytest.MonkeyPatch, encoding: str, line: str) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding, write_through=True))
    print_rows(Rows("", ("column",), [["cell"]]))
    assert written.getvalue().decode() == f"column\n{line}\ncell\n"
    assert standard_output.drawn("●", "*") == ("*" if encoding == "ascii" else "●")


# for people


def message(*blocks: Block, **fields: Any) -> Message:
    return Message("r1.1", None, "r1", "assistant", "complete", blocks, fixed_talks.BEGIN_MS, 1, **fields)


def told(*blocks: Block, width: int | None = None) -> str:
    one = message(*blocks)
    return describe(one, Told.of([one], {}, width)).plain


def test_a_transcript_has_times_and_models_and_tools_in_words(say: Callable[..., Shown]) -> None:
    said = re.sub(r"\x1b\[\d+m", "", say("show trip --branch all", columns=80).out)
    assert "assistant  r1.2  2025-11-29 19:30:03  claude-sonnet-4-5\n" in said
    assert "→ find_trains(origin: Paris, destination: Lyon, date: 2025-11-30, seats: 1)" in said
    assert "← get_weather: error" in said
    assert "- train: TGV 6601\n" in said
    assert '{"' not in said


@pytest.mark.parametrize(
    ("block", "lines"),
    [
        (Block("tool_call", name="t", sealed=True, input_text='{"q":"a\\nb"}'), ["→ t", "    q:", "      a", "      b"]),
        (Block("tool_call", name="t", sealed=True, input_text="{}"), ["→ t()"]),
        (Block("tool_call", name="t", text='{"q":"a'), ["→ t  (not whole)", '    {"q":"a']),
        (Block("tool_call", name="t", text="{q}", sealed=True, parse="bad"), ["→ t  (its input is no JSON)", "    {q}"]),
        (Block("tool_result", tool_call_id="c", status="denied", parts="[]"), ["← c: denied"]),
        (Block("tool_result", tool_call_id="c", parts='[{"kind":"text","text":"[1,{}]"}]'), ["← c", "    - 1", "    - {}"]),
        (Block("tool_result", tool_call_id="c", parts='"plain\\ntext"'), ["← c", "    plain", "    text"]),
        (Block("media", media_type="image/png", opaque='{"media_id":"ab12"}'), ["[image/png] media ab12"]),
        (Block("media", media_type="image/png", opaque='{"url":"https://x.example/a.png"}'), ["[image/png] https://x.example/a.png"]),
        (Block("text", text="x", citations=('{"source":{"title":"T","url":"u"}}',)), ["x", "  source: T, u"]),
        (Block("refusal", text="No."), ["(refuses) No."]),
        (Block("redacted_reasoning"), ["(thinks) nothing that can be read"]),
        (Block("tool_call", input_text="1", sealed=True, approval="{}"), ["→ a tool(1)", "    leave to run it: not given yet"]),
    ],
)  # fmt: skip
def test_each_kind_of_block_is_shown_in_words(block: Block, lines: list[str]) -> None:
    assert told(block).splitlines()[1:] == ["  " + line for line in lines]


def test_a_long_result_is_cut_on_a_terminal_and_whole_in_a_pipe() -> None:
    long = Block("tool_result", tool_call_id="c", parts=dump([{"kind": "text", "text": "\n".join(map(str, range(1000)))}]))
    assert f"… and {1000 - MOST_LINES:,} more lines: --json has them all" in told(long, width=80)
    assert "\n      999\n" in told(long)


def test_a_deep_or_odd_result_is_shown_all_the_same() -> None:
    deep = "[" * 200 + "]" * 200
    assert "[[[[" in told(Block("tool_result", tool_call_id="c", parts=deep))
    for odd in ("null", "1e400", '{"":{"":{}}}', '[[],[[]],{"a":[]}]', '["\\u001b[31m"]'):
        said = told(Block("tool_result", tool_call_id="c", parts=odd))
        assert "\x1b" not in said


def test_one_line_says_in_short_what_a_message_says() -> None:
    assert brief(message(Block("text", text="a  b\nc")), 60) == "a b c"
    assert brief(message(Block("tool_call", name="t")), 60) == "→ t"
    assert brief(message(Block("tool_result", status="error", parts='["no"]')), 60) == "← error: no"
    assert brief(message(Block("text", text="x" * 100)), 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 8, ["one two", "three"]),
        ("- one two three", 9, ["- one two", "  three"]),
        ("12. one two", 8, ["12. one", "    two"]),
        ("    code is kept", 12, ["    code is", "    kept"]),
        ("https://example.com/long", 10, ["https://example.com/long"]),
        ("see https://example.com/long now", 10, ["see", "https://example.com/long", "now"]),
        ("東京から京都まで", 8, ["東京から", "京都まで"]),
        ("a\n\nb", 10, ["a", "", "b"]),
        ("", 10, [""]),
    ],
)
def test_text_is_broken_between_words_and_nothing_is_cut(text: str, width: int, lines: list[str]) -> None:
    assert wrapped(text, width) == lines
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_an_id_is_whole_on_the_narrowest_terminal(say: Callable[..., Shown]) -> None:
    for line in (
        "conversations",
        "runs",
        f"show {fixed_talks.LONG_ID}",
        f"tree {fixed_talks.LONG_ID}",
        "compact --all --dry-run",
    ):
        for columns in (20, 60, 99, 100, 120):
            if not line.startswith("show"):
                assert fixed_talks.LONG_ID in say(line, columns=columns).out, (line, columns)
    lines = say("runs plans", columns=100).out.splitlines()
    assert max(map(cell_len, lines)) <= 100


# what there is


def test_an_erased_conversation_looks_erased_wherever_it_is_looked_at(say: Callable[..., Shown]) -> None:
    for line in ("conversations", "show gone", "tree gone", "runs gone", "stats gone"):
        assert "2 messages, 1 run, 13 events gone" in say(line).out, line
    for line in ("show gone", "stats gone"):
        assert read(say, line)["erased"].items() >= {"messages": 2, "runs": 1, "events": 13}.items()
    assert read(say, "show trip")["erased"] is None


def test_stats_count_what_a_user_has(say: Callable[..., Shown]) -> None:
    of_all, of_trip, of_gone = (read(say, line) for line in ("stats", "stats trip", "stats gone"))
    names = (
        "messages",
        "runs",
        "open_runs",
        "media",
        "media_bytes",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "reasoning_tokens",
    )
    assert [of_all[name] for name in ("conversations", "archived", "erased")] == [5, 0, 1]
    assert [of_all[name] for name in names] == [13, 7, 1, 1, len(fixed_talks.PNG), 3782, 460, 2304, 48]
    assert [of_trip[name] for name in names] == [7, 4, 1, 1, len(fixed_talks.PNG), 2958, 384, 2048, 48]
    assert [of_gone[name] for name in names] == [0] * len(names)
    assert "input tokens   3,782 (2,304 of them cached)" in say("stats").out


@pytest.mark.anyio
async def test_tokens_of_many_runs_are_summed_over_pages_and_places(tmp_path: Path) -> None:
    async with open_ledger(str(tmp_path / "many.db"), durability="normal") as ledger:
        for name in ("a", "b"):
            await record(ledger, name, [*turns(700), ev.to_event(ev.RunUsage("q699", "q", 7, 1))])
        await ledger.catch_up_all()
        await ledger.compact("a")
        assert (await count(ledger.tables)).input_tokens == 14
        assert (await count(ledger.tables, "a")).input_tokens == 7
        assert (await count(ledger.tables, "nobody")).runs == 0


def test_a_terminal_is_shown_a_page_and_told_how_to_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_ledger(str(tmp_path / "tailfold.db"), durability="normal") as ledger:
            for number in range(51):
                await record(ledger, f"c{number}", turns(1))

    with capture_logs():
        asyncio.run(main())
    page = shown("tailfold conversations", tmp_path, columns=120).out
    found = page.count("\nc")
    assert found == 50
    how = page.strip().splitlines()[-1]
    assert how.startswith("there are more: add --after ")
    rest = shown(f"tailfold conversations {how.removeprefix('there are more: add ')}", tmp_path, columns=120).out
    assert rest.count("\nc") == 1
    assert "there are more" not in rest
    assert shown("tailfold conversations", tmp_path).out.count("\nc") == 51


def test_a_terminal_is_shown_a_page_of_runs_and_told_how_to_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_ledger(str(tmp_path / "tailfold.db"), durability="normal") as ledger:
            for name in ("c1", "c2"):
                await record(ledger, name, turns(26))

    with capture_logs():
        asyncio.run(main())
    page = shown("tailfold runs", tmp_path, columns=120).out
    assert page.count("\nc") == 50
    how = page.strip().splitlines()[-1]
    assert how.startswith("there are more: add --after ")
    rest = shown(f"tailfold runs {how.removeprefix('there are more: add ')}", tmp_path, columns=120).out
    assert rest.count("\nc") == 2
    assert "there are more" not in rest
    assert shown("tailfold runs", tmp_path).out.count("\nc") == 52


# what is written


def test_nothing_is_written_where_nothing_was_asked_for(talks: Path, tmp_path: Path) -> None:
    """Neither by commands that can't be done, nor by those that only look."""
    bad = ("import no.json", "play no.sse --conversation c", "serve --tokens no.txt", "show c", "backup copy.db", "ls",
           "history list", "history maxctx x", "export c", "--version", "-h", "sql 'SELECT 1'", "restore no.db")  # fmt: skip
    for line in bad:
        shown(f"tailfold {line}", tmp_path)
        assert list(tmp_path.iterdir()) == [], line
    shutil.copy(talks / "tailfold.db", tmp_path / "tailfold.db")
    for line in ("conversations", "runs", "show trip", "tree trip", "events trip", "stats", "context trip", "sql 'SELECT 1'",
                 "snapshot trip", "verify", "reconcile", "export trip", "history list", "show nobody"):  # fmt: skip
        shown(f"tailfold {line}", tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["tailfold.db"], line


def test_a_plugin_that_is_loaded_leaves_nothing_compiled(tmp_path: Path) -> None:
    (tmp_path / "plugin_history_x.py").write_text(
        "NAME = 'x'\n\ndef process(history, session, model_cfg):\n    return list(history)\n"
    )
    told = shown("tailfold history chain-add plugin_history_x", tmp_path)
    assert told.code == 0, told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plugin_history_x.py", "plugins-enabled.json"]
    assert decode((tmp_path / "plugins-enabled.json").read_text())
