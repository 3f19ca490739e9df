"""The parts of a conversation that its commands read and change."""

from __future__ import annotations

from typing import Protocol

from rich.console import RenderableType

from routes.terminal.api import Api
from routes.terminal.event_client import Choices


class Prompt(Protocol):
    """Prints, and reads an answer."""

    async def read(self, prompt: str, menu: str = "", draft: str = "") -> str: ...
    def print(self, *pieces: RenderableType) -> None: ...


class Conversation(Protocol):
    """A conversation, for its commands."""

    api: Api
    choices: Choices
    last_message: str | None
    listed: list[str]  # sessions, as /sessions numbered them
    names: dict[str, list[str]]  # what the argument of a command may be, as far as it is known
    left: bool

    @property
    def terminal(self) -> Prompt: ...
    def say(self, line: str, style: str = "") -> None:
        """Print a line of ours."""

    def problem(self, line: str) -> None: ...
    async def send(self, message: str) -> int: ...
