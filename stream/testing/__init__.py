"""The kit with which a store proves the contract of `stream.EventStore`: cases, machines, faults on purpose, canaries.

For a store of your own, write a `Backend` (four methods and its flags), then

    async def test_the_contract():
        assert await check(MyBackend) == []

    TestMachine = state_machine(MyBackend).TestCase

or run `CASES` one by one under your test runner. It needs the extra `testing`. What lives here knows stores only by
the protocol; the store in memory is the model. Nothing of `stream` imports this package.
"""

from stream.extras import needs as _needs

with _needs("testing", "stream.testing"):
    from stream.testing.backend import Backend, Flag, MemoryBackend, SqliteBackend, flip
    from stream.testing.case import Case, case
    from stream.testing.checking import Failure, check
    from stream.testing.contract import CASES
    from stream.testing.faults import Held, InjectedFault, backwards_clock, cancel_after, disturb, lost_wakeups
    from stream.testing.machine import state_machine
    from stream.testing.twice import jobs_run_twice

__all__ = [
    "CASES",
    "Backend",
    "Case",
    "Failure",
    "Flag",
    "Held",
    "InjectedFault",
    "MemoryBackend",
    "SqliteBackend",
    "backwards_clock",
    "cancel_after",
    "case",
    "check",
    "disturb",
    "flip",
    "jobs_run_twice",
    "lost_wakeups",
    "state_machine",
]
