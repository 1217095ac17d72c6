"""What keeps events in the log when a conversation is compacted: ledger, open runs, replay window and holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def pins_of(
    head: int,
    *,
    projected_seq: int | None,
    open_runs: Mapping[str, int],
    replay_window: int,
    holds: Mapping[str, int],
) -> dict[str, int]:
    """The highest seq that each lets go, by `ledger`, `replay_window`, `open_run:ID`, `hold:ID`.

    `open_runs` gives the first event of each, `projected_seq` is None without a ledger. Raises `ValueError` for a
    negative window.
    """
    if replay_window < 0:
        raise ValueError(f"replay_window must be 0 or more events, not {replay_window}")
    pins = {f"open_run:{run_id}": first - 1 for run_id, first in open_runs.items()}
    pins |= {f"hold:{name}": through for name, through in holds.items()}
    if projected_seq is not None:
        pins["ledger"] = projected_seq
    if replay_window:
        pins["replay_window"] = max(0, head - replay_window)
    return pins
