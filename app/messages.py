"""The history of a conversation: what was said, asked of tools and answered, in the order it happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parsing import Arguments


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call that the model made. `id` is ours and unique in the session."""

    id: str
    name: str
    arguments: Arguments
    dialect: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    `text` of an assistant message is what the model wrote, markup of text calls included, so that a model which
    calls in text sees its own words again; `shown` is what the client saw of it. A `tool` message answers `call`.
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    calls: tuple[AskedCall, ...] = ()
    call: str | None = None
    name: str | None = None
    reasoning: str = ""
    shown: str | None = None
