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

    A case that takes longer than `limit_s` fails with `TimeoutError`.
    """
    failures = []
    for case in cases:
        backend = make_backend()
        if case.needs <= backend.flags:
            try:
                with anyio.fail_after(limit_s):
                    await case.run(backend)
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever a broken store raises
                failures.append(Failure(case, error))
        await backend.close()
    return failures
