"""Runs the cases of the contract without a test runner."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio
import pytest

from stream.testing.contract import CASES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stream.testing.backend import Backend
    from stream.testing.case import Case


class Failure(NamedTuple):
    """A case that does not hold, and what it met instead."""

    case: Case
    error: BaseException


async def check(make_backend: Callable[[], Backend], cases: Sequence[Case] = CASES, *, limit_s: float = 60.0) -> list[Failure]:
    """Runs every case whose needs the backend meets, each over a new backend; returns those that failed.

    A case fails too if its backend can't be closed afterwards, and with `TimeoutError` if it takes longer than `limit_s`.
    """
    failures = []
    for case in cases:
        try:
            await _run(case, make_backend(), limit_s)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever a broken store raises
            failures.append(Failure(case, error))
    return failures


async def _run(case: Case, backend: Backend, limit_s: float) -> None:
    try:
        if case.needs <= backend.flags:
            with anyio.fail_after(limit_s):
                await case.run(backend)
    finally:
        with anyio.fail_after(limit_s):
            await backend.close()
