"""Every public call checks what it is given before anything is stored, and says which parameter is wrong and what it takes."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import open_ledger
from ledger.errors import LedgerError
from projector import Block, compact, load, open_runs
from stream import Event, InvalidEvent, InvalidId, NewEvent, Producer, Snapshot, StreamError, follow, follow_all, open_store
from stream.snapshots import retain
from tests.odd_values import (
    CIRCLE,
    NAN,
    NO_BLOCKS,
    NO_CHOICE,
    NO_EVENTS,
    NO_FLAG,
    NO_ID,
    NO_JSON,
    NO_LIST,
    NO_NAME,
    NO_NUMBER,
    NO_RUN,
    NO_SELECTIONS,
    NO_TEXT,
    NO_WAIT,
)
from tests.open_talks import open_talk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ledger import Ledger

pytestmark = pytest.mark.anyio

Row = tuple[str, str, list[Any], "Callable[[Ledger, Any], Any]"]


def row(name: str, parameter: str, odd: list[Any], call: Callable[[Ledger, Any], Any]) -> Any:
    return pytest.param(parameter, odd, call, id=f"{name}({parameter})")


async def context_of(ledger: Ledger) -> Any:
    return await ledger.context("c", provider="p")


async def with_context(ledger: Ledger, use: Callable[[Any], Awaitable[Any]]) -> Any:
    return await use(await context_of(ledger))


def snapshot(**changes: Any) -> Snapshot:
    fields: dict[str, Any] = {
        "stream_id": "c", "projector": "p", "version": 1, "last_seq": 3, "created_at": 0, "state": b""
    }  # fmt: skip
    return Snapshot(**fields | changes)


def event(**changes: Any) -> Event:
    fields: dict[str, Any] = {"stream_id": "c", "seq": 1, "type": "t", "data": b"", "at": 0}
    return Event(**fields | changes)


def begin(name: str, ledger: Ledger, odd: Any) -> Any:
    return ledger.begin_run("c", **{name: odd})


def begin_later(name: str, ledger: Ledger, odd: Any) -> Any:
    return ledger.run("c", **{name: odd})


def save(name: str, ledger: Ledger, odd: Any) -> Any:
    return ledger.store.snapshots.save(snapshot(**{name: odd}))


BEGINNING: Final = [
    ("run_id", NO_ID), ("parent", NO_ID), ("format", NO_CHOICE), ("trigger", [None, *NO_NAME]), ("model", NO_NAME),
    ("provider", NO_NAME), ("flush_ms", [None, *NO_NUMBER]), ("on_error", [None, *NO_CHOICE, "completed"]), ("wait", NO_WAIT),
]  # fmt: skip
ROWS: Final = [
    *(row("begin_run", name, odd, partial(begin, name)) for name, odd in BEGINNING),
    *(row("run", name, odd, partial(begin_later, name)) for name, odd in BEGINNING),
    row("begin_run", "conversation", [None, *NO_ID], lambda ledger, x: ledger.begin_run(x)),
    row("fork", "message_id", [None, *NO_ID], lambda ledger, x: ledger.fork("c", x)),
    row("record", "conversation", [None, *NO_ID], lambda ledger, x: ledger.record(x, [NewEvent("t", b"{}")])),
    row("record", "event", NO_EVENTS, lambda ledger, x: ledger.record("c", x)),
    row("record", "expected_seq", NO_NUMBER, lambda ledger, x: ledger.record("c", [NewEvent("t", b"{}")], expected_seq=x)),
    row("take_in", "history", [None, *NO_TEXT], lambda ledger, x: ledger.take_in("c", x)),
    row("import_file", "path", [None, 5, NAN, b"x", ["x"], object()], lambda ledger, x: ledger.import_file(x)),
    row("import_file", "format", [None, *NO_CHOICE], lambda ledger, x: ledger.import_file("x", format=x)),
    row("import_file", "conversation", NO_ID, lambda ledger, x: ledger.import_file("x", into=x)),
    row("select", "message_id", [None, *NO_ID], lambda ledger, x: ledger.select("c", x)),
    row("annotate", "message_id", [None, *NO_ID], lambda ledger, x: ledger.annotate("c", x, {})),
    row("annotate", "patch", [None, 5, "x", ["x"], {1: 2}, *({"a": x} for x in NO_JSON), {"a": CIRCLE}],
        lambda ledger, x: ledger.annotate("c", "r.1", x)),
    row("redact", "message_id", [None, *NO_ID], lambda ledger, x: ledger.redact("c", x)),
    row("redact", "blocks", NO_BLOCKS, lambda ledger, x: ledger.redact("c", "r.1", x)),
    row("redact", "reason", NO_TEXT, lambda ledger, x: ledger.redact("c", "r.1", reason=x)),
    row("describe", "conversation", [None, *NO_ID], lambda ledger, x: ledger.describe(x, title="t")),
    row("describe", "title", NO_TEXT, lambda ledger, x: ledger.describe("c", title=x)),
    row("describe", "metadata", [5, "x", ["x"], {1: 2}, *({"a": x} for x in NO_JSON)],
        lambda ledger, x: ledger.describe("c", metadata=x)),
    row("describe", "labels", [*NO_LIST, [5], [None], ["x", b"y"], ["\ud800"]],
        lambda ledger, x: ledger.describe("c", labels=x)),
    row("describe", "archived", NO_FLAG[1:], lambda ledger, x: ledger.describe("c", title="new", archived=x)),
    row("add_media", "conversation", [None, *NO_ID], lambda ledger, x: ledger.add_media(x, b"x", "image/png")),
    row("add_media", "data", [None, "x", 5, bytearray(b"x"), [1]], lambda ledger, x: ledger.add_media("c", x, "image/png")),
    row("add_media", "media_type", [None, *NO_NAME], lambda ledger, x: ledger.add_media("c", b"x", x)),
    row("media", "media_id", [None, *NO_NAME], lambda ledger, x: ledger.media(x)),
    row("transcript", "branch", [None, *NO_CHOICE], lambda ledger, x: ledger.transcript("c", branch=x)),
    row("transcript", "limit", NO_NUMBER, lambda ledger, x: ledger.transcript("c", limit=x)),
    row("transcript", "before", NO_ID, lambda ledger, x: ledger.transcript("c", before=x)),
    row("transcript", "selections", NO_SELECTIONS, lambda ledger, x: ledger.transcript("c", selections=x)),
    row("tree", "conversation", [None, *NO_ID], lambda ledger, x: ledger.tree(x)),
    row("export", "format", [None, *NO_CHOICE], lambda ledger, x: ledger.export("c", x)),
    row("export", "selections", NO_SELECTIONS, lambda ledger, x: ledger.export("c", "chat", selections=x)),
    row("export", "messages", [*NO_LIST, ["x"], [None]], lambda ledger, x: ledger.export("c", "chat", messages=x)),
    row("context", "provider", [None, *NO_NAME], lambda ledger, x: ledger.context("c", provider=x)),
    row("context", "pipeline", NO_TEXT, lambda ledger, x: ledger.context("c", pipeline=x)),
    row("context", "turn", [-1, 1.5, NAN, "1", b"1", [1], True], lambda ledger, x: ledger.context("c", turn=x)),
    row("context", "run", NO_RUN, lambda ledger, x: ledger.context("c", run=x)),
    row("context", "selections", NO_SELECTIONS, lambda ledger, x: ledger.context("c", selections=x)),
    row("context", "capabilities", [None, *NO_TEXT], lambda ledger, x: ledger.context("c", capabilities=x)),
    row("context", "system_prompt", [None, *NO_TEXT], lambda ledger, x: ledger.context("c", system_prompt=x)),
    row("context", "working_directory", NO_TEXT, lambda ledger, x: ledger.context("c", working_directory=x)),
    row("context", "mode", NO_CHOICE, lambda ledger, x: ledger.context("c", mode=x)),
    row("context", "now", NO_NUMBER, lambda ledger, x: ledger.context("c", now=x)),
    row("context", "used", NO_TEXT, lambda ledger, x: ledger.context("c", used=x)),
    row("context", "display", [5, "ab", ["m"], {1: []}, {"r.1": None}, {"r.1": "x"}, {"r.1": ["x"]}],
        lambda ledger, x: ledger.context("c", display=x)),
    row("expand", "format", NO_CHOICE,
        lambda ledger, x: with_context(ledger, lambda it: ledger.expand(it, "r.1", format=x))),
    row("expand", "context", [None, *NO_TEXT], lambda ledger, x: ledger.expand(x, "r.1")),
    row("expand", "request", [None, 5, b"x", ["x"]], lambda ledger, x: with_context(ledger, lambda it: ledger.expand(it, x))),
    row("expand", "item_range", [5, "ab", (1,), (1, 2, 3), (1, NAN), ("a", "b"), (-1, 2), (True, 2)],
        lambda ledger, x: with_context(ledger, lambda it: ledger.expand(it, "r.1", item_range=x))),
    row("expand", "reason", [None, *NO_TEXT],
        lambda ledger, x: with_context(ledger, lambda it: ledger.expand(it, "r.1", reason=x))),
    row("recover_overflow", "context", [None, *NO_TEXT], lambda ledger, x: ledger.recover_overflow(x, 10)),
    row("recover_overflow", "limit_tokens", [None, *NO_NUMBER],
        lambda ledger, x: with_context(ledger, lambda it: ledger.recover_overflow(it, x))),
    row("begin_send", "context", [None, *NO_TEXT], lambda ledger, x: ledger.begin_send(x)),
    row("begin_send", "session_id", NO_NAME,
        lambda ledger, x: with_context(ledger, lambda it: ledger.begin_send(it, session_id=x))),
    row("begin_send", "expires_at", NO_NUMBER,
        lambda ledger, x: with_context(ledger, lambda it: ledger.begin_send(it, expires_at=x))),
    row("acknowledge", "context", [None, *NO_TEXT], lambda ledger, x: ledger.acknowledge(x)),
    row("acknowledge", "reply_ids", [None, 5, "r.1", b"r.1", [5], {"r.1": 1}],
        lambda ledger, x: with_context(ledger, lambda it: ledger.acknowledge(it, x))),
    row("acknowledge", "run", NO_RUN, lambda ledger, x: with_context(ledger, lambda it: ledger.acknowledge(it, run=x))),
    row("received", "ids", [None, 5, "r.1", b"r.1", [5]],
        lambda ledger, x: with_context(ledger, lambda it: ledger.received(it, x))),
    row("open_runs", "conversation", [None, *NO_ID], lambda ledger, x: ledger.open_runs(x)),
    row("anomalies", "conversation", [None, *NO_ID], lambda ledger, x: ledger.anomalies(x)),
    row("runs", "conversation", NO_ID, lambda ledger, x: ledger.runs(x)),
    row("runs", "status", NO_CHOICE, lambda ledger, x: ledger.runs(status=x)),
    row("runs", "after", ["r", *NO_TEXT], lambda ledger, x: ledger.runs(after=x)),
    row("runs", "limit", NO_NUMBER, lambda ledger, x: ledger.runs(limit=x)),
    row("find_run", "run_id", [None, *NO_ID], lambda ledger, x: ledger.find_run(x)),
    row("conversations", "limit", NO_NUMBER, lambda ledger, x: ledger.conversations(limit=x)),
    row("conversations", "prefix", [None, *NO_TEXT], lambda ledger, x: ledger.conversations(prefix=x)),
    row("conversations", "label", NO_TEXT, lambda ledger, x: ledger.conversations(label=x)),
    row("conversations", "title", NO_TEXT, lambda ledger, x: ledger.conversations(title=x)),
    row("conversations", "after", ["c", *NO_TEXT], lambda ledger, x: ledger.conversations(after=x)),
    row("conversations", "archived", NO_FLAG, lambda ledger, x: ledger.conversations(archived=x)),
    row("recover", "run_id", [None, *NO_ID], lambda ledger, x: ledger.recover("c", x, "commit")),
    row("recover", "action", [None, *NO_CHOICE], lambda ledger, x: ledger.recover("c", "open", x)),
    row("recover", "select", NO_FLAG, lambda ledger, x: ledger.recover("c", "open", "commit", select=x)),
    row("cancel", "run_id", [None, *NO_ID], lambda ledger, x: ledger.cancel("c", x)),
    row("cancel", "by", NO_TEXT, lambda ledger, x: ledger.cancel("c", "open", by=x)),
    row("follow", "stream", [None, *NO_ID], lambda ledger, x: ledger.follow(x)),
    row("follow", "after", [None, *NO_NUMBER], lambda ledger, x: ledger.follow("c", after=x)),
    row("follow", "incarnation", NO_TEXT, lambda ledger, x: ledger.follow("c", incarnation=x)),
    row("project", "projector", [None, *NO_TEXT], lambda ledger, x: ledger.project(x, "c")),
    row("compact", "replay_window", [None, *NO_NUMBER], lambda ledger, x: ledger.compact("c", replay_window=x)),
    row("compact", "dry_run", NO_FLAG, lambda ledger, x: ledger.compact("c", dry_run=x)),
    row("hold", "conversation", NO_ID, lambda ledger, x: ledger.hold(x)),
    row("hold", "through", [None, *NO_NUMBER], lambda ledger, x: ledger.hold("c", through=x)),
    row("erase", "conversation", [None, *NO_ID], lambda ledger, x: ledger.erase(x)),
    row("reconcile", "conversation", NO_ID, lambda ledger, x: ledger.reconcile(x)),
    row("reconcile", "repair", NO_FLAG, lambda ledger, x: ledger.reconcile("c", repair=x)),
    row("backup", "target", [None, *NO_NAME], lambda ledger, x: ledger.backup(x)),
    row("backup", "log_target", NO_NAME, lambda ledger, x: ledger.backup("x", log_target=x)),
    row("statistics", "exact", NO_FLAG, lambda ledger, x: ledger.statistics(exact=x)),
    row("catch_up", "conversation", [None, *NO_ID], lambda ledger, x: ledger.catch_up(x)),
    row("forget", "conversation", [None, *NO_ID], lambda ledger, x: ledger.forget(x)),
    row("open_ledger", "url", [None, *NO_TEXT], lambda _, x: open_ledger(x)),
    row("open_ledger", "log", NO_NAME, lambda _, x: open_ledger("memory:", log=x)),
    row("open_ledger", "projectors", [None, *NO_LIST, ["x"], [None]], lambda _, x: open_ledger("memory:", projectors=x)),
    row("open_ledger", "durability", [None, *NO_CHOICE], lambda _, x: open_ledger("memory:", durability=x)),
    row("open_ledger", "create", NO_FLAG, lambda _, x: open_ledger("memory:", create=x)),
    row("open_ledger", "take_over_log", NO_FLAG, lambda _, x: open_ledger("memory:", take_over_log=x)),
    row("open_ledger", "read_only", NO_FLAG, lambda _, x: open_ledger("memory:", read_only=x)),
    row("open_store", "url", [None, *NO_TEXT], lambda _, x: open_store(x)),
    row("open_store", "durability", [None, *NO_CHOICE], lambda _, x: open_store("memory:", durability=x)),
    row("stream.follow", "store", [None, "chat.db", 5], lambda _, x: follow(x, "c")),
    row("stream.follow_all", "store", [None, "chat.db", 5], lambda _, x: follow_all(x)),
    row("stream.follow", "after", [None, *NO_NUMBER], lambda ledger, x: follow(ledger.store, "c", after=x)),
    row("load", "projector", [None, *NO_TEXT], lambda ledger, x: load(x, ledger.store, ledger.store.snapshots, "c")),
    row("compact", "projectors", [None, *NO_LIST, ["x"], [None]],
        lambda ledger, x: compact(x, ledger.store, ledger.store.snapshots, "c")),
    row("compact", "pins", [5, "x", ["x"], *({"reason": x} for x in NO_NUMBER)],
        lambda ledger, x: compact([open_runs], ledger.store, ledger.store.snapshots, "c", pins=x)),
    row("retain", "keep", [None, 0, *NO_NUMBER], lambda ledger, x: retain(ledger.store.snapshots, "c", "p", keep=x)),
    row("append", "event", NO_EVENTS, lambda ledger, x: ledger.store.append("c", x)),
    row("append", "expected_seq", NO_NUMBER, lambda ledger, x: ledger.store.append("c", [NewEvent("t", b"")], expected_seq=x)),
    row("append", "append id", NO_ID,
        lambda ledger, x: ledger.store.append("c", [NewEvent("t", b"")], expected_seq=0, append_id=x)),
    row("append", "producer", [("p", 0, 0), {"id": "p"}, "p", Producer(5, 0, 0), Producer("p", True, 0), Producer("p", 0, NAN)],  # type: ignore[arg-type]
        lambda ledger, x: ledger.store.append("c", [NewEvent("t", b"")], producer=x)),
    row("adopt", "event", [None, *NO_LIST, [NewEvent("t", b"")], [("c", 1)], ["x"]],
        lambda ledger, x: ledger.store.adopt("new", x, floor=1)),
    row("adopt", "seq", [[event(seq=x)] for x in (1.0, True, "1", NAN)],
        lambda ledger, x: ledger.store.adopt("new", x)),
    row("adopt", "at", [[event(at=x)] for x in (1.0, True, "1", NAN, -1)],
        lambda ledger, x: ledger.store.adopt("new", x)),
    row("adopt", "producer", [None, *NO_LIST, [("p", 0, 0)]],
        lambda ledger, x: ledger.store.adopt("new", [], floor=1, producers=x)),
    row("read", "after", [None, *NO_NUMBER], lambda ledger, x: ledger.store.read("c", after=x)),
    row("read", "limit", [None, *NO_NUMBER], lambda ledger, x: ledger.store.read("c", limit=x)),
    row("wait", "stream", [None, *NO_ID], lambda ledger, x: ledger.store.wait(x, after=0)),
    row("truncate", "through", [None, *NO_NUMBER], lambda ledger, x: ledger.store.truncate("c", through=x)),
    row("delete", "expected_head", NO_NUMBER, lambda ledger, x: ledger.store.delete("c", expected_head=x)),
    row("streams", "prefix", [None, *(x for x in NO_ID if x != "")], lambda ledger, x: ledger.store.streams(prefix=x)),
    *(row("save", name, odd, partial(save, name)) for name, odd in (
        ("projector", [None, *NO_ID]), ("version", [None, *NO_NUMBER]), ("last_seq", [None, *NO_NUMBER]),
        ("created_at", [None, *NO_NUMBER]), ("state", [None, "x", bytearray(b"x"), 5]))),
    row("save", "snapshot", [None, "x", {"stream_id": "c"}], lambda ledger, x: ledger.store.snapshots.save(x)),
    row("snapshots.delete", "last_seq", NO_NUMBER, lambda ledger, x: ledger.store.snapshots.delete("c", "p", x)),
]  # fmt: skip


async def use(made: Any) -> None:
    """Whatever a call gives: awaited, entered, or looked at."""
    if hasattr(made, "__anext__"):
        await anext(made)
    elif hasattr(made, "__aenter__") and not inspect.isawaitable(made):
        async with made:
            pass
    elif inspect.isawaitable(made):
        await made


async def held(ledger: Ledger) -> list[Any]:
    """All that log and ledger hold."""
    streams = [info async for info in ledger.store.streams()]
    rows = [await ledger.tables.database.read(f"SELECT count(*) FROM {name}", ()) for name in ("media", "holds", "labels")]
    return [
        streams,
        [info async for info in ledger.conversations(archived=True)],
        [info async for info in ledger.runs()],
        [await ledger.transcript(info.stream_id, branch="all") for info in streams],
        [await ledger.store.snapshots.list(info.stream_id) for info in streams],
        rows,
    ]


@pytest.fixture
async def ledger(anyio_backend: object) -> AsyncIterator[Ledger]:
    del anyio_backend
    async with open_talk() as opened:
        yield opened


@pytest.mark.parametrize(("parameter", "odd", "call"), ROWS)
async def test_an_odd_value_is_refused_by_the_parameters_name_and_nothing_is_stored(
    ledger: Ledger, parameter: str, odd: list[Any], call: Callable[[Ledger, Any], Any]
) -> None:
    await asyncio.sleep(0)
    before = await held(ledger)
    for value in odd:
        with pytest.raises((ValueError, StreamError, LedgerError)) as refused:
            async with asyncio.timeout(5):
                await use(call(ledger, value))
        said = str(refused.value)
        assert parameter.removesuffix("_id") in said.replace(" id ", "_id ") or parameter in said, (value, said)
        assert len(said) < 400, said[:1000]
    assert await held(ledger) == before
    async with ledger.run("other") as run:
        await run.message("user", "goes on")
    assert [message.text for message in await ledger.transcript("other")] == ["goes on"]


async def test_a_redaction_takes_away_or_is_refused(ledger: Ledger) -> None:
    for blocks in (
        '"x"',
        '["x"]',
        "{}",
        "null",
        "5",
        '[{"text":"x"}]',
        '[{"kind":"text","text":5}]',
        '[{"kind":"text","input":"{"}]',
    ):
        data = f'{{"message_id":"r.1","blocks":{blocks}}}'.encode()
        with pytest.raises(InvalidEvent, match=r"event 1.*message\.redacted") as refused:
            await ledger.record("c", [NewEvent("t", b"{}"), NewEvent("message.redacted", data)])
        assert refused.value.index == 1
    odd = "[removed] \ud800"
    await ledger.redact("c", "r.1", [Block("text", text=odd)])
    assert [message.text for message in await ledger.transcript("c")] == [odd]
    await ledger.redact("c", "r.1", ())
    assert [message.text for message in await ledger.transcript("c")] == [""]
    assert await ledger.anomalies("c") == []


async def test_values_of_free_form_come_back_as_they_were(ledger: Ledger) -> None:
    value = {"big": 2**200, "half": "\ud800", "\udfff": [None, True, 1.5, {"": []}], "nul": "\0"}
    await ledger.describe("c", title="\ud800", metadata={"own": value}, labels=["é"])
    await ledger.annotate("c", "r.1", {"own": value})
    [info] = [info async for info in ledger.conversations()]
    [message] = await ledger.transcript("c")
    assert info.metadata["own"] == message.metadata["own"] == value
    assert (info.title, info.labels) == ("\ud800", ["é"])
    await ledger.record("c", [NewEvent("custom", b'{"n":1e400,"s":"\\ud800"}')])
    assert (await ledger.store.read("c", after=0))[-1].data == b'{"n":1e400,"s":"\\ud800"}'


async def test_ids_say_what_they_are(ledger: Ledger) -> None:
    with pytest.raises(InvalidId, match="conversation id 5 is int, not text"):
        await ledger.erase(5)  # type: ignore[call-overload]
