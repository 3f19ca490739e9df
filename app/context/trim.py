"""Leaving out and shortening messages until they fit a budget: pure, synchronous, linear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.messages import Message

Measure = Callable[[Message], int]
"""Tokens of one message as it goes over the wire."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """`messages` fit; `dropped` counts those left out, `shortened` those cut; `before` and `after` are tokens."""

    messages: list[Message]
    dropped: int
    shortened: int
    before: int
    after: int


def trim(
    messages: Sequence[Message], budget: int, measure: Measure, *, opening: int = 1, target: int | None = None
) -> Trimmed:
    """The messages as they fit `budget` tokens. The first `opening` are the prompt and its worked examples.

    When they do not fit, the gentle rungs go on until `target` (default: the budget), so that the next rounds need no
    trimming and the model's prefix cache holds. Raises ContextOverflow.
    """
    raise NotImplementedError
