"""A small database of fixed ids and times, for tests that look at what a person is shown of it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from projector import events as ev
from projector.json_text import dump, raw
from tests.ledger_commands import record

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from ledger import Ledger
    from stream import NewEvent

BEGIN_MS: Final = 1_764_444_600_000  # 2025-11-29 19:30 UTC
LONG_ID: Final = "customers/0004711/sessions/2025-11-29T19:30:00Z/8d1b2f1c-97be54b4-c2a4f8b0-77aef3a9"
PNG: Final = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
MODEL: Final = "claude-sonnet-4-5"


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ten minutes after the first word, whoever looks at the clock, and however often."""
    clock = SimpleNamespace(time_ns=lambda: (BEGIN_MS + 600_000) * 1_000_000)
    monkeypatch.setattr("stream.clock.time", clock)
    monkeypatch.setattr("ledger.tables.tables._SERVER_NOW", f"SELECT CAST({BEGIN_MS + 600_000} AS bigint)")


async def fill(ledger: Ledger) -> None:
    """Talks with all that a person is shown: tools, a picture, thoughts, forks, a failure, an open run, other writing."""
    media_id = await ledger.add_media("trip", PNG, "image/png")
    await record(ledger, "trip", _events(_trip(media_id)))
    await record(ledger, "plans", _events(_plans()))
    await record(ledger, LONG_ID, _events(_short("s1", "Where is my order?", "It is on its way, and comes on Tuesday.", 7)))
    await record(ledger, "日本語の会話", _events(_short("j1", "東京から京都まで", "新幹線で約2時間15分です。🚄", 8)))
    await record(ledger, "gone", _events(_short("g1", "My number is 4711.", "I shall forget it.", 9)))
    await ledger.describe("trip", title="A trip to Lyon", labels=["work", "travel"])
    await ledger.describe("plans", title="What to do with the old printer in the cellar, and who carries it", archived=False)
    await ledger.erase("gone")
    await ledger.catch_up_all()


def _events(bodies: Iterable[ev.Body]) -> list[NewEvent]:
    return [ev.to_event(body) for body in bodies]


def _at(minute: float) -> int:
    return BEGIN_MS + int(minute * 60_000)


def _run(run_id: str, parent: str | None, minute: float, trigger: str = "submit") -> ev.RunStarted:
    return ev.RunStarted(run_id, parent, trigger, run_id, MODEL, "anthropic", _at(minute))


def _said(run_id: str, n: int, role: Any, minute: float, *blocks: list[ev.Body], is_whole: bool = True) -> list[ev.Body]:
    message_id = f"{run_id}.{n}"
    end = [ev.MessageFinished(message_id, "complete")] if is_whole else []
    return [ev.MessageStarted(run_id, message_id, role, created_at=_at(minute)), *itertools.chain(*blocks), *end]


def _text(message_id: str, block: int, text: str, kind: Any = "text") -> list[ev.Body]:
    return [
        ev.BlockStarted(message_id, block, kind),
        ev.BlockDelta(message_id, block, text),
        ev.BlockSealed(message_id, block, signature="c2lnbmVk" if kind == "reasoning" else None),
    ]


def _call(message_id: str, block: int, name: str, call_id: str, **arguments: Any) -> list[ev.Body]:
    return [
        ev.BlockStarted(message_id, block, "tool_call", name, call_id),
        ev.BlockSealed(message_id, block, input=raw(dump(arguments)), parse="ok"),
    ]


def _result(run_id: str, n: int, call_id: str, minute: float, parts: Any, status: Any = "ok") -> ev.Body:
    return ev.ToolResult(run_id, f"{run_id}.{n}", call_id, status, raw(dump(parts)), _at(minute))


def _short(run_id: str, question: str, answer: str, minute: float) -> list[ev.Body]:
    return [
        _run(run_id, None, minute),
        *_said(run_id, 1, "user", minute, _text(f"{run_id}.1", 0, question)),
        *_said(run_id, 2, "assistant", minute + 0.1, _text(f"{run_id}.2", 0, answer)),
        ev.RunUsage(run_id, f"msg_{run_id}", 412, 38, cached=128),
        ev.RunFinished(run_id, "completed", "end_turn"),
    ]


def _picture(media_id: str) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": f"tailfold:media/{media_id}"}
    return {"type": "image", "source": source}


def _trip(media_id: str) -> list[ev.Body]:
    trains = [{"kind": "text", "text": dump({"trains": [{"train": "TGV 6601", "leaves": "06:58", "arrives": "08:56"}]})}]
    lyon = (
        "The TGV 6601 leaves Paris Gare de Lyon at 06:58 and is in Lyon Part-Dieu at 08:56. Tomorrow will be sunny, with "
        "14 °C at noon.\n\n- **Seat**: coach 4, place 61, beside the window\n- **Price**: 54,00 €\n\nShall I book it?"
    )
    return [
        _run("r1", None, 0),
        ev.MediaAdded(media_id, "image/png", len(PNG)),
        *_said(
            "r1", 1, "user", 0, _text("r1.1", 0, "Which train takes me to Lyon tomorrow, and how is the weather there? ☀️"),
            [ev.BlockStarted("r1.1", 1, "media", media_type="image/png"),
             ev.BlockSealed("r1.1", 1, opaque=raw(dump({"provider": "anthropic", "payload": _picture(media_id)})))],
        ),
        ev.RunStep("r1", 1, "started"),
        *_said(
            "r1", 2, "assistant", 0.05,
            _text("r1.2", 0, "The user wants a train and the weather; two tools can tell.", "reasoning"),
            _text("r1.2", 1, "I look for trains, and ask for the weather."),
            _call("r1.2", 2, "find_trains", "call_1", origin="Paris", destination="Lyon", date="2025-11-30", seats=1),
            _call("r1.2", 3, "get_weather", "call_2", city="Lyon"),
        ),
        ev.RunUsage("r1", "msg_1", 1240, 263, cached=1024, reasoning=48),
        _result("r1", 3, "call_1", 0.1, trains),
        _result("r1", 4, "call_2", 0.12, [{"kind": "text", "text": "the service did not answer within 10 s"}], "error"),
        ev.RunStep("r1", 2, "started"),
        *_said("r1", 5, "assistant", 0.2, _text("r1.5", 0, lyon)),
        ev.RunUsage("r1", "msg_2", 1718, 121, cached=1024),
        ev.RunFinished("r1", "completed", "end_turn"),
        _run("r2", "r1.1", 2, "regenerate"),
        *_said("r2", 1, "assistant", 2.1, _text("r2.1", 0, "There is one each hour from Gare de Lyon.")),
        ev.RunFinished("r2", "completed", "end_turn"),
        _run("r3", "r2.1", 3),
        *_said("r3", 1, "user", 3, _text("r3.1", 0, "Book it.")),
        ev.RunFinished("r3", "failed", error=raw(dump({"type": "overloaded_error", "message": "Overloaded"}))),
        _run("r4", "r3.1", 4),
        *_said("r4", 1, "assistant", 4.1, _text("r4.1", 0, "I book the seat now"), is_whole=False),
    ]  # fmt: skip


def _plans() -> list[ev.Body]:
    return [
        _run("p1", None, 6),
        *_said("p1", 1, "user", 6, _text("p1.1", 0, "Who carries the printer?")),
        *_said("p1", 2, "assistant", 6.1, _text("p1.2", 0, "Nobody has said so yet."), is_whole=False),
        ev.RunFinished("p1", "incomplete", "max_tokens"),
    ]
