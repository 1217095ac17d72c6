"""A run as tables for people, and as one JSON line for the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.table import Table

from benchmarks.machine import Machine
from benchmarks.measuring import Figure
from benchmarks.targets import Verdict

if TYPE_CHECKING:
    from pathlib import Path


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
