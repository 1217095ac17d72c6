"""Asks any server that speaks the OpenAI chat format for a summary (the extra `summarizer`)."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from ledger.errors import LedgerError
from stream.extras import needs

with needs("summarizer", "ledger.context.summarizer"):
    import httpx

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_BUSY: Final = 429
_TOO_LARGE: Final = 1_000_000
_LONGEST_WAIT_S: Final = 10.0


class SummarizerFailed(LedgerError):
    """The server gave no summary. The message never holds the key, the text, or the body of the answer."""


class HttpSummarizer:
    """A `Summarizer` that posts to `{base_url}/chat/completions`.

    `timeout` in seconds holds for one try; `tries` counts the first. It tries again after a failed connection, a timeout,
    429 and 5xx, and waits `wait` seconds first, twice as long each time, or as long as the server says, at most 10.
    Raises `ValueError` for limits that are no numbers in their range.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        tries: int = 3,
        wait: float = 0.5,
    ) -> None:
        if not 0 < timeout < math.inf or not 0 <= wait < math.inf:
            raise ValueError(f"timeout is above 0 seconds and wait at least 0, not {timeout} and {wait}")
        if type(tries) is not int or tries < 1:
            raise ValueError(f"tries is a whole number of at least 1, not {tries}")
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._model, self._tries, self._wait = model, tries, wait
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout)
        self._timeout = timeout

    async def __call__(self, instructions: str, text: str) -> str:
        """What the model answers. Raises `SummarizerFailed` after the last try, and at once for any other refusal."""
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
        why = ""
        for number in range(self._tries):
            try:
                async with asyncio.timeout(self._timeout):
                    answer = await self._client.post(self._url, json={"model": self._model, "messages": messages})
            except (httpx.TransportError, TimeoutError) as error:
                why = f"it did not answer ({type(error).__name__})"
                hint = None
            else:
                if answer.status_code != _BUSY and answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                    return _content(answer)
                why, hint = f"it answered {answer.status_code}", answer.headers.get("retry-after")
            if number + 1 < self._tries:
                await asyncio.sleep(_pause(self._wait * 2**number, hint))
        raise SummarizerFailed(f"the summarizer failed {self._tries} times, at last {why}: check its address and its load")

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _content(answer: httpx.Response) -> str:
    if answer.status_code != httpx.codes.OK:
        raise SummarizerFailed(f"the summarizer refused: it answered {answer.status_code}: check its key and its model")
    if len(answer.content) > _TOO_LARGE:
        raise SummarizerFailed("the summarizer answered more than a megabyte")
    try:
        content = answer.json()["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        content = None
    if not isinstance(content, str) or not content.strip():
        raise SummarizerFailed("the summarizer's answer holds no text: is this an address of the OpenAI chat format?") from None
    return content


def _pause(wait: float, hint: str | None) -> float:
    """How long to wait, in seconds: as the server says, where it says a number."""
    try:
        asked = float(hint or "")
    except ValueError:
        asked = wait
    return min(max(asked, 0.0) if math.isfinite(asked) else wait, _LONGEST_WAIT_S)
