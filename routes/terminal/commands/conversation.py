"""A conversation, as its commands read and change it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from msgspec import Struct
from rich.console import Group
from rich.text import Text

from routes.terminal.answers import Interrupted, Over, Terminal
from routes.terminal.api import Api
from routes.terminal.event_client import Choices
from routes.terminal.standing import Standing


class Rewound(Struct, frozen=True):
    """The place at which the next message begins a branch: before this run."""

    session: str
    run: str


class Conversation(ABC):
    """The part of a conversation that its commands know."""

    def __init__(self, terminal: Terminal, api: Api, choices: Choices) -> None:
        self.terminal = terminal
        self.api = api
        self.choices = choices
        self.standing = Standing(choices)
        self.last_message: str | None = None
        self.listed: list[str] = []  # sessions, as /sessions numbered them
        self.names: dict[str, list[str]] = {}  # what the arguments of commands may be, as far as it is known
        self.left = False  # by a command
        self.draft = ""  # of the next message, put at the prompt
        self.rewound: Rewound | None = None

    def say(self, line: str, style: str = "") -> None:
        """Print a line of ours, wrapped at words."""
        self.terminal.print(Group(Text(line, style)))

    def problem(self, line: str) -> None:
        self.say(f"! {line}", "yellow")

    async def pick(self, prompt: str, rows: Sequence[str]) -> int | None:
        """One row of a list, by its place; None when the person goes back."""
        try:
            return await self.terminal.pick(prompt, rows)
        except (Interrupted, Over):
            return None

    @abstractmethod
    async def send(self, message: str) -> int:
        """Run a turn and return its exit code. Raises ChatFailed, Left."""
