"""Draws a run: a few plain pictures with a light background, each of which says what was compared."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers import BY_STEP, PEERS
from benchmarks.report import by_source, number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.measuring import Figure
    from benchmarks.report import Record

_OURS: Final = "#1f6f8b"
_LIGHT: Final = "#8fc1d4"
_OTHER: Final = "#b0b0b0"
_LINE: Final = "#c0392b"


def draw(record: Record, folder: Path) -> list[Path]:
    """Writes the pictures for which the run has figures; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figures = {figure.id: figure for figure in record.figures}
    made = []
    for name, picture in _PICTURES.items():
        canvas, axes = pyplot.subplots(figsize=(8, 4.2), dpi=130, layout="constrained")
        if picture(axes, figures):
            axes.spines[["top", "right"]].set_visible(False)
            made_on = f"{record.machine.cpu}, {record.machine.cores} cores, {record.commit}, {record.date[:10]}"
            canvas.supxlabel(made_on, x=0.99, ha="right", size=7, color="grey")
            path = folder / f"{name}.png"
            canvas.savefig(path, facecolor="white")
            made.append(path)
        pyplot.close(canvas)
    return made


def _appends(axes: Any, figures: dict[str, Figure]) -> bool:
    found = sorted(
        (int(identifier.split(".")[2][1:]), identifier.rpartition(".k")[0])
        for identifier in figures
        if identifier.endswith(".k1.raw") and identifier.startswith(f"appends.{_first_loop(figures)}.")
    )
    if not found:
        return False
    for shift, k, colour in ((-0.2, 1, _LIGHT), (0.2, 20, _OURS)):
        values = [figures[f"{prefix}.k{k}.raw"] for _, prefix in found]
        places = [place + shift for place in range(len(found))]
        _points(axes, places, values, colour, f"{_events(k)} an append")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.axhline(1, color=_LINE, linewidth=1, label="raw sqlite3, as many rows a commit as writers (at most 100)")
    axes.set_xticks(range(len(found)), [f"{writers:,} writer{'s' if writers > 1 else ''}" for writers, _ in found])
    axes.set_ylabel("events a second, of raw (log)")
    axes.set_title(f"Durable appends against raw sqlite3 ({_first_loop(figures)})", loc="left")
    axes.set_ylim(top=10 * max(figures[f"{prefix}.k20.raw"].high for _, prefix in found))  # room for the legend
    axes.legend(frameon=False, loc="upper left", fontsize=8)
    return True


def _peers(axes: Any, figures: dict[str, Figure]) -> bool:
    loop = _first_loop(figures)
    rows: list[tuple[str, Figure, str]] = []
    for k in (1, 20):
        prefix = f"appends.{loop}.w100.k{k}."
        peers = [name for name in PEERS if f"{prefix}{name}.raw" in figures]
        for peer in peers:
            what = f"{peer}, states" if peer in BY_STEP else f"{peer}, {_events(k)} an append"
            rows.append((what, figures[f"{prefix}{peer}.raw"], _OTHER))
        if peers:
            rows.append((f"Tailfold, {_events(k)} an append", figures[f"{prefix}raw"], _OURS))
    if not rows:
        return False
    rows.reverse()
    for place, (_, figure, colour) in enumerate(rows):
        _point_beside(axes, place, figure, colour)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_yticks(range(len(rows)), [what for what, _, _ in rows])
    axes.axvline(1, color=_LINE, linewidth=1)
    axes.margins(x=0.15, y=0.08)
    axes.grid(visible=True, axis="x", which="major", color="#e6e6e6")
    axes.set_axisbelow(True)
    axes.set_xlabel("events a second, of raw sqlite3 with 100 rows a commit (red line; log)")
    axes.set_title("100 writers on one file, synchronous=FULL", loc="left")
    return True


def _replay(axes: Any, figures: dict[str, Figure]) -> bool:
    rows = [
        (f"{what}\n{_events(k)} an append", figures[f"replay.k{k}.{name}"])
        for name, what in (("read", "read + decode"), ("fold", "read + fold"))
        for k in (1, 20)
        if f"replay.k{k}.{name}" in figures
    ]
    if not rows:
        return False
    _bars(axes, range(len(rows)), [figure for _, figure in rows], _OURS, "")
    axes.axhline(1, color=_LINE, linewidth=1, label="raw sqlite3: scan + decode, one event a row")
    axes.set_xticks(range(len(rows)), [what for what, _ in rows])
    axes.set_ylabel("events a second, of raw")
    axes.set_title("Cold replay from the first event", loc="left")
    axes.margins(y=0.2)
    axes.legend(frameon=False, fontsize=8)
    return True


def _flat(axes: Any, figures: dict[str, Figure]) -> bool:
    names = {
        "tail.read": "tail\nof 100",
        "tail.warm_start": "start behind\na million\nevents",
        "branches.warm_start": "start behind\n100,000\nmessages",
        "branches.select": "branch\nswitch",
        "branches.selections": "view of\na branch",
        "long.p95": "turn 1,000\n(p95)",
        "reconnect.flat": "clients\nreconnect",
        "crash.ready": "crash to\nnext run",
        "memory.replay": "replay\n(memory)",
    }
    found = [(what, figures[name]) for name, what in names.items() if name in figures]
    if not found:
        return False
    _bars(axes, range(len(found)), [figure for _, figure in found], _OURS, "")
    axes.axhline(1, color=_LINE, linewidth=1, label="flat: the same as with a short past")
    axes.set_xticks(range(len(found)), [what for what, _ in found], fontsize=8)
    axes.set_ylabel("long past, of short past")
    axes.set_title("What a long past costs: time, or memory", loc="left")
    axes.set_ylim(0, max(2.0, *(figure.high * 1.2 for _, figure in found)))
    axes.legend(frameon=False, loc="upper left", fontsize=8)
    return True


