"""Leaving out and shortening messages until they fit a budget: pure, synchronous, linear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.context.compaction.message_groups import answering
from app.context.compaction.steps import Draft, Measure, firmly, gently
from app.context.overflow import overflow
from app.core.messages import Message


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
    trimming and the model's prefix cache holds. What fits stays as it is, but for results that answer no call. Raises
    ContextOverflow.
    """
    positions = answering(messages)
    kept = [messages[at] for at in positions]
    sizes = [measure(message) for message in messages]
    before, total = sum(sizes), sum(sizes[at] for at in positions)
    if total <= budget:
        return Trimmed(kept, len(messages) - len(kept), 0, before, total)
    draft = Draft(kept, [sizes[at] for at in positions], measure, opening)
    gently(draft, budget if target is None else min(target, budget))
    firmly(draft, budget)
    if draft.total > budget:
        raise overflow(draft, budget)
    cut = sum(message is not kept[at] for at, message in draft.kept.items())
    return Trimmed(list(draft.kept.values()), len(messages) - len(draft.kept), cut, before, draft.total)
