"""A measure that remembers: while one request is made, its messages are measured again and again."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.context.compaction.steps import Measure
from app.core.messages import Message


@dataclass(slots=True)
class Measured:
    """The same as `measure`, which is asked once for each message; for as long as it would say the same."""

    measure: Measure
    _known: dict[int, tuple[Message, int]] = field(default_factory=dict)  # by id, which the message keeps its own

    def __call__(self, message: Message) -> int:
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = message, self.measure(message)
        return known[1]
