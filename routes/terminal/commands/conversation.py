"""A conversation, as its commands read and change it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from rich.console import Group
from rich.text import Text

from routes.terminal.answers import Terminal
from routes.terminal.api import Api
from routes.terminal.event_client import Choices
from routes.terminal.standing import Standing


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

    def say(self, line: str, style: str = "") -> None:
        """Print a line of ours, wrapped at words."""
        self.terminal.print(Group(Text(line, style)))

    def problem(self, line: str) -> None:
        self.say(f"! {line}", "yellow")

    @abstractmethod
    async def send(self, message: str) -> int:
        """Run a turn and return its exit code. Raises ChatFailed, Left."""
