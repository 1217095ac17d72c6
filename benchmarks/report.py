"""A run as tables for people, and as one JSON line for the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich import box
from rich.table import Table

from benchmarks.machine import Machine
from benchmarks.measuring import Figure
from benchmarks.targets import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TOKENS: Final = "context.tokens."
"""How the ids of figures begin that are parts of tokens: then comes the source, and the number of the stage."""


class Record(msgspec.Struct, frozen=True):
    """One run, whole. `settings` are the loops, the durability and the sizes of each workload."""

    date: str
    commit: str
    machine: Machine
    settings: dict[str, Any]
    figures: list[Figure]
    targets: list[Verdict]


def append_line(path: Path, record: Record) -> None:
    """Adds the run to a file of JSON lines."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(record) + b"\n")


def tables(record: Record) -> list[Table]:
    """All that is shown of a run."""
    counted = [figure for figure in record.figures if figure.id.startswith(TOKENS)]
    measured = [figure for figure in record.figures if figure not in counted]
    shown = [figures_table(measured)] if measured else []
    return [*shown, *([tokens_table(counted)] if counted else []), targets_table(record.targets)]


def figures_table(figures: list[Figure]) -> Table:
    """Every figure with its spread; what stands beside is information."""
    table = Table(title="Ratios: median of the rounds (lowest to highest)", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("what")
    table.add_column("ratio", justify="right")
    table.add_column("spread", justify="right")
    table.add_column("of")
    table.add_column("beside, no claim", style="dim")
    for figure in figures:
        beside = ", ".join(f"{name} {number(value)}" for name, value in figure.beside.items())
        spread = f"{number(figure.low)} to {number(figure.high)}" if figure.rounds > 1 else "one round"
        table.add_row(figure.what, number(figure.value), spread, figure.per, beside)
    return table


def tokens_table(figures: list[Figure]) -> Table:
    """What each stage leaves of the tokens of real sessions, a column a source."""
    sources = by_source(figures)
    table = Table(title="Tokens sent in all turns, with and without each stage", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("stage")
    for source, found in sources.items():
        sessions, turns = (number(found[0].beside[name]) for name in ("sessions", "turns"))
        table.add_column(f"{source}: {sessions} sessions, {turns} turns", justify="right")
        table.add_column("of the path", justify="right")
    for row in zip(*sources.values(), strict=True):
        cells = [(number(figure.beside["tokens"]), f"{figure.value:.1%}") for figure in row]
        table.add_row(row[0].what, *(cell for pair in cells for cell in pair))
    return table


def by_source(figures: Iterable[Figure]) -> dict[str, list[Figure]]:
    """The figures of tokens, by the source of their sessions."""
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.id.startswith(TOKENS):
            found.setdefault(figure.id.removeprefix(TOKENS).rpartition(".")[0], []).append(figure)
    return found


def targets_table(verdicts: list[Verdict]) -> Table:
    """Every target that was measured, met or missed, and by how much."""
    table = Table(title="Targets", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("target")
    table.add_column("bound", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("")
    for verdict in verdicts:
        target = verdict.target
        sign = "≥" if target.is_met_by == "at least" else "≤"
        measured = "not taken" if verdict.measured is None else number(verdict.measured)
        table.add_row(target.what, f"{sign} {number(target.bound)}", measured, _outcome(verdict))
    return table


def number(value: float) -> str:
    """Three figures are as many as a ratio of this kind is good for."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _outcome(verdict: Verdict) -> str:
    if verdict.measured is None:
        return ""
    if verdict.met:
        return "[green]met[/]"
    return f"[red]missed[/], {number(verdict.measured / verdict.target.bound)} of the bound"
