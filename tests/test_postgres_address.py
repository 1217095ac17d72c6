"""What a `postgresql://` URL says: each of its hosts, a schema, and no password where others may read it."""

from __future__ import annotations

import pytest

from stream import StoreUnusable
from stream.postgres.address import read_address


def test_each_host_is_an_address_of_its_own() -> None:
    address = read_address("postgresql://u:p%40@one:1,two:2,[::1]:3/db?target_session_attrs=read-write&schema=s&wake=poll")
    assert address.hosts == tuple(
        f"postgresql://u:p%40@{host}/db?target_session_attrs=read-write" for host in ("one:1", "two:2", "[::1]:3")
    )
    assert (address.schema, address.wake, address.dialect) == ("s", "poll", "")
    assert "p%40" not in address.name + repr(address)


def test_a_dialect_may_be_named() -> None:
    for dialect in ("postgres", "portable"):
        assert read_address(f"postgresql://one/db?dialect={dialect}").dialect == dialect
    for options in ("dialect=cockroach", "dialect=portable&wake=listen"):
        with pytest.raises(StoreUnusable, match="dialect="):
            read_address(f"postgresql://one/db?{options}")


@pytest.mark.parametrize("hosts", ["one:x", "one:1,two:y", "one:99999", "[::1"])
def test_a_port_that_is_none_is_refused_and_shows_no_password(hosts: str) -> None:
    with pytest.raises(StoreUnusable, match="can't be read") as refused:
        read_address(f"postgresql://u:secret@{hosts}/db")
    assert "secret" not in str(refused.value)
