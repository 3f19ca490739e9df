"""Replay a history message by message and trim it wherever a request was made.

The result is a pure function of the history: the next round, the next turn and the next server compute the same
messages, so that consecutive requests share the longest possible prefix (for the prefix caches of model servers).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

from msgspec import Struct, field
from msgspec.structs import replace

from app.context.compaction.steps import PROMPT, Measure
from app.context.compaction.trim import Trimmed, trim
from app.context.overflow import ContextOverflow
from app.core.messages import Message, as_json, for_models, load
from app.core.provider import CallForm
from app.models.tokens.counter import TokenCounter
from app.models.tokens.cutting import shortened

TARGET = 0.75  # of the budget: trimming goes down to this share, so that the next rounds need none


class CachedCounter(Struct):
    """`measure` with a cache: a request measures its messages many times. Valid until counts change."""

    measure: Measure
    _known: dict[int, tuple[Message, int]] = field(default_factory=dict)  # the message is kept, so its id stays unique

    def __call__(self, message: Message) -> int:
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = message, self.measure(message)
        return known[1]


class WindowBudget(Struct, frozen=True):
    """The token budget of a request's messages; `head` are the messages in front of the conversation.

    `described` are the tokens of the tools' schemas, which `budget` does not include; `head_tokens` those of `head`, if
    they have been counted before.
    """

    head: Sequence[Message]
    budget: int
    measure: Measure
    described: int = 0
    head_tokens: int | None = None

    def tokens_of(self, opening: Sequence[Message]) -> int:
        if opening is self.head and self.head_tokens is not None:
            return self.head_tokens
        return sum(map(self.measure, opening))


class CompactedState(Struct, frozen=True):
    """A compacted history between two runs; the messages are JSON."""

    start: int
    position: int
    kept: list[dict[str, Any]]
    has_summary: bool
    incomplete: bool
    seen_tokens: int
    prompt_shortened: bool


class CompactedHistory:
    """The messages of a session that are still sent, from position `start` on; `summary` replaces those before."""

    def __init__(self, start: int = 0, summary: Message | None = None) -> None:
        self.start = start
        self.summary = summary
        self.position = start
        self.last: Message | None = None  # the message before `position`
        self.kept = [summary] if summary else []
        self.incomplete = False  # messages were dropped or shortened
        self.seen_tokens = 0  # of all messages up to `position`
        self.failed_at: int | None = None  # `seen_tokens` when a summary failed
        self.trims = 0  # how often it was trimmed
        self.secrets = -1  # how many were redacted in `kept` when a run began
        self.taught: tuple[str, CallForm] | None = None  # the form of calls that the prompt has taught which model
        self._sent = False  # `kept` is what the last request carried
        self._prompt_shortened = False  # the system prompt stays shortened
        self._unfittable = 0  # tokens that trimming could not make fit: retried only at twice as many

    @property
    def state(self) -> CompactedState:
        """All that a later run of the session begins with."""
        return CompactedState(
            self.start,
            self.position,
            [as_json(message) for message in self.kept],
            has_summary=self.summary is not None,
            incomplete=self.incomplete,
            seen_tokens=self.seen_tokens,
            prompt_shortened=self._prompt_shortened,
        )

    @classmethod
    def of_state(cls, state: CompactedState, last: Message | None) -> CompactedHistory:
        """Return the history of such a state; `last` is the message before its position."""
        kept = [load(json.dumps(one)) for one in state.kept]
        history = cls(state.start, kept[0] if state.has_summary and kept else None)
        history.position, history.last, history.kept = state.position, last, kept
        history.incomplete, history.seen_tokens = state.incomplete, state.seen_tokens
        history._prompt_shortened = state.prompt_shortened
        return history

    @property
    def lacks_messages(self) -> bool:
        """True if some messages of the session are not sent as they were."""
        return self.incomplete or self.summary is not None

    def advance(self, messages: Sequence[Message], room: WindowBudget) -> None:
        """Replay up to the end of the session's messages. Linear: each trimming leaves a quarter of the budget free."""
        total = room.tokens_of(self.opening(room.head)) + sum(map(room.measure, self.kept))
        for message in messages[self.position :]:
            if message.role == "assistant":
                # Counts may have grown since that request, but the model's server has what it carried in its cache.
                if not self._sent and total > max(room.budget, self._unfittable):
                    total = self._trimmed(room, total)
                self._sent = False
            sent = for_models(message)
            size = room.measure(sent)
            self.kept.append(sent)
            self.seen_tokens += size
            total += size
        self.position = len(messages)
        self.last = messages[-1] if messages else None

    def _trimmed(self, room: WindowBudget, total: int) -> int:
        try:
            return self._trim(room).after
        except ContextOverflow:  # the request was made nevertheless, perhaps to a model with a larger window
            self._unfittable = 2 * total
            return total

    def fit(self, room: WindowBudget) -> Trimmed | None:
        """Trim to the budget; None if nothing had to change. Raises ContextOverflow."""
        self._sent = True
        trimmed = self._trim(room) if self.tokens(room) > room.budget else None
        return trimmed if trimmed and (trimmed.dropped or trimmed.shortened) else None

    def tokens(self, room: WindowBudget) -> int:
        return room.tokens_of(self.opening(room.head)) + sum(map(room.measure, self.kept))

    def tokens_since(self, room: WindowBudget) -> int:
        """Return the tokens of the messages after the summary."""
        return sum(map(room.measure, self.kept[1 if self.summary else 0 :]))

    def opening(self, head: Sequence[Message]) -> Sequence[Message]:
        """Return the messages in front of the conversation, the system prompt shortened if trimming had to."""
        if not self._prompt_shortened:
            return head
        return [
            replace(one, text=shortened(one.text, PROMPT)) if at == 0 and len(one.text) > PROMPT else one
            for at, one in enumerate(head)
        ]

    def _trim(self, room: WindowBudget) -> Trimmed:
        head = self.opening(room.head)
        target = int(TARGET * room.budget)
        trimmed = trim([*head, *self.kept], room.budget, room.measure, opening=len(head), target=target)
        self._prompt_shortened = self._prompt_shortened or (len(head) > 0 and trimmed.messages[0] is not head[0])
        self.kept = trimmed.messages[len(head) :]
        if trimmed.dropped or trimmed.shortened:
            self.incomplete = True
            self.trims += 1
        return trimmed


class HistoryCache:
    """The compacted histories of the most recently active sessions.

    Token counts get more exact with time, so that a replay might trim one round earlier. A cached history keeps the
    prefix that the model's server has in its own cache.
    """

    def __init__(self, most: int = 64) -> None:
        self.asked_apart = WeakSet[TokenCounter]()  # see Summariser
        self._most = most
        self._histories: dict[str, CompactedHistory] = {}

    def of(self, session: str, messages: Sequence[Message]) -> CompactedHistory | None:
        """Return the cached history of a session; None if its messages differ from those that were replayed.

        They differ after a failed write, or if one contains text that has been registered as a secret since.
        """
        compacted = self._histories.get(session)
        if compacted and compacted.last not in (None, *messages[compacted.position - 1 : compacted.position]):
            return None
        return compacted

    def keep(self, session: str, compacted: CompactedHistory) -> CompactedHistory:
        self._histories.pop(session, None)
        self._histories[session] = compacted
        while len(self._histories) > self._most:
            del self._histories[next(iter(self._histories))]
        return compacted
