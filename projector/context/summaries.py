"""AI summaries of single messages: prompts by name, one call for each text, and a fallback."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from projector.context.expiration import DEFAULT_RULES, RESULT, Choices, Decision, ExpirationRules, protected, remember
from projector.context.json_answers import objects_in
from projector.context.prompts import NOTHING_TOLD, Prompt, Prompts, Told
from projector.context.shortening import FALLBACK_LENGTH, Shortened, first_n, text_of, with_marker
from projector.context.tokens import Tokenizer, estimate
from projector.context.turns import has_expired
from projector.json_text import InvalidJson, decode
from stream.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from projector.events import ContextCompacted
    from projector.message import Message

_LOG: Final = Logger("tailfold.expiration")
TIME_LIMIT_S: Final = 30.0
_KEPT: Final = 1_000
_FENCE: Final = "```"


class Summarizer(Protocol):
    """Asks a model. It may raise, and may answer JSON `{"summary"}` or plain text."""

    async def __call__(self, instructions: str, text: str) -> str:
        """What the model answers to the instructions about the text."""
        ...


class SummaryMaker:
    """Summaries, each asked for once: by content, prompt and length. Two who want the same at once share a call.

    `models` are summarizers by the names of models: a prompt that names models is sent to them by priority, until one
    gives a summary, and at last to `summarizer`, as every other prompt is. `time_limit` in seconds, for each that is
    asked. A caller that is cancelled does not end a call that another one waits for. Failures are not remembered. It
    keeps the last 1,000 summaries. Raises `ValueError` unless the limit is above 0.
    """

    def __init__(
        self,
        summarizer: Summarizer,
        *,
        prompts: Prompts | None = None,
        models: Mapping[str, Summarizer] | None = None,
        time_limit: float = TIME_LIMIT_S,
    ) -> None:
        if not time_limit > 0:
            raise ValueError(f"time_limit is above 0 seconds, not {time_limit}")
        self._summarizer = summarizer
        self._models = dict(models or {})
        self._time_limit = time_limit
        self._made: dict[tuple[str, Prompt, int | None], str] = {}
        self._calls: dict[tuple[str, Prompt, int | None], _Call] = {}
        self.prompts = prompts or Prompts()

    async def summarize(self, text: str, prompt: str | Prompt, length: int | None = None, told: Told = NOTHING_TOLD) -> str:
        """The summary of a text by a prompt, empty if no answer holds one.

        Raises `TimeoutError`, and whatever the summarizer raises.
        """
        if not isinstance(prompt, Prompt):
            prompt = Prompt(prompt)
        key = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), prompt, length)
        if key in self._made:
            return self._made[key]
        call = self._calls.get(key)
        if call is None or call.task.get_loop() is not asyncio.get_running_loop() or call.task.done():
            call = self._calls[key] = _Call(asyncio.create_task(self._ask(text, prompt, prompt.fill(text, length, told))))
        call.waiting += 1
        try:
            made = await asyncio.shield(call.task)
        finally:
            call.waiting -= 1
            if call.waiting == 0:
                call.task.cancel()  # nobody wants it any more; a call that is done stays as it is
            if self._calls.get(key) is call and (call.task.done() or call.waiting == 0):
                del self._calls[key]
        if made:
            self._made[key] = made
            if len(self._made) > _KEPT:
                del self._made[next(iter(self._made))]
        return made

    async def _ask(self, text: str, prompt: Prompt, instructions: str) -> str:
        for name in prompt.in_order:
            if name not in self._models:
                continue
            try:
                made = await self._ask_one(self._models[name], instructions, text)
            except Exception as error:  # noqa: BLE001 - the next model is asked
                _LOG.warning("summary.model_failed", model=name, error=type(error).__name__, length=len(text))
            else:
                if made:
                    return made
        return await self._ask_one(self._summarizer, instructions, text)

    async def _ask_one(self, summarizer: Summarizer, instructions: str, text: str) -> str:
        async with asyncio.timeout(self._time_limit):
            return read_summary(await summarizer(instructions, text))


class _Call:
    """A call under way, and how many wait for it."""

    def __init__(self, task: asyncio.Task[str]) -> None:
        self.task = task
        self.waiting = 0


class Compacted(msgspec.Struct, frozen=True):
    """A text that was compacted, and the name of the prompt, None if there was none."""

    decision: Decision
    prompt: str | None


async def shorten_results(
    text: str, maker: SummaryMaker, *, prompts: Sequence[str | None] = (), length: int | None = None, told: Told = NOTHING_TOLD
) -> Compacted:
    """The summary of a text with its marker; its first characters (`length` or 500) where there is none that is shorter.

    Never raises for what a summarizer does.
    """
    found = maker.prompts.find(*prompts)
    name = None if found is None else found[0]
    why = "its prompt is not known"
    if found is not None:
        try:
            summary = await maker.summarize(text, found[1], length, told)
        except Exception as error:  # noqa: BLE001 - a failed summary falls back
            why = f"the summary failed: {type(error).__name__}"
            _LOG.warning("summary.failed", error=type(error).__name__, length=len(text))
        else:
            shown = with_marker(summary, len(text))
            if summary and len(shown) < len(text):
                return Compacted(Decision("ai_summary", shown, "its turns are over"), name)
            why = "the summary was no shorter" if summary else "the answer held no summary"
    return Compacted(Decision("first_n_chars", first_n(text, length or FALLBACK_LENGTH), why), name)


async def plan(
    path: Sequence[Message],
    turn: int,
    choices: Choices,
    maker: SummaryMaker,
    *,
    rules: ExpirationRules = DEFAULT_RULES,
    tokenizer: Tokenizer = estimate,
) -> list[ContextCompacted]:
    """What must be recorded before the view of this turn is made: the texts of summaries that have become due.

    A fallback is recorded, too: the view stays as it is, and a summarizer that failed is not asked for ever. A text that
    can't become shorter has no record. Empty where nothing is due.
    """
    start = protected(path, choices) if rules.protect_prefix else 0
    due = [message for place, message in enumerate(path) if place >= start and _is_due(message, turn, choices)]
    made = await asyncio.gather(*(_compact(message, choices, maker) for message in due))
    return [
        remember(message, one.decision, turn, tokenizer)
        for message, one in zip(due, made, strict=True)
        if len(one.decision.text or "") < len(text_of(message))
    ]


def read_summary(answer: object) -> str:
    """The summary in an answer; empty if there is none.

    It is that of JSON `{"summary"}`, which may stand in a fence of code with words around it, or a text that is no JSON.
    JSON without it, or with one that is no text, holds none, and neither does JSON that breaks off.
    """
    if not isinstance(answer, str):
        return ""
    found = [one.value for one in objects_in(answer)]
    for one in found:
        if "summary" in one:
            return one["summary"].strip() if isinstance(one["summary"], str) else ""
    text = _unfenced(answer)
    if text.startswith("{") or (found and _FENCE in answer):
        return ""
    try:
        value: Any = decode(text)
    except InvalidJson:
        return text
    return value.strip() if isinstance(value, str) else ""


def _unfenced(answer: str) -> str:
    text = answer.strip()
    if not text.startswith(_FENCE) or "\n" not in text:
        return text
    return text[text.index("\n") + 1 :].removesuffix(_FENCE).strip()


def told_of(message: Message, choices: Choices) -> Told:
    """What a prompt is told of a message: what it is the result of, or who said it, and the turn it came in."""
    kind = "action-result" if message.role == "tool" else _TYPES.get(message.role, "unknown")
    if message.id in choices.results and message.role != "tool":
        said = message.metadata_text.get(RESULT, "").strip('"').replace("_", "-")
        kind = f"{said or 'action'}-result"
    return Told(kind, choices.turn_added.get(message.id, 0))


_TYPES: Final = {"user": "user-input", "system": "system", "developer": "system", "assistant": "assistant-message"}


async def _compact(message: Message, choices: Choices, maker: SummaryMaker) -> Compacted:
    policy, text = choices.policies[message.id], text_of(message)
    if message.id in choices.redacted:
        shown = first_n(text, policy.compact_length or FALLBACK_LENGTH)
        return Compacted(Decision("first_n_chars", shown, "it was redacted: its summary is not made again"), None)
    told = told_of(message, choices)
    return await shorten_results(text, maker, prompts=[policy.compact_prompt], length=policy.compact_length, told=told)


def _is_due(message: Message, turn: int, choices: Choices) -> bool:
    policy = choices.policies.get(message.id)
    if policy is None or policy.compact_mode != "ai_summary" or isinstance(message, Shortened):
        return False
    if not has_expired(policy, turn - choices.dated(message.id, turn)):
        return False
    recorded = choices.compacted.get(message.id)
    is_known = recorded is not None and recorded.turn <= turn
    is_possible = len(with_marker("x", len(text_of(message)))) < len(text_of(message))
    return is_possible and not is_known
