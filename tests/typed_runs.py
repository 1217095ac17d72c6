"""How runs are begun, only type-checked: a misspelt option is an error, or mypy tells that its `ignore` is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from ledger import ACTIVE_LEAF, Run

if TYPE_CHECKING:
    from ledger import Ledger


async def begin(ledger: Ledger) -> None:
    async with ledger.run("c", run_id="r", parent=ACTIVE_LEAF, format="chat", trigger="submit", model="m", flush_ms=0) as run:
        assert_type(run, Run)
    async with ledger.fork("c", "r.1", provider="p") as run:
        assert_type(run, Run)
    assert_type(await ledger.run("c"), Run)
    assert_type(await ledger.fork("c", "r.1"), Run)
    assert_type(await ledger.begin_run("c", parent=None), Run)
    async with await ledger.fork("c", "r.1", model="m") as run:
        assert_type(run, Run)


async def misspell(ledger: Ledger) -> None:
    await ledger.begin_run("c", modle="m")  # type: ignore[call-arg]
    await ledger.run("c", modle="m")  # type: ignore[call-arg]
    await ledger.fork("c", "r.1", modle="m")  # type: ignore[call-arg]
    await ledger.fork("c", "r.1", parent="r.2")  # type: ignore[call-arg]
    await ledger.run("c", flush_ms="soon")  # type: ignore[arg-type]
    await ledger.run("c", "r")  # type: ignore[call-arg]


def misspell_a_name() -> None:
    """Names are loaded when they are asked for, and known all the same."""
    from ledger import Legder  # type: ignore[attr-defined]  # noqa: F401, PLC0415
    from projector.formats import REDAERS  # type: ignore[attr-defined]  # noqa: F401, PLC0415
    from stream import open_stroe  # type: ignore[attr-defined]  # noqa: F401, PLC0415