def _disk(axes: Any, figures: dict[str, Figure]) -> bool:
    names = {
        "long.compacted": ("Tailfold, compacted", _OURS),
        "long.kept": ("Tailfold, every event kept", _OURS),
        "long.openai-agents": ("openai-agents", _OTHER),
        "long.langgraph-checkpoint-sqlite": ("langgraph-checkpoint-sqlite", _OTHER),
    }
    found = [(*names[name], figures[name]) for name in reversed(names) if name in figures]
    if not found:
        return False
    for place, (_, colour, figure) in enumerate(found):
        _point_beside(axes, place, figure, colour)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_yticks(range(len(found)), [f"{what}\n{_turns(figure)}" for what, _, figure in found])
    axes.axvline(1, color=_LINE, linewidth=1)
    axes.margins(x=0.15, y=0.08)
    axes.grid(visible=True, axis="x", which="major", color="#e6e6e6")
    axes.set_axisbelow(True)
    axes.set_xlabel("bytes of the file, of what was said (red line; log)")
    axes.set_title("A conversation with tools on disk", loc="left")
    return True


def _context(axes: Any, figures: dict[str, Figure]) -> bool:
    sources = by_source(figures.values())
    if not sources:
        return False
    height = 0.8 / len(sources)
    colours = (_OURS, _LIGHT, _OTHER)
    for at, (source, found) in enumerate(sources.items()):
        places = [-place - at * height for place in range(len(found))]
        tokens = found[0].beside["path_tokens"] / 1e6
        label = f"{source}: {found[0].beside['turns']:,.0f} turns, {tokens:.3g} M tokens"
        axes.barh(places, [100 * figure.value for figure in found], height * 0.9, color=colours[at], label=label)
        for place, figure in zip(places, found, strict=True):
            left = (100 * figure.value, place)
            axes.annotate(f"{figure.value:.1%}", left, (4, 0), textcoords="offset points", va="center", fontsize=8)
    stages = [figure.what for figure in next(iter(sources.values()))]
    middle = height * (len(sources) - 1) / 2
    axes.set_yticks([-place - middle for place in range(len(stages))], stages, fontsize=8)
    axes.axvline(100, color=_LINE, linewidth=1)
    axes.set_xlim(0, 112)
    axes.set_xlabel("tokens sent over all turns, % of those of the paths (red line)")
    axes.set_title("What each stage leaves of recorded sessions", loc="left")
    axes.set_ylim(-len(stages) + 0.3, 1.2)  # room for the legend
    axes.legend(frameon=False, loc="upper left", ncols=len(sources), fontsize=8)
    return True


def _turns(figure: Figure) -> str:
    return f"{figure.beside['turns']:,.0f} turns"


def _events(count: int) -> str:
    return f"{count} event{'s' if count > 1 else ''}"


def _points(axes: Any, places: Sequence[float], figures: Sequence[Figure], colour: str, label: str) -> None:
    """Points of medians, with the spread of their rounds: on a logarithmic axis the length of a bar says nothing."""
    values = [figure.value for figure in figures]
    axes.errorbar(places, values, _spread(figures), fmt="o", color=colour, label=label, ecolor="#555555", capsize=3)
    for place, figure in zip(places, figures, strict=True):
        axes.annotate(number(figure.value), (place, figure.high), (0, 4), textcoords="offset points", ha="center", fontsize=8)


def _point_beside(axes: Any, place: int, figure: Figure, colour: str) -> None:
    """As `_points`, one in a row of its own."""
    [[below], [above]] = _spread([figure])
    axes.errorbar(figure.value, place, xerr=[[below], [above]], fmt="o", color=colour, ecolor="#555555", capsize=3)
    axes.annotate(number(figure.value), (figure.value, place), (0, 6), textcoords="offset points", ha="center", fontsize=8)


def _spread(figures: Sequence[Figure]) -> list[list[float]]:
    return [[figure.value - figure.low for figure in figures], [figure.high - figure.value for figure in figures]]


def _bars(axes: Any, places: Sequence[float], figures: Sequence[Figure], colour: str, label: str) -> None:
    """Bars of medians, with the spread of their rounds."""
    values = [figure.value for figure in figures]
    axes.bar(places, values, 0.38, color=colour, label=label or None, yerr=_spread(figures), ecolor="#555555", capsize=3)
    for place, figure in zip(places, figures, strict=True):
        axes.annotate(number(figure.value), (place, figure.high), (0, 4), textcoords="offset points", ha="center", fontsize=8)


def _first_loop(figures: dict[str, Figure]) -> str:
    return next((identifier.split(".")[1] for identifier in figures if identifier.startswith("appends.")), "")


_PICTURES: Final[dict[str, Callable[[Any, dict[str, Figure]], bool]]] = {
    "appends": _appends,
    "peers": _peers,
    "replay": _replay,
    "flat": _flat,
    "disk": _disk,
    "context": _context,
}
