"""Classification of tools: risk, role, approval, outbound effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

CLIENT_TOOLS = "client_tools"  # in patterns of tool names: every tool that a client runs itself, whatever it calls it


class Risk(StrEnum):
    """The strongest effect of a tool, mildest first."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"
    ADMIN = "admin"


class Role(StrEnum):
    """The role of a principal, least first."""

    GUEST = "guest"
    USER = "user"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {role: rank for rank, role in enumerate(Role)}  # looked up dozens of times in each round


class Column(StrEnum):
    """The part of an argument in what its call does, by which the gate weighs its values (app.policy.values)."""

    RECIPIENT = "recipient"
    ADDRESS = "address"
    PATH = "path"
    IDENTIFIER = "identifier"
    AMOUNT = "amount"
    COMMAND = "command"
    HEADING = "heading"
    CONTENT = "content"
    INSIDE = "inside"
    PLAIN = "plain"


class Hints(Struct, frozen=True):
    """A server's statements about its tool (MCP's `annotations`); None where it makes none."""

    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None


class Origin(Struct, frozen=True):
    """The MCP server that a tool is of, its name there, and the server's hints."""

    server: str
    tool: str
    hints: Hints = Hints()


class Trust(Struct, frozen=True):
    """A declaration of an MCP server, or of one of its tools, as trusted. None leaves a value as it is.

    `arguments` are the columns of arguments by name; without them they are guessed.
    """

    role: Role | None = None
    risk: Risk | None = None
    untrusted: bool | None = None
    arguments: Mapping[str, Column] | None = None

    @property
    def words(self) -> str:
        """The declaration in a line."""
        given = [
            f"role {self.role}" if self.role else "",
            f"risk {self.risk}" if self.risk else "",
            "" if self.untrusted is None else results_in_words(self.untrusted),
            columns_in_words(self.arguments or {}),
        ]
        return ", ".join(filter(None, given)) or "its hints count"


def results_in_words(untrusted: bool) -> str:
    return "results untrusted" if untrusted else "results trusted"


def columns_in_words(arguments: Mapping[str, Column]) -> str:
    return " ".join(f"{name}={column}" for name, column in arguments.items())


Approval = Literal["mode", "never", "always"]
"""When a call needs approval: as the run's mode says, never, or always."""


class OutboundEffect(Struct, frozen=True):
    """An effect of a call outside of the workspace and the sandbox: data sent, or files for programs there.

    `what` is a sentence for the person who approves. `always`: approval is needed in every mode, and only a grant for
    exactly this call replaces it; if it is `firm`, nothing does. `carries_text`: the call sends out a text that can
    hold anything.
    """

    what: str
    always: bool = False
    carries_text: bool = False
    firm: bool = False


def names_match(names: Iterable[str], patterns: Iterable[str]) -> bool:
    """Return True if one of the names of a tool, in its case, matches one of the patterns (`mcp__files__*`).

    An empty name matches none. Tokens, sessions, profiles, labels, rules, hooks and classifications match names so.
    """
    given = [name for name in names if name]
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in given)
