"""Token counter of one model: exact where its server or a tokenizer file counts, else estimated."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from app.core.attachments import Attachment, substitute
from app.core.messages import AskedCall, Message
from app.core.provider import Provider
from app.models.tokens.estimates import LRUCache, Scale, estimated
from app.models.tokens.picture_tokens import tokens_of
from app.models.wire.openai.history import native_calls, wire_tools
from tools.tool import Tool, ToolList

DEFAULT_WINDOW = 32_768
LEAST_WINDOW = 2048  # lower bound after refusals without a number
ROLE = 5  # tokens that a chat template adds to a message
ANSWER = 4  # tokens in front of the answer, counted with the system message
CALL = 12  # tokens around a native call: id, type, brackets
TOOLS = 60  # tokens that templates put in front of native tools
REMEMBERED = 1 << 16  # texts
SESSIONS = 256  # that have met a limit last
SHARED = 64  # openings and lists of tools, which many requests share
LONG = 100_000  # characters; of longer texts only SAMPLES parts are counted
SAMPLES = 8
SAMPLE = 4000  # characters
PART = 256 * 1024  # characters per request; finished parts are kept at a timeout
LIMIT_S = 5.0  # for all counting of one round
AGAIN_S = 60.0  # pause after a round in which counting timed out

Key = tuple[int, int]
CountTokens = Callable[[Sequence[str]], Awaitable[list[int] | None]]


class MeasuredText(Struct, frozen=True):
    """The cache key and the estimate of a text that is not kept."""

    key: Key
    estimate: float


class CountedModel(Protocol):
    """A model that has a token counter, or several models in turn, of which the next one's counts."""

    @property
    def counter(self) -> TokenCounter: ...


class RefusedSizes(Struct):
    """Limits that refusals of prompts have taught: `named` by the server, `most` a guess where it names none."""

    named: int | None = None
    most: int | None = None


