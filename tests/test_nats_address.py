"""What a `nats://` URL says, and that no password or token of it is shown where others may read it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from stream import StoreUnusable, open_store
from stream.nats.address import OPTIONS, read_address
from stream.urls import shown_url
from tests.nats_server import running

SECRET: Final = "g3heim"
ROOT: Final = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"nats://u:{SECRET}@a:1,b:2?stream=s", "nats://u@a:1,b:2?stream=s"),
        (f"nats://u:{SECRET}@a:1,u:{SECRET}@b:2", "nats://u@b:2"),
        (f"nats://{SECRET}@a:1?stream=s", "nats://@a:1?stream=s"),
        (f"nats://a:1?token={SECRET}&stream=s", "nats://a:1?stream=s"),
        (f"tls://{SECRET}@a:1", "tls://@a:1"),
        ("nats://a:1,b:2", "nats://a:1,b:2"),
        (f"nats://u:x@a:1?stream=s&system=sys:{SECRET}&shards=2", "nats://u@a:1?stream=s&shards=2"),
        (f"nats://a:1?system=sys:x%40{SECRET}", "nats://a:1"),
        (f"nats://u:x@a:1?system=sys:x@{SECRET}&stream=s", "nats://u@stream=s"),
        (f"nats://u:x@a:1?password=x@{SECRET}", "nats://u@"),
        (f"nats://u:x@a:1?system=sys:x&{SECRET}&stream=s", "nats://u@a:1?stream=s"),
        (f"nats://a:1?stream=s&system=sys:x&{SECRET}", "nats://a:1?stream=s"),
        (f"postgresql://u:x@a/d?password=x@{SECRET}", "postgresql://u@"),
        (f"postgresql://a/d?password=x&={SECRET}&schema=s", "postgresql://a/d?schema=s"),
        (
            f"postgresql://a/d?schema=s&password=x&{SECRET}={SECRET}&sslmode=require",
            "postgresql://a/d?schema=s&sslmode=require",
        ),
        (f"nats://a:1?system=sys:x&{SECRET}=x&shards=2", "nats://a:1?shards=2"),
    ],
)
def test_a_url_is_shown_without_its_password_or_token(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_the_name_of_a_log_has_no_password_and_no_token_and_its_address_says_none() -> None:
    for url in (f"nats://u:{SECRET}@a:1?stream=s", f"nats://{SECRET}@a:1?stream=s", f"nats://a:1?system=s:{SECRET}"):
        address = read_address(url)
        assert SECRET in address.servers[0] + str(address.system)
        assert SECRET not in address.name + repr(address)


@pytest.mark.parametrize(
    "url",
    [
        f"nats://u:{SECRET}/x@127.0.0.1:1", f"nats://u:{SECRET}#x@127.0.0.1:1", f"nats://u:{SECRET}?x@127.0.0.1:1",
        f"nats://u:[{SECRET}]@127.0.0.1:1", f"nats://u:{SECRET}@[::1", f"nats://u:{SECRET}@127.0.0.1:port",
        f"nats://u:{SECRET}@127.0.0.1:99999", f"nats://127.0.0.1:1?password={SECRET}", f"nats://127.0.0.1:1?TOKEN={SECRET}",
        f"nats://127.0.0.1:1?system=u:x&{SECRET}", f"nats://127.0.0.1:1?system=u:x&{SECRET}=x",
        f"nats://{SECRET}/x@127.0.0.1:1", f"nats://u:{SECRET}@127.0.0.1:1,v:{SECRET}@127.0.0.1:2",
    ],
)  # fmt: skip
def test_a_url_that_can_not_be_read_is_refused_and_shows_no_password(url: str) -> None:
    with pytest.raises(StoreUnusable) as refused:
        read_address(url)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("user", [f"u:{SECRET}@", f"{SECRET}@", f"u:{SECRET}/{SECRET}@", f"u:[{SECRET}]@"])
def test_no_command_shows_the_password_of_a_log(user: str, tmp_path: Path) -> None:
    log = f"nats://{user}127.0.0.1:1?stream=s"
    for words in (
        ("backup", "copy.db"),
        ("backup", "copy.db", "--log-target", "log.db"),
        ("restore", "copy.db", "--log-backup", "log.db"),
        ("conversations",),
    ):
        command = [sys.executable, "-m", "ledger.admin", "--data", str(tmp_path / "l.db"), "--log", log, *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("tailfold: nats://")
        assert SECRET not in done.stderr + done.stdout


def test_the_user_of_the_system_account_is_at_all_servers() -> None:
    address = read_address("nats://u:x@a:1,b:2?system=s%3Ays:p+%26%40")
    assert address.system == ("s:ys", "p+&@")
    other = address.of(*address.system)
    assert other.servers == ["nats://s%3Ays:p%2B%26%40@a:1", "nats://s%3Ays:p%2B%26%40@b:2"]
    assert other.credentials == {"user": "s:ys", "password": "p+&@"}
    assert read_address("tls://a:1").of("s", "p").servers == ["tls://s:p@a:1"]


@pytest.mark.parametrize("said", ["", "user", "user:", ":password"])
def test_a_system_user_without_name_or_password_is_refused(said: str) -> None:
    with pytest.raises(StoreUnusable, match="system=user:password"):
        read_address(f"nats://a:1?system={said}")


@pytest.mark.anyio
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("more", "user"),
    [
        ('accounts { A { jetstream: enabled, users: [{ user: "a:da", password: "p@/#%" }] } }', "a%3Ada:p%40%2F%23%25@"),
        ('authorization { token: "t@/#%" }', "t%40%2F%23%25@"),
    ],
)
async def test_odd_characters_of_a_password_or_token_are_written_as_in_any_url(more: str, user: str) -> None:
    with running(more=more) as server:
        async with open_store(server.url(user=user)) as store:
            assert (await store.bounds("s")).head == 0
        with pytest.raises(StoreUnusable, match="refuses this user"):
            await open_store(server.url(user=user.replace("%25", "")))


@pytest.mark.parametrize("option", [*OPTIONS, "schema", "wake", "dialect"])
def test_what_stands_behind_a_secret_is_shown_where_it_is_an_option(option: str) -> None:
    """So whoever adds one says it there, too."""
    shown = f"nats://a:1?{option}=x" if option != "system" else "nats://a:1"
    assert shown_url(f"nats://a:1?token={SECRET}&{option}=x") == shown
