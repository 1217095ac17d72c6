"""Whether NATS servers wait for their disks, as their system account says it where no monitor answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from stream import NewEvent, StoreUnusable, open_store
from stream.nats.server import _ask_all
from tests.nats_server import NatsCluster, NatsServer, running, three_running

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.anyio, pytest.mark.heavy]

SECRET: Final = "p@+/&%"
QUOTED: Final = "p%40+/%26%25"
ACCOUNTS: Final = """
accounts {
  SYS { users: [{ user: sys, password: "p@+/&%" }]
        exports: [{ service: "$SYS.REQ.SERVER.PING.VARZ", response: stream, accounts: [B] }] }
  A { jetstream: enabled, users: [{ user: ada, password: a }] }
  B { jetstream: enabled, users: [{ user: bob, password: b }]
      imports: [{ service: { account: SYS, subject: "$SYS.REQ.SERVER.PING.VARZ" } }] }
}
system_account: SYS
"""
SYSTEM: Final = f"system=sys:{QUOTED}"


@pytest.fixture(scope="module")
def always() -> Iterator[NatsServer]:
    with running(more=ACCOUNTS, monitored=False) as server:
        yield server


@pytest.fixture(scope="module")
def seldom() -> Iterator[NatsServer]:
    with running(more=ACCOUNTS, sync="2m", monitored=False) as server:
        yield server


@pytest.fixture(scope="module")
def three() -> Iterator[NatsCluster]:
    with three_running(more=ACCOUNTS) as cluster:
        yield cluster


async def works(url: str) -> None:
    async with open_store(url) as store:
        await store.append("s", [NewEvent("t", b"x")])


async def test_the_system_account_says_that_a_server_waits_for_its_disk(always: NatsServer) -> None:
    await works(always.url("a", SYSTEM, user="ada:a@"))


async def test_the_system_account_says_that_a_server_does_not(seldom: NatsServer) -> None:
    with pytest.raises(StoreUnusable, match=r"acknowledges what is not on its disk.*sync_interval: always") as refused:
        await open_store(seldom.url("a", SYSTEM, user="ada:a@"))
    assert seldom.name in str(refused.value)
    assert SECRET not in str(refused.value)
    await works(seldom.url("a", SYSTEM, "sync=trusted", user="ada:a@"))


@pytest.mark.parametrize(
    ("system", "why"), [("ada:a", "may not ask the system account"), ("sys:wrong", "refuse the user of system=")]
)
async def test_whoever_may_not_ask_is_told_so(always: NatsServer, system: str, why: str) -> None:
    with pytest.raises(StoreUnusable, match=why) as refused:
        await open_store(always.url("a", f"system={system}", user="ada:a@"))
    assert "wrong" not in str(refused.value)


async def test_without_a_monitor_and_a_system_user_the_ways_out_are_told(always: NatsServer) -> None:
    with pytest.raises(StoreUnusable, match=r"does not answer.*monitor=PORT, system=user:password .*sync=trusted"):
        await open_store(always.url("a", user="ada:a@"))


async def test_a_user_who_may_ask_the_system_account_himself_needs_no_other(always: NatsServer, seldom: NatsServer) -> None:
    await works(always.url("b", user="bob:b@"))
    with pytest.raises(StoreUnusable, match="acknowledges what is not on its disk"):
        await open_store(seldom.url("b", user="bob:b@"))


async def test_each_server_of_a_cluster_is_asked_and_not_those_alone_that_are_named(three: NatsCluster) -> None:
    """Where one of them does not wait, or is not there, the others can't say it for him."""
    named = [three.url("a", SYSTEM, user="ada:a@", node=node) for node in range(3)]
    for url in named:
        await works(url)
    await works(three.url("b", "monitor=1", user="bob:b@"))
    three.nodes[2].restart(sync="2m")
    three.nodes[2].await_health()
    for url in named:
        with pytest.raises(StoreUnusable, match="n2 acknowledges what is not on its disk"):
            await open_store(url)
    three.nodes[2].kill()
    with pytest.raises(StoreUnusable, match=r"n2 did not answer.*start all servers, or say sync=trusted"):
        await open_store(named[0])
    await works(three.url("a", "sync=trusted", user="ada:a@", node=0))


class Said:
    """The connection of one who asks all servers, and these answer."""

    def __init__(self, answers: dict[str, dict[str, Any]]) -> None:
        self.driver = self
        self.server_id = "id of a"
        self._answers = [
            {"server": {"name": name, "id": f"id of {name}"}, "data": {"jetstream": {"meta": meta}}}
            for name, meta in answers.items()
        ]

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, _: str) -> Said:
        return self

    async def publish(self, *_: Any, **__: Any) -> None:
        pass

    async def unsubscribe(self) -> None:
        pass

    async def next_msg(self, **_: Any) -> Any:
        if not self._answers:
            raise TimeoutError
        return SimpleNamespace(data=msgspec.json.encode(self._answers.pop(0)))


@pytest.mark.parametrize("missing", ["", "b", "c"])
async def test_servers_that_only_their_leader_names_are_waited_for(missing: str) -> None:
    """The one that is asked is `a`, the leader is `c`."""
    answers: dict[str, dict[str, Any]] = {"a": {"cluster_size": 3}, "b": {"cluster_size": 3}}
    answers["c"] = {"cluster_size": 3, "replicas": [{"name": "a"}, {"name": "b"}]}
    said: Any = Said({name: meta for name, meta in answers.items() if name != missing})
    told = await _ask_all(said, said)
    assert set(told) == {"a", "b", "c"} if not missing else told == {"b": "b did not answer", "c": "2 of 3 answered"}[missing]
