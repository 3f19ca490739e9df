"""Tokens of messages and tools, for one model: exact where its server or a tokenizer file says, else estimated."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from app.core.attachments import CANNOT, Attachment, described
from app.core.messages import AskedCall, Message
from app.core.provider import Provider
from app.models.tokens.estimates import CHARACTERS_PER_TOKEN, LRUCache, Scale, estimated
from app.models.tokens.picture_tokens import tokens_of
from app.models.wire.openai.history import native_calls, wire_tools
from tools.tool import Tool

__all__ = ["CHARACTERS_PER_TOKEN", "DEFAULT_WINDOW", "TokenCounter"]

DEFAULT_WINDOW = 32_768
LEAST_WINDOW = 2048  # that refusals without a number leave: servers with smaller ones tell it
ROLE = 5  # tokens that a chat template puts around a message
ANSWER = 4  # and in front of the answer; they are counted with the system's message
CALL = 12  # and around a native call: its id, its kind, brackets
TOOLS = 60  # what templates say in front of native tools
REMEMBERED = 1 << 16  # texts
LONG = 100_000  # characters; of longer texts only SAMPLES parts are counted
SAMPLES = 8
SAMPLE = 4000  # characters
PART = 256 * 1024  # characters that are counted in one go; what was counted stays if the time is over
LIMIT_S = 5.0  # for all counting of one round
AGAIN_S = 60.0  # after a round in which nothing was counted in that time

Key = tuple[int, int]
CountTokens = Callable[[Sequence[str]], Awaitable[list[int] | None]]


@dataclass(frozen=True, slots=True)
class MeasuredText:
    """A text that is not kept: what it is known by, and about how many tokens it has."""

    key: Key
    estimate: float


class TokenCounter:
    """One per model and server process; what it remembers holds for all sessions. `window`: what the settings say.

    `count_tokens` is a tokenizer of the model's own; without one its server is asked. Texts that neither has counted
    are estimated, by a scale that is learned from those they have; and all of it is put right by what the server
    reports of whole requests.
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
        self._learned: int | None = None  # what the provider has said last
        self._named: int | None = None  # what a refusal has named
        self._most: int | None = None  # what refusals without a number leave
        self._counts: LRUCache[Key, int] = LRUCache(REMEMBERED)
        self._estimates: LRUCache[Key, float] = LRUCache(REMEMBERED)
        self._calls: LRUCache[tuple[object, ...], MeasuredText] = LRUCache(REMEMBERED)
        self._tools: LRUCache[int, tuple[Tool, str]] = LRUCache(REMEMBERED // 16)
        self._texts = Scale()
        self._whole = Scale()
        self.sees: Callable[[str], bool | None] = lambda ability: None  # what the model cannot see is sent in words

    async def window(self) -> int:
        """Tokens that the model can read and write at a time: set, learned, or DEFAULT_WINDOW; never a guess below."""
        said = await self._provider.window()  # asked in any case: the provider learns more than that
        if not self._window:
            self._learned = said or self._learned
        return self.known_window

    @property
    def known_window(self) -> int:
        """The window as far as it is known by now, for those who cannot wait."""
        window = self._window or self._learned or DEFAULT_WINDOW
        if self._named:
            window = min(self._named, self._window) if self._window else self._named
        return min(window, self._most) if self._most else window

    @property
    def scale(self) -> float:
        """By which everything is multiplied at present: to be given back with what `learn` is told."""
        return self._whole.value

    async def prepare(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> None:
        """Count what was not counted before, so that `measure` is exact where it can be. Never raises."""
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
            if not counted:  # a run must not wait so long in each of its rounds
                self._not_before = self._clock() + AGAIN_S

    def measure(self, message: Message) -> int:
        """Tokens of the message as it goes over the wire."""
        tokens = ROLE + self._tokens(message.text) + self._tokens(self._provider.added(message))
        if message.role == "system":
            tokens += ANSWER
        if message.calls:  # those that are not native are part of the text
            tokens += sum(CALL + self._tokens_of(self._weighed(call)) for call in native_calls(message))
        return math.ceil(tokens * self._whole.value + sum(map(self._shown, message.attachments)))

    def _shown(self, attachment: Attachment) -> float:
        """Not by the scale, which is learned from texts."""
        if self.sees(attachment.ability) is False:
            return self._tokens(described(attachment, CANNOT))
        return tokens_of(attachment, self._provider.model)

    def described(self, tools: Sequence[Tool]) -> int:
        """Tokens of the tools' schemas, as they are offered natively."""
        if not tools:
            return 0
        tokens = TOOLS + sum(self._tokens(self._described(tool)) for tool in tools)
        return math.ceil(tokens * self._whole.value)

    def learn(self, counted: int, prompt_tokens: int, scale: float | None = None) -> None:
        """The server counted `prompt_tokens` where all messages and tools were measured as `counted`, by `scale`."""
        self._whole.learn(counted, prompt_tokens, scale)

    def refused(self, counted: int, window: int | None) -> None:
        """The server refused a prompt of `counted` as too long, and said (or not) how long it may be."""
        if window:
            self._named = window
            if window / 2 <= counted < window:  # else it was not the prompt that was too long, but the answer asked for
                self._whole.learn(counted, window)
        elif counted > LEAST_WINDOW:
            self._most = max(LEAST_WINDOW, min(counted * 3 // 4, self._most or counted))

    def doubt(self) -> None:
        """What refusals have said leaves no room for a conversation: the next one asks the server again."""
        self._named = self._most = None

    async def _count(self, texts: Sequence[str]) -> bool:
        """Have the texts counted; False if nobody can."""
        sampled = [sample(text) for text in texts]
        counts = await self._count_tokens(sampled)
        if counts is None:
            return False
        for text, part, count in zip(texts, sampled, counts, strict=True):
            self._counts.put(key_of(text), math.ceil(count * len(text) / len(part)))
        self._texts.learn(sum(map(estimated, sampled)), sum(counts), used=1.0)
        return True

    def _uncounted(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Iterable[str]:
        """The texts that nobody has counted, each once."""
        texts = [text for message in messages for text in (message.text, self._provider.added(message))]
        texts += map(self._described, tools)
        found = {key: text for text in texts if text and (key := key_of(text)) not in self._counts}
        for call in (call for message in messages for call in native_calls(message)):
            if self._weighed(call).key not in self._counts:
                found[self._weighed(call).key] = written(call)
        return found.values()

    def _tokens(self, text: str) -> float:
        if not text:
            return 0
        key = key_of(text)
        counted = self._counts.get(key)
        return self._estimate(key, text) * self._texts.value if counted is None else counted

    def _tokens_of(self, weighed: MeasuredText) -> float:
        counted = self._counts.get(weighed.key)
        return weighed.estimate * self._texts.value if counted is None else counted

    def _estimate(self, key: Key, text: str) -> float:
        if text.isascii():  # which Python knows without looking
            return estimated(text)
        estimate = self._estimates.get(key)
        if estimate is None:
            estimate = estimated(text)
            self._estimates.put(key, estimate)
        return estimate

    def _weighed(self, call: AskedCall) -> MeasuredText:
        """Known by its id, and the lengths of what it says: an approval may have changed the arguments."""
        key = (call.id, call.name, *((name, sized(value)) for name, value in call.arguments.items()))
        weighed = self._calls.get(key)
        if weighed is None:
            text = written(call)
            weighed = MeasuredText(key_of(text), estimated(text))
            self._calls.put(key, weighed)
        return weighed

    def _described(self, tool: Tool) -> str:
        known = self._tools.get(id(tool))
        if known is None:  # which keeps the tool, so that no other can have its id
            known = tool, json.dumps(wire_tools([tool])[0])
            self._tools.put(id(tool), known)
        return known[1]


async def create_counter(provider: Provider, window: int | None, tokenizer: Path | None) -> TokenCounter:
    """With the tokenizer file, if there is one. Raises SettingsError for a file that is none."""
    if tokenizer is None:
        return TokenCounter(provider, window)
    module = import_module("app.models.tokens.tokenizer_file")  # here: few need it, and all would wait for it at start
    return TokenCounter(provider, window, (await module.TokenizerFile.opened(tokenizer)).count_tokens)


def key_of(text: str) -> Key:
    """Python remembers the hash of a text: for one that is measured again this costs nothing."""
    return hash(text), len(text)


def written(call: AskedCall) -> str:
    return f"{call.name} {json.dumps(call.arguments)}"


def sized(value: object) -> object:
    return len(value) if isinstance(value, str) else repr(value)


def sample(text: str) -> str:
    """The text, or parts from all over a long one."""
    if len(text) <= LONG:
        return text
    step = (len(text) - SAMPLE) // (SAMPLES - 1)
    return "".join(text[start : start + SAMPLE] for start in range(0, step * SAMPLES, step))


def parts(texts: Iterable[str]) -> Iterator[list[str]]:
    """In parts that are counted in one go."""
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
