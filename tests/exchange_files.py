"""What the tests of `export` and `import` share: conversations with all that a log may hold, and lines of an export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream import NewEvent
from tests.fork_server import COMMANDS
from tests.ledger_commands import record, turns
from tests.talk import conversation

if TYPE_CHECKING:
    from ledger import Ledger
    from tests.test_commands import Shell


ODD = [
    NewEvent("raw", b"\xff\x00 no text at all"),
    NewEvent("block.delta", b'{"message_id":5}'),
    NewEvent("custom", b'[1, "no object"]'),
    NewEvent("custom", '{ "spaced" :\n 1e400, "lone": "\\ud83d", "ö": "\u2028" }'.encode()),
    NewEvent("custom", b""),
    NewEvent("ünknown", b'{"n": 100000000000000000000000000000000000000}'),
]
HEADER = '{"tailfold":1,"conversation":"c","floor":0,"origin":0,"head":2}'
LINES = [
    HEADER,
    '{"seq":1,"at":5,"type":"custom","data":"{\\"n\\":1}"}',
    '{"seq":2,"at":5,"type":"custom","data_base64":"AAE="}',
]


async def much(ledger: Ledger) -> None:
    """Three conversations, one of them with all that a log may hold."""
    await ledger.record("a", conversation())
    await ledger.store.append("a", ODD)
    async with ledger.run("b", run_id="r1") as run:
        await run.message("user", "Hello")
    await record(ledger, "é 3", turns(400))


def aside(shell: Shell, *words: str, code: int, given: bytes | None = None) -> tuple[str, str]:
    """Runs a command that tells something on standard error beside what it prints."""
    done = COMMANDS.run(*shell.command(*words)[5:], given=given or b"")
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    return done.stdout.decode(), done.stderr.decode()
