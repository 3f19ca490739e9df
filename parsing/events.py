"""What the parser says it saw: the events of `Parser.feed`, and `Parsed`, their sum for a whole text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Arguments = dict[str, Any]


@dataclass(slots=True)
class Text:
    """Text to show, verbatim as the model wrote it."""

    text: str


@dataclass(slots=True)
class Thought:
    """Reasoning: kept apart from what is shown."""

    text: str


@dataclass(slots=True)
class CallOpened:
    """A call has surely begun. `index` counts the calls and rejected calls of one reply from 0."""

    index: int
    name: str


@dataclass(slots=True)
class CallDelta:
    """A further piece of an open call's arguments, as the model writes them."""

    index: int
    text: str


@dataclass(slots=True)
class Call:
    """A whole call. `dialect` is a row's name in `DIALECTS`, or `native`."""

    index: int
    name: str
    arguments: Arguments
    dialect: str


@dataclass(slots=True)
class BadCall:
    """Something that was meant as a call but cannot be run. `reason` tells the model what to do."""

    index: int
    raw: str
    reason: str


ParseEvent = Text | Thought | CallOpened | CallDelta | Call | BadCall


@dataclass(slots=True)
class Parsed:
    """A whole text, read."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    rejected: list[BadCall] = field(default_factory=list)
