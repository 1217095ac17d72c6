"""What was accepted can be exported in every format, or a named loss says what not: whatever stands in values of free form."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest

from projector import Block, Message
from projector.formats import STREAM_WRITERS, WRITERS, write_stream
from tests.fork_server import COMMANDS
from tests.ledger_commands import fill
from tests.test_commands import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from ledger import Ledger
    from projector.events import Role

SHAPES: Final = (
    "null", "5", "-1.5", "1e400", "true", '"x"', '""', '"\\ud800"', "[]", "[5]", "[null]", '["x"]', "[[]]", "[{}]", "{}",
    '{"a":1}', '{"type":5}', '{"type":"text","text":5}', '{"item":5}', '{"item":[]}', '{"part":5}', '{"content":[5]}',
    '{"source":"x"}',
    '{"id":[],"summary":5}', '[{"kind":5}]', '[{"kind":"text","text":5}]', '[{"kind":"media","opaque":5}]',
    '{"role":5,"content":{}}',
)  # fmt: skip
MAKERS: Final = ("anthropic", "openai", "chat", "ai-sdk", "ag-ui", "langchain", "google", "bedrock", "pydantic-ai", "nobody")
KINDS: Final[tuple[Any, ...]] = (
    "text", "reasoning", "redacted_reasoning", "tool_call", "server_tool_call", "server_tool_result", "media", "source",
    "refusal", "compaction", "data", "provider", "tool_result", "of another time",
)  # fmt: skip
CALL: Final = Block("tool_call", 0, "{}", sealed=True, name="f", tool_call_id="t")


def path(block: Block, **metadata: str) -> list[Message]:
    """A talk in which an odd block stands among good ones."""
    role: Role = "tool" if block.kind == "tool_result" else "assistant"
    said: list[tuple[Role, tuple[Block, ...]]] = [
        ("user", (Block("text", 0, "a question", sealed=True),)),
        ("assistant", (Block("text", 0, "an answer", sealed=True), CALL)),
        (role, (block,)),
        ("user", (Block("text", 0, "the last word", sealed=True),)),
    ]
    return [
        Message(f"r.{number}", None, "r", role, "complete", blocks, 0, number, metadata_text=metadata)
        for number, (role, blocks) in enumerate(said, 1)
    ]


def write_all(messages: list[Message]) -> dict[str, Any]:
    """What each format makes of them; that it can be written is the claim."""
    written: dict[str, Any] = {name: write(messages) for name, write in WRITERS.items()}
    written |= {name: write_stream(messages, name) for name in STREAM_WRITERS}
    for export in written.values():
        json.dumps(export.payload, allow_nan=False)
    for name in WRITERS if not messages[0].metadata_text else ():  # metadata of a format's own name may say it otherwise
        assert "the last word" in json.dumps(written[name].payload), name
    return written


@pytest.mark.heavy
@pytest.mark.parametrize("maker", MAKERS)
def test_payloads_of_any_shape_bar_no_export(maker: str) -> None:
    for shape in SHAPES:
        for kind in KINDS:
            odd = Block(kind, 0, "said", sealed=True, name="n", tool_call_id="t", parts="[]" if kind == "tool_result" else None)
            for opaque in (f'{{"provider":"{maker}","payload":{shape}}}', shape):
                write_all(path(Block(**{name: getattr(odd, name) for name in odd.__struct_fields__} | {"opaque": opaque})))


@pytest.mark.parametrize("shape", SHAPES)
def test_citations_inputs_parts_and_metadata_of_any_shape_bar_no_export(shape: str) -> None:
    write_all(path(Block("text", 0, "said", sealed=True, citations=(shape, '{"title":"good"}'))))
    for kind in ("tool_call", "server_tool_call"):
        write_all(path(Block(kind, 0, "", sealed=True, name="n", tool_call_id="u", input_text=shape)))
        write_all(path(Block(kind, 0, shape[:-1], sealed=True, name="n", tool_call_id="u")))
    names = dict.fromkeys(
        ("anthropic", "chat", "responses", "ag-ui", "ai-sdk", "langchain", "pydantic-ai", "openai", "x"), shape
    )
    write_all(path(Block("text", 0, "said", sealed=True), **names))
    for name, export in write_all(
        path(Block("tool_result", 0, sealed=True, tool_call_id="t", status="ok", parts=shape))
    ).items():
        if not shape.startswith("[") and name in WRITERS:
            assert any("no part of a result" in loss.what for loss in export.losses), name


def test_what_a_result_says_in_another_shape_is_sent_as_its_json() -> None:
    odd = Block("tool_result", 0, sealed=True, tool_call_id="t", status="ok", parts='{"temperature": 20}')
    for name, export in write_all(path(odd)).items():
        if name in WRITERS:
            assert "temperature" in json.dumps(export.payload), name
            assert [(loss.what, loss.message_id, loss.block) for loss in export.losses if "part" in loss.what] == [
                ("what is no part of a result is sent as the text of its JSON", "r.3", 0)
            ], name


def test_only_what_is_odd_is_left_out_and_it_is_named() -> None:
    """One payload of several has a form that nobody writes: the others go out, and the loss names the place."""
    good = '{"provider":"ai-sdk","payload":{"type":"data-x","data":1}}'
    odd = '{"provider":"ai-sdk","payload":5}'
    blocks = tuple(Block("data", number, sealed=True, opaque=odd if number == 3 else good) for number in range(6))
    messages = path(CALL)
    messages[2] = Message("r.3", None, "r", "assistant", "complete", blocks, 0, 3)
    export = WRITERS["ai-sdk"](messages)
    assert json.dumps(export.payload).count("data-x") == 5
    assert [(loss.message_id, loss.block) for loss in export.losses if "another form" in loss.what] == [("r.3", 3)]


def test_a_path_of_good_forms_loses_nothing_for_its_form() -> None:
    for name, export in write_all(
        path(Block("tool_result", 0, sealed=True, tool_call_id="t", status="ok", parts="[]"))
    ).items():
        assert not [loss for loss in export.losses if "form" in loss.what or "part" in loss.what], name


# the command


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


async def three(ledger: Ledger) -> None:
    for name in ("a", "bad", "z"):
        async with ledger.run(name, run_id=f"r{name}") as run:
            await run.message("assistant", f"said in {name}")


@pytest.mark.parametrize("form", ["chat", "ai-sdk-stream", "tailfold-messages"])
def test_one_conversation_that_is_damaged_bars_no_other(shell: Shell, tmp_path: Path, form: str) -> None:
    fill(shell, three)
    with closing(sqlite3.connect(shell.data)) as raw, raw:
        raw.execute("UPDATE messages SET row_body = CAST('{' AS BLOB) WHERE id = 'rbad.1'")
    target = tmp_path / "all.jsonl"
    words = shell.command("export", "--all", "--format", form, "-o", str(target))[5:]
    done = COMMANDS.run(*words)
    assert done.returncode == 1, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"conversation 'bad' is not in the export" in done.stderr
    told = target.read_text(encoding="utf-8")
    assert "said in a" in told
    assert "said in z" in told
    assert "said in bad" not in told
    if form == "tailfold-messages":
        other = Shell(tmp_path / "other")
        (tmp_path / "other").mkdir()
        other.run("import", str(target))
        assert "said in z" in other.run("show", "z")