class TokenCounter:
    """Token counter of one model, shared by all sessions. `window` is the configured context window.

    A limit from a refusal holds for the session that met it: one odd error does not change the model for all. It
    holds for all once another session has met it, or if the server lists it.

    `count_tokens` is the model's own tokenizer; without it the server counts. Texts that neither has counted are
    estimated, with a scale learned from counted texts. A second scale corrects totals by the usage that the server
    reports.
    """

    def __init__(
        self,
        provider: Provider,
        window: int | None = None,
        count_tokens: CountTokens | None = None,
        limit_s: float = LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._window = window
        self._limit_s = limit_s
        self._clock = clock
        self._not_before = -math.inf
        self._count_tokens = count_tokens or provider.count_tokens
        self._listed: int | None = None  # the same, although another is configured
        self._confirmed = RefusedSizes()
        self._refused: LRUCache[str, RefusedSizes] = LRUCache(SESSIONS)
        self._counts: LRUCache[Key, int] = LRUCache(REMEMBERED)
        self._estimates: LRUCache[Key, float] = LRUCache(REMEMBERED)
        self._calls: LRUCache[tuple[object, ...], MeasuredText] = LRUCache(REMEMBERED)
        self._tools: LRUCache[int, tuple[Tool, str]] = LRUCache(REMEMBERED // 16)
        self._openings: LRUCache[int, tuple[Sequence[Message], object, Sequence[float]]] = LRUCache(SHARED)
        self._schemas: LRUCache[int, tuple[Sequence[Tool], int, float]] = LRUCache(SHARED)
        self._texts_counted = 0
        self._texts = Scale()
        self._whole = Scale()
        self.sees: Callable[[str], bool | None] = lambda ability: None  # files it cannot see are described

    async def window(self, session: str = "") -> int:
        """Return the context window: configured, learned, or DEFAULT_WINDOW."""
        reported = await self._provider.window()  # in any case: the provider also learns other abilities
        self._listed = reported or self._listed
        return self.window_of(session)

    @property
    def known_window(self) -> int:
        """The window as known by now, without waiting."""
        return self.window_of("")

    def window_of(self, session: str) -> int:
        """Return the window as known by now, in a session that may have met a limit."""
        own, confirmed = self._refused.get(session) or self._confirmed, self._confirmed
        window = self._window or self._listed or DEFAULT_WINDOW
        if named := own.named or confirmed.named:
            window = min(named, self._window) if self._window else named
        return min(window, own.most or window, confirmed.most or window)

    @property
    def scale(self) -> float:
        """The current correction factor; pass it to `learn` with the counts made by it."""
        return self._whole.value

    @property
    def scales(self) -> tuple[float, float]:
        """The two scales: of totals, and of estimated texts."""
        return self._whole.value, self._texts.value

    @property
    def counts_exactly(self) -> bool:
        """True once texts have been counted by a tokenizer."""
        return self._texts_counted > 0

    def restore(self, window: int, whole: float, texts: float) -> None:
        """Count as a counter did that had learned so much."""
        self._window, self._whole.value, self._texts.value = window, whole, texts

    async def prepare(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> None:
        """Count texts that are not cached, so that `measure` is exact where possible. Never raises."""
        if self._clock() < self._not_before:
            return
        counted = False
        try:
            async with asyncio.timeout(self._limit_s):
                if await self._count_tokens(()) is None:
                    return
                for part in parts(self._uncounted(messages, tools)):
                    if not await self._count(part):
                        return
                    counted = True
        except TimeoutError:  # the rest is estimated
            if not counted:  # do not wait so long in every round
                self._not_before = self._clock() + AGAIN_S

    def measure(self, message: Message) -> int:
        """Return the tokens of a message as sent."""
        attached = sum(map(self._attachment_tokens, message.attachments)) if message.attachments else 0
        return math.ceil(self.unscaled(message) * self._whole.value + attached)

    def unscaled(self, message: Message) -> float:
        """Return the tokens of a message's texts as they are counted, before the scale of totals."""
        tokens = ROLE + self._tokens(message.text) + self._tokens(self._provider.added(message))
        if message.role == "system":
            tokens += ANSWER
        if message.calls:  # those that are not native are part of the text
            tokens += sum(CALL + self._tokens_of(self._measured(call)) for call in native_calls(message))
        return tokens

    def measure_opening(self, messages: Sequence[Message]) -> int:
        """Return the tokens of the messages that requests begin with. Many requests share a tuple of them.

        They have no attachments. Their tokens are kept until texts have been counted, or other tools are native.
        """
        if not isinstance(messages, tuple):
            return sum(map(self.measure, messages))
        basis = self._texts_counted, self._provider.native_tools
        known = self._openings.get(id(messages))
        if known is None or known[1] != basis:  # a reference to the messages keeps their id unique
            known = messages, basis, tuple(map(self.unscaled, messages))
            self._openings.put(id(messages), known)
        scale = self._whole.value
        return sum([math.ceil(tokens * scale) for tokens in known[2]])

    def _attachment_tokens(self, attachment: Attachment) -> float:
        """Return the tokens of an attachment, without the scale, which is learned from texts."""
        sees = self.sees(attachment.ability)
        if sees is False or (attachment.text and not sees):
            return self._tokens(substitute(attachment))
        return tokens_of(attachment, self._provider.model)

    def described(self, tools: Sequence[Tool]) -> int:
        """Return the tokens of the tool schemas of a native request."""
        if not tools:
            return 0
        known = self._schemas.get(id(tools)) if isinstance(tools, ToolList) else None
        if known is None or known[1] != self._texts_counted:
            tokens = TOOLS + sum(self._tokens(self._described(tool)) for tool in tools)
            known = tools, self._texts_counted, tokens
            if isinstance(tools, ToolList):
                self._schemas.put(id(tools), known)
        return math.ceil(known[2] * self._whole.value)

    def learn(self, counted: int, prompt_tokens: int, scale: float | None = None) -> None:
        """Adjust the scale: the server reported `prompt_tokens` for a request measured as `counted` with `scale`."""
        self._whole.learn(counted, prompt_tokens, scale)

    def refused(self, counted: int, window: int | None, session: str = "") -> None:
        """Record that a prompt of `counted` tokens was refused as too long; `window` is the limit, if known."""
        own = self._refused.get(session) or RefusedSizes()
        others = [one for name, one in self._refused.items if name != session]
        if window:
            own.named = window
            if window == self._listed or any(one.named == window for one in others):
                self._confirmed.named = window
            if window / 2 <= counted < window:  # else prompt and answer together were too long
                self._whole.learn(counted, window)
        elif counted > LEAST_WINDOW:
            own.most = max(LEAST_WINDOW, min(counted * 3 // 4, own.most or counted))
            if guesses := [one.most for one in others if one.most]:
                self._confirmed.most = max(own.most, *guesses)
        self._refused.put(session, own)

    def doubt(self, session: str = "") -> None:
        """Drop limits learned from refusals that leave no room for a conversation."""
        self._confirmed = RefusedSizes()
        self._refused.put(session, RefusedSizes())

    async def _count(self, texts: Sequence[str]) -> bool:
        """Count the texts; return False if no exact counter exists."""
        sampled = [sample(text) for text in texts]
        counts = await self._count_tokens(sampled)
        if counts is None:
            return False
        for text, part, count in zip(texts, sampled, counts, strict=True):
            self._counts.put(key_of(text), math.ceil(count * len(text) / len(part)))
        self._texts_counted += len(texts)
        self._texts.learn(sum(map(estimated, sampled)), sum(counts), used=1.0)
        return True

    def _uncounted(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Iterable[str]:
        """Return the distinct texts without an exact count."""
        texts = [text for message in messages for text in (message.text, self._provider.added(message))]
        texts += map(self._described, tools)
        found = {key: text for text in texts if text and (key := key_of(text)) not in self._counts}
        for call in (call for message in messages for call in native_calls(message)):
            if self._measured(call).key not in self._counts:
                found[self._measured(call).key] = call_text(call)
        return found.values()

    def _tokens(self, text: str) -> float:
        if not text:
            return 0
        key = key_of(text)
        counted = self._counts.get(key)
        return self._estimate(key, text) * self._texts.value if counted is None else counted

    def _tokens_of(self, measured: MeasuredText) -> float:
        counted = self._counts.get(measured.key)
        return measured.estimate * self._texts.value if counted is None else counted

    def _estimate(self, key: Key, text: str) -> float:
        if text.isascii():  # O(1) in CPython
            return estimated(text)
        estimate = self._estimates.get(key)
        if estimate is None:
            estimate = estimated(text)
            self._estimates.put(key, estimate)
        return estimate

    def _measured(self, call: AskedCall) -> MeasuredText:
        """Return a call's cached estimate, by id and argument lengths: an approval may have changed the arguments."""
        key = (call.id, call.name, *((name, sized(value)) for name, value in call.arguments.items()))
        measured = self._calls.get(key)
        if measured is None:
            text = call_text(call)
            measured = MeasuredText(key_of(text), estimated(text))
            self._calls.put(key, measured)
        return measured

    def _described(self, tool: Tool) -> str:
        known = self._tools.get(id(tool))
        if known is None:  # a reference to the tool keeps its id unique
            known = tool, json.dumps(wire_tools([tool])[0])
            self._tools.put(id(tool), known)
        return known[1]


async def create_counter(provider: Provider, window: int | None, tokenizer: Path) -> TokenCounter:
    """Create a counter with the tokenizer file. Raises SettingsError for an invalid one."""
    module = import_module("app.models.tokens.tokenizer_file")  # imported lazily: few need it, and it slows start-up
    return TokenCounter(provider, window, await module.load_tokenizer(tokenizer))


def key_of(text: str) -> Key:
    """Return a cache key; CPython caches the hash of a string, so repeated calls are free."""
    return hash(text), len(text)


def call_text(call: AskedCall) -> str:
    return f"{call.name} {json.dumps(call.arguments)}"


def sized(value: object) -> object:
    return len(value) if isinstance(value, str) else repr(value)


def sample(text: str) -> str:
    """Return the text, or evenly spaced samples of a long one."""
    if len(text) <= LONG:
        return text
    step = (len(text) - SAMPLE) // (SAMPLES - 1)
    return "".join(text[start : start + SAMPLE] for start in range(0, step * SAMPLES, step))


def parts(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the texts in parts for one request each."""
    part: list[str] = []
    size = 0
    for text in texts:
        if part and size + min(len(text), LONG) > PART:
            yield part
            part, size = [], 0
        part.append(text)
        size += min(len(text), LONG)
    if part:
        yield part
