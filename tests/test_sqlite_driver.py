"""Numbered parameters are bound by their numbers, whatever the Python: some take them for names, and warn of a sequence."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from stream.sqlite.driver import ByName, connect


@pytest.mark.parametrize("kind", [sqlite3.Connection, ByName])
def test_values_go_by_number_or_by_place(kind: type[sqlite3.Connection]) -> None:
    with closing(sqlite3.connect(":memory:", factory=kind)) as connection:
        if kind is ByName:
            assert connection.execute("SELECT ?2, ?1, ?2", (1, "b")).fetchone() == ("b", 1, "b")
            assert connection.execute("SELECT " + ", ".join(f"?{n}" for n in range(1, 21)), range(20)).fetchone() == tuple(
                range(20)
            )
            with pytest.raises(sqlite3.ProgrammingError):
                connection.execute("SELECT ?2, ?1", (1,))
        assert connection.execute("SELECT ?, ?", (1, "b")).fetchone() == (1, "b")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_connection_takes_numbers_without_a_warning() -> None:
    with closing(connect(":memory:")) as connection:
        assert connection.execute("SELECT ?2, ?1", (1, "b")).fetchone() == ("b", 1)
        assert connection.isolation_level is None
