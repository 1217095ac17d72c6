"""One connection to the servers: questions that are asked again until somebody answers, and messages that are sent once."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import random
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
import nats.aio.client
import nats.errors

from stream.errors import StoreBusy, StoreClosed, StoreUnreachable, StoreUnusable
from stream.home import Home
from stream.nats.errors import FAILURES, NONE, Moved, Unclear, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nats.aio.msg import Msg

    from stream.nats.address import Address

T = TypeVar("T")
PATIENCE_S: Final = 30.0
HEADER: Final = "Tailfold"
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
ROLLUP: Final = {"Nats-Rollup": "sub"}
"""What is sent with it takes the place of all that its subject holds, at once."""

_CONNECT_S: Final = 2.0
_OPEN_S: Final = 5.0
_REQUEST_S: Final = 5.0
_ANSWER_S: Final = 1.0
"""Longer than a server takes that has a leader: what is asked while the others elect one is never answered."""

_HURRY_S: Final = 10.0
"""No election takes longer; from then on servers are taken for slow."""

_BYTES_A_SECOND: Final = 4 * 1024 * 1024
_RECONNECT_S: Final = 0.1
_PING_S: Final = 3
_MAX_PINGS: Final = 2
"""A server that is silent for so many is gone: a machine that has lost its power ends no connection."""

_PAGE_BYTES: Final = 4 * 1024 * 1024
_ANSWER: Final = msgspec.json.Decoder()


class Raw(NamedTuple):
    """A message as it lies there: `js` is its number in its JetStream stream, `said` its header of ours."""

    subject: str
    js: int
    said: str
    data: bytes


class Client:
    """A connection that is made anew as often as it is lost. Made by `connect`."""

    def __init__(self, address: Address) -> None:
        self.path = address.name
        self.home = Home(address.name)
        self.closing = False
        self.driver = _Driver()
        self.connected_again: Callable[[], None] = _nothing
        self._address = address
        self._refused = asyncio.Event()
        self._said = ""
        self._scans: set[asyncio.Queue[Msg | None]] = set()

    async def connect(self) -> None:
        """Raises `StoreUnreachable` where nobody answers, and `StoreUnusable` for a name or password that is refused."""
        opening = asyncio.create_task(
            self.driver.connect(
                self._address.servers, name="tailfold", error_cb=self._hear,
                disconnected_cb=self._disconnected, reconnected_cb=self._reconnected,
                connect_timeout=int(_CONNECT_S), reconnect_time_wait=_RECONNECT_S, max_reconnect_attempts=-1,  # type: ignore[arg-type]
                ping_interval=_PING_S, max_outstanding_pings=_MAX_PINGS,
                **self._address.credentials,  # type: ignore[arg-type]
            )
        )  # fmt: skip
        refused = asyncio.create_task(self._refused.wait())
        try:
            await asyncio.wait([opening, refused], timeout=_OPEN_S, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                await self._give_up(opening)
            opening.result()
        except FAILURES as error:
            raise self.unreachable(error) from error
        finally:
            refused.cancel()
            if not opening.done():
                await self._give_up(opening, is_told=False)

    @property
    def max_payload(self) -> int:
        """Bytes, of a message with its headers."""
        return int(self.driver.max_payload)

    @property
    def has_jetstream(self) -> bool:
        """Whether the server says so."""
        return bool(self.driver._server_info.get("jetstream"))  # noqa: SLF001 - it says so nowhere else

    @property
    def server_id(self) -> str:
        """Of the one that it is connected to now."""
        return str(self.driver._server_info.get("server_id"))  # noqa: SLF001 - as above

    @property
    def is_clustered(self) -> bool:
        """Whether there are more servers, be it that they name none, as behind one address for all of them."""
        is_alone = "cluster" not in self.driver._server_info  # noqa: SLF001 - as above
        return not is_alone or len(self.driver.servers) > 1

    @property
    def connects(self) -> int:
        """How often it was connected anew: on one connection to one server what is sent later is judged later."""
        return self.driver.stats["reconnects"]

    def check(self) -> None:
        """Raises `StoreElsewhere`, and `StoreClosed`; asks nobody."""
        self.home.check()
        if self.closing:
            raise StoreClosed(f"{self.path} is closed")

    async def ask(self, api: str, question: object = None, *, is_quick: bool = False) -> dict[str, Any]:
        """The answer of JetStream to what may be asked twice; a refusal lies in `error`. What is quick is soon asked again."""
        begin = time.monotonic()

        async def once() -> dict[str, Any]:
            asked = msgspec.json.encode(question or {})
            wait_s = _wait_s(begin) if is_quick else _REQUEST_S
            answer: dict[str, Any] = _ANSWER.decode(await self._request(f"$JS.API.{api}", asked, wait_s=wait_s))
            error = answer.get("error")
            if error is not None and isinstance(told := refusal(error, self.path), Unclear):
                raise told
            return answer

        return await self.again(once)

    async def get(self, stream: str, **question: object) -> Raw | None:
        """One message, from the leader: never an old one. None where there is none."""
        answer = await self.ask(f"STREAM.MSG.GET.{stream}", question, is_quick=True)
        error = answer.get("error")
        if error is None:
            said = answer["message"]
            return Raw(said["subject"], said["seq"], _ours(_bytes(said.get("hdrs"))), _bytes(said.get("data")))
        if error.get("err_code") == NONE:
            return None
        raise refusal(error, self.path)

    async def last(self, stream: str, subject: str) -> Raw | None:
        """The last message of a subject, from the leader."""
        return await self.get(stream, last_by_subj=subject)

    async def scan(self, stream: str, subject: str, js: int, *, count: int) -> tuple[list[Raw], bool]:
        """Messages from number `js` on, at most `count`, and whether there were more. Some replica says it, who may lag."""
        question = {"seq": js, "next_by_subj": subject, "batch": count, "max_bytes": _PAGE_BYTES}
        begin = time.monotonic()

        async def once() -> tuple[list[Raw], bool]:
            inbox = self.driver.new_inbox()
            answers: asyncio.Queue[Msg | None] = asyncio.Queue()
            subscription = await self.driver.subscribe(inbox, cb=answers.put)
            self._scans.add(answers)
            try:
                await self.driver.publish(f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(question), reply=inbox)
                return await _collect(answers, wait_s=_wait_s(begin))
            finally:
                self._scans.discard(answers)
                with contextlib.suppress(*FAILURES):
                    await subscription.unsubscribe()

        return await self.again(once)

    async def send(
        self, subject: str, data: bytes, headers: dict[str, str], *, expected: int | None = None, before_bytes: int = 0
    ) -> int:
        """Stores one message where the last one of its subject has the number `expected`; returns its own.

        Sent once: raises `Moved`, and `Unclear` where nobody has answered, soon, for then the sender looks whether it is there.
        What it was the end of had `before_bytes`. Raises `StoreFull` and `StoreUnusable`.
        """
        if expected is not None:
            headers = {**headers, EXPECTED: str(expected)}
        self.home.check()
        try:
            wait_s = _ANSWER_S + (before_bytes + len(data)) / _BYTES_A_SECOND
            answer = _ANSWER.decode(await self._request(subject, data, headers, wait_s=wait_s))
        except FAILURES as error:
            raise Unclear(str(error) or type(error).__name__) from error
        refused = answer.get("error")
        if refused is not None:
            raise refusal(refused, self.path)
        return int(answer["seq"])

    async def send_batch(self, messages: Sequence[tuple[str, bytes, dict[str, str], int | None]], *, name: str) -> int:
        """As `send`, several as a whole, each where its subject was expected; gives the number of the last one."""
        last = len(messages)
        try:
            for number, (subject, data, headers, expected) in enumerate(messages, 1):
                own = headers | {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)}
                if expected is not None:
                    own[EXPECTED] = str(expected)
                if number < last:
                    await self.driver.publish(subject, data, headers=own)
        except FAILURES as error:
            raise Unclear(str(error) or type(error).__name__) from error
        size_bytes = sum(len(each[1]) for each in messages[:-1])
        return await self.send(subject, data, own | {"Nats-Batch-Commit": "1"}, before_bytes=size_bytes)

    async def again(self, once: Callable[[], Awaitable[T]]) -> T:
        """Does what may be done twice until somebody answers, and nobody is in the way.

        Raises `StoreUnreachable` after `PATIENCE_S`, and `StoreBusy` where others have written all the while.
        """
        deadline, pause_s = time.monotonic() + PATIENCE_S, 0.02
        while True:
            self.check()
            try:
                return await once()
            except (*FAILURES, Unclear, Moved) as error:
                if time.monotonic() > deadline:
                    raise (self.busy() if isinstance(error, Moved) else self.unreachable(error)) from error
            await asyncio.sleep(random.uniform(0.2, 1) * pause_s)  # noqa: S311 - jitter, no secret
            pause_s = min(pause_s * 2, 0.5)

    def busy(self) -> StoreBusy:
        """What is raised where others were always faster."""
        return StoreBusy(f"{self.path}: others were in the way for {PATIENCE_S:.0f} s: try again")

    def unreachable(self, error: BaseException) -> StoreUnreachable:
        """What is raised where nothing was stored."""
        if isinstance(error, StoreUnreachable):
            return error
        why = str(error) or type(error).__name__
        return StoreUnreachable(self.path, f"no server answers there ({why}): start it, or name another one")

    def outcome_unknown(self, error: BaseException) -> StoreUnreachable:
        """What is raised where something may have been stored."""
        said = error.why if isinstance(error, StoreUnreachable) else str(error)
        why = f"nobody has said whether it was stored ({said}): look, and do it again, retries are safe"
        return StoreUnreachable(self.path, why)

    async def close(self) -> None:
        """Ends the connection."""
        self.closing = True
        with contextlib.suppress(asyncio.CancelledError, *FAILURES):  # the driver cancels who closes while it connects
            await self.driver.close()

    async def _request(self, subject: str, data: bytes, headers: dict[str, str] | None = None, *, wait_s: float) -> bytes:
        self._said = ""
        try:
            return (await self.driver.request(subject, data, timeout=wait_s, headers=headers)).data
        except nats.errors.TimeoutError:
            said = self._said.lower()  # it is told to the connection, and not to who has asked
            if "permissions violation" in said and ("subscription" in said or f'"{subject.lower()}"' in said):
                raise StoreUnusable(self.path, f"this user may not do that ({self._said}): allow it in the server") from None
            raise

    async def _hear(self, error: Exception) -> None:
        self._said = str(error)
        if "authorization" in self._said.lower() or isinstance(error, nats.errors.AuthorizationError):
            self._refused.set()

    async def _disconnected(self) -> None:
        """The answers to what is under way went with the connection: whoever waits for one asks again, and now."""
        for answer in [*self.driver._resp_map.values()]:  # noqa: SLF001 - the driver lets them wait for all of their time
            if not answer.done():
                answer.set_exception(nats.errors.ConnectionClosedError())
                answer.exception()  # of one whose sender has left nobody hears
        for scan in self._scans:
            scan.put_nowait(None)

    async def _reconnected(self) -> None:
        self.connected_again()

    async def _give_up(self, opening: asyncio.Task[None], *, is_told: bool = True) -> None:
        opening.cancel()
        await asyncio.wait([opening])
        await self.close()
        if is_told and self._refused.is_set():
            raise StoreUnusable(self.path, "the server refuses this user: look at the name and password in the URL")
        if is_told:
            raise self.unreachable(TimeoutError(self._said or "nobody answers"))


def _wait_s(begin: float) -> float:
    """How long one answer is waited for, of those that are asked for since then."""
    return _ANSWER_S if time.monotonic() - begin < _HURRY_S else _REQUEST_S


async def _collect(answers: asyncio.Queue[Msg | None], *, wait_s: float) -> tuple[list[Raw], bool]:
    found: list[Raw] = []
    while True:
        message = await asyncio.wait_for(answers.get(), wait_s)
        if message is None:
            raise nats.errors.ConnectionClosedError
        headers = message.headers or {}
        status = headers.get("Status")
        if status is None:
            found.append(Raw(headers["Nats-Subject"], int(headers["Nats-Sequence"]), headers.get(HEADER, ""), message.data))
        elif status == "204":
            return found, headers.get("Nats-Num-Pending") != "0"
        elif status == "404":
            return found, False
        else:
            raise nats.errors.Error(f"the answer was broken off with {status}")


class _Driver(nats.aio.client.Client):
    async def _connect_to_server(self, s: Any) -> None:
        """Lets go of a connection that came to nothing, as to a server that is silent: it would stay open, and be warned of."""
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(s)


def _nothing() -> None:
    """Nobody wants to know."""


def _ours(headers: bytes) -> str:
    _, found, rest = headers.partition(f"\r\n{HEADER}: ".encode())
    return rest.partition(b"\r\n")[0].decode("ascii", "replace") if found else ""


def _bytes(said: str | None) -> bytes:
    try:
        return base64.b64decode(said or "")
    except binascii.Error as error:  # the server's own
        raise nats.errors.Error("the answer is no base64") from error
