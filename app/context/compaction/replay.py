"""A history walked message by message, made to fit wherever a request was made.

A pure function of the history: the next round, the next turn and the next server come to the same messages, so that
two requests have the longest beginning in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.context.compaction.steps import PROMPT, Measure
from app.context.compaction.trim import Trimmed, trim
from app.context.overflow import ContextOverflow
from app.core.messages import Message
from app.models.tokens.cutting import shortened

TARGET = 0.75  # of the budget: what trimming leaves, so that the next rounds need none


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens that the messages of a request may take; `head` are those in front of the conversation.

    `described` are those of the tools' schemas, which the budget is without.
    """

    head: Sequence[Message]
    budget: int
    measure: Measure
    described: int = 0


class Fold:
    """What is left of a session's messages from position `start` on; `summary` stands for those before."""

    def __init__(self, start: int = 0, summary: Message | None = None) -> None:
        self.start = start
        self.summary = summary
        self.walked = start
        self.last: Message | None = None  # that was walked
        self.kept = [summary] if summary else []
        self.lossy = False  # something was left out, or shortened
        self.grown = 0  # tokens of all that was walked
        self.failed_at: int | None = None  # what it had grown to when a summary failed
        self._asked = False  # what is kept is what the last request carried
        self._slim = False  # the system prompt is shortened, and stays so
        self._hopeless = 0  # tokens that could not be made to fit: not tried again until there are twice as many

    def walk(self, messages: Sequence[Message], room: Room) -> None:
        """Go on to the end of the session's messages. Linear: each trimming leaves a quarter of the room free."""
        head = sum(map(room.measure, self.opening(room.head)))
        total = head + sum(map(room.measure, self.kept))
        for message in messages[self.walked :]:
            if message.role == "assistant":
                # Counts may have grown since that request: what it carried, the model's server has in its cache.
                if not self._asked and total > max(room.budget, self._hopeless):
                    total = self._trimmed(room, total)
                self._asked = False
            size = room.measure(message)
            self.kept.append(message)
            self.grown += size
            total += size
        self.walked = len(messages)
        self.last = messages[-1] if messages else None

    def _trimmed(self, room: Room, total: int) -> int:
        try:
            return self._trim(room).after
        except ContextOverflow:  # it was asked nevertheless, of a larger model perhaps
            self._hopeless = 2 * total
            return total

    def fit(self, room: Room) -> Trimmed | None:
        """Make it fit now; None if it does. Raises ContextOverflow."""
        self._asked = True
        trimmed = self._trim(room) if self.tokens(room) > room.budget else None
        return trimmed if trimmed and (trimmed.dropped or trimmed.shortened) else None

    def tokens(self, room: Room) -> int:
        return sum(map(room.measure, self.opening(room.head))) + sum(map(room.measure, self.kept))

    def tokens_since(self, room: Room) -> int:
        """Of what is left behind the summary."""
        return sum(map(room.measure, self.kept[1 if self.summary else 0 :]))

    def opening(self, head: Sequence[Message]) -> list[Message]:
        """These messages in front of the conversation, as short as the room has made them."""
        if not self._slim:
            return list(head)
        return [
            replace(one, text=shortened(one.text, PROMPT)) if at == 0 and len(one.text) > PROMPT else one
            for at, one in enumerate(head)
        ]

    def _trim(self, room: Room) -> Trimmed:
        head = self.opening(room.head)
        target = int(TARGET * room.budget)
        trimmed = trim([*head, *self.kept], room.budget, room.measure, opening=len(head), target=target)
        self._slim = self._slim or (len(head) > 0 and trimmed.messages[0] is not head[0])
        self.kept = trimmed.messages[len(head) :]
        self.lossy = self.lossy or trimmed.dropped > 0 or trimmed.shortened > 0
        return trimmed


class Folds:
    """The folds of the sessions that were at work last.

    What a fold comes to depends on how tokens are counted, and counts get better with time: a fold that is kept leaves
    what the model's server has in its cache, where one that is walked again might be trimmed one round earlier.
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._folds: dict[str, Fold] = {}

    def of(self, session: str, messages: Sequence[Message]) -> Fold | None:
        """The fold of a session with these messages; None where they are not what was walked: a store that failed has
        lost some, or one holds what has become a secret since."""
        fold = self._folds.get(session)
        return fold if fold and fold.last in (None, *messages[fold.walked - 1 : fold.walked]) else None

    def keep(self, session: str, fold: Fold) -> Fold:
        self._folds.pop(session, None)
        self._folds[session] = fold
        while len(self._folds) > self._most:
            del self._folds[next(iter(self._folds))]
        return fold
