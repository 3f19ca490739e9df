"""The events of `Parser.feed`, and `Parsed`, their sum for a whole text.

Text and Thought are made once per token, so they are strings in all but name: a string subclass is the cheapest
immutable value there is, and one event may be handed out many times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Arguments = dict[str, Any]


class _Words(str):
    """Words of the model. Equal only to words of the same kind."""

    __slots__ = ()
    __match_args__ = ("text",)

    @property
    def text(self) -> str:
        return str.__str__(self)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str.__repr__(self)})"


class Text(_Words):
    """Text to show, verbatim as the model wrote it."""

    __slots__ = ()


class Thought(_Words):
    """Reasoning: kept apart from what is shown."""

    __slots__ = ()


@dataclass(slots=True)
class CallOpened:
    """A call has surely begun. `index` counts the calls and rejected calls of one reply from 0."""

    index: int
    name: str


@dataclass(slots=True)
class CallDelta:
    """A further piece of an open call's arguments, as the model writes them. Never change one: replies share it."""

    index: int
    text: str


@dataclass(slots=True)
class Call:
    """A whole call. `dialect` is a row's name in `DIALECTS`, or `native`.

    `repairs` says, a sentence each, which arguments were text and are read as the type that the tool's schema wants.
    """

    index: int
    name: str
    arguments: Arguments
    dialect: str
    repairs: tuple[str, ...] = ()


@dataclass(slots=True)
class BadCall:
    """An attempt at a call that cannot be run. `reason` is for the model: how to send it again.

    `raw` is empty when the text was shown, as an unclosed fence is.
    """

    index: int
    raw: str
    reason: str


@dataclass(slots=True)
class Reclassified:
    """The last `characters` code points of all text shown so far were thought, and the last `calls` calls drafts in it.

    The thought was opened in the prompt, which is only known where it ends. Rejected calls count among the calls.
    """

    characters: int
    calls: int = 0


ParseEvent = Text | Thought | Reclassified | CallOpened | CallDelta | Call | BadCall


@dataclass(slots=True)
class Parsed:
    """A whole text, read."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    rejected: list[BadCall] = field(default_factory=list)
