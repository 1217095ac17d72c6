"""How a run is begun: three calls with the same options, each to be awaited, or entered to end the run as well."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger import Ledger, open_ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ledger import Run, RunInfo

pytestmark = pytest.mark.anyio

OPTIONS: Final[dict[str, Any]] = {
    "run_id": "r",
    "trigger": "regenerate",
    "model": "m",
    "provider": "p",
    "flush_ms": 0,
    "on_error": "incomplete",
}
WAYS: Final = ("begin_run", "run", "fork")


@pytest.fixture
async def ledger(anyio_backend: object) -> AsyncIterator[Ledger]:
    del anyio_backend
    async with open_ledger("memory:") as made:
        async with made.run("c", run_id="first") as run:
            await run.message("user", "first")
        async with made.run("c", run_id="second") as run:
            await run.message("assistant", "second")
        yield made


def call(ledger: Ledger, way: str, **options: Any) -> Any:
    """A run behind the first message."""
    if way == "fork":
        return ledger.fork("c", "first.1", **options)
    begin: Callable[..., Any] = getattr(ledger, way)
    return begin("c", parent="first.1", **options)


async def told(ledger: Ledger, run_id: str) -> RunInfo:
    [found] = [run async for run in ledger.runs("c") if run.run_id == run_id]
    return found


def test_every_way_to_begin_has_the_same_options() -> None:
    def options(way: str) -> list[tuple[str, object, object]]:
        parameters = list(inspect.signature(getattr(Ledger, way)).parameters.values())
        assert not [each for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]
        return [(each.name, each.annotation, each.default) for each in parameters if each.kind is each.KEYWORD_ONLY]

    assert options("run") == options("begin_run")
    assert options("fork") == [option for option in options("begin_run") if option[0] not in ("parent", "wait")]


@pytest.mark.parametrize("way", WAYS)
async def test_each_option_arrives_where_it_belongs(ledger: Ledger, way: str) -> None:
    run: Run = await call(ledger, way, **OPTIONS)
    begun = await told(ledger, "r")
    assert (begun.run_id, begun.trigger, begun.model, begun.provider) == ("r", "regenerate", "m", "p")
    assert (begun.parent_message_id, begun.status) == ("first.1", "created")
    await run.text("a")
    await run.text("b")
    await run.finish()
    events = [json.loads(event.data) for event in await ledger.store.read("c") if event.type == "block.delta"]
    assert [body["text"] for body in events if body["message_id"] == "r.1"] == ["a", "b"]  # none has waited to be joined
    async with await call(ledger, way, run_id="fed", format="chat") as fed:
        await fed.feed({"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]})
    assert (await told(ledger, "fed")).provider == "chat"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("option", "value", "why"), [("format", "odd", "no stream format"), ("flush_ms", -1, "flush_ms must be a whole number")]
)
async def test_an_option_that_makes_no_sense_is_refused(ledger: Ledger, way: str, option: str, value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        await call(ledger, way, **{option: value})
    assert [run.run_id async for run in ledger.runs("c")] == ["first", "second"]


@pytest.mark.parametrize("way", WAYS)
def test_a_misspelt_option_is_refused_at_the_call(way: str) -> None:
    with pytest.raises(TypeError, match="modle"):
        call(Ledger.__new__(Ledger), way, modle="m")


@pytest.mark.parametrize("way", ["run", "fork"])
async def test_what_is_entered_is_ended_and_what_is_awaited_is_not(ledger: Ledger, way: str) -> None:
    async with call(ledger, way, run_id="entered") as run:
        await run.message("assistant", "x")
    assert (await told(ledger, "entered")).status == "committed"
    with pytest.raises(LookupError):
        async with call(ledger, way, run_id="failed"):
            raise LookupError
    assert (await told(ledger, "failed")).status == "failed"
    awaited: Run = await call(ledger, way, run_id="awaited")
    assert (await told(ledger, "awaited")).status == "created"
    async with awaited:  # a run is a context manager, too
        await awaited.message("assistant", "y")
    assert (await told(ledger, "awaited")).status == "committed"
    call(ledger, way, run_id="neither")
    assert "neither" not in [run.run_id async for run in ledger.runs("c")]
