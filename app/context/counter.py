"""Tokens of messages and tools, for one model: exact where its server or a tokenizer file says, else estimated."""

from __future__ import annotations

import json
from collections.abc import Sequence

from app.messages import Message
from app.provider import Provider
from app.providers.native import NATIVE
from tools.tool import Tool

CHARACTERS_PER_TOKEN = 4
DEFAULT_WINDOW = 32_768


class Counter:
    """One per model and server process; its cache holds for all sessions. `window`: what the settings say."""

    def __init__(self, provider: Provider, window: int | None = None) -> None:
        self._provider = provider
        self._window = window

    async def window(self) -> int:
        """Tokens that the model can read and write at a time: set, learned, or DEFAULT_WINDOW; never a guess below."""
        return self._window or await self._provider.window() or DEFAULT_WINDOW

    async def prepare(self, messages: Sequence[Message]) -> None:
        """Count the messages not counted before, so that `measure` is exact where it can be. Never raises."""

    def measure(self, message: Message) -> int:
        """Tokens of the message as it goes over the wire."""
        size = weight(message.text)
        size += sum(len(json.dumps(call.arguments)) for call in message.calls if call.dialect == NATIVE)
        return size // CHARACTERS_PER_TOKEN

    def described(self, tools: Sequence[Tool]) -> int:
        """Tokens of the tools' schemas."""
        return sum(map(described, tools)) // CHARACTERS_PER_TOKEN

    def learn(self, counted: int, prompt_tokens: int) -> None:
        """The server counted `prompt_tokens` where all messages and tools were measured as `counted`."""

    def refused(self, counted: int, window: int | None) -> None:
        """The server refused a prompt of `counted` as too long, and said (or not) how long it may be."""


def weight(text: str) -> int:
    """Bytes of UTF-8: other scripts need more tokens per character."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def described(tool: Tool) -> int:
    return len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters))
