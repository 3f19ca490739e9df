"""The trimming steps, in order: each drops or shortens some messages, until the rest fits.

Steps only remove, and their order does not depend on the budget: a larger budget never keeps less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from msgspec.structs import replace

from app.context.compaction.message_groups import group_messages
from app.core.messages import Message, in_words
from app.models.tokens.cutting import shortened

Measure = Callable[[Message], int]
"""Returns the tokens of one message in its wire format."""

RESULT = 1_000  # characters of a tool's result that is followed by other messages
PROMPT = 2_000
GOAL = 4_000  # of the first request, once later ones follow
LEAST = 200  # of any message: a shorter excerpt would be useless


class TrimState:
    """The messages that are left during trimming. Each is measured once, and again only when it is shortened."""

    def __init__(self, messages: Sequence[Message], sizes: Sequence[int], measure: Measure, opening: int) -> None:
        self.groups = group_messages(messages, opening)
        self.kept = dict(enumerate(messages))
        self.total = sum(sizes)
        self.sizes = dict(enumerate(sizes))
        self.whole, self.whole_sizes = list(messages), list(sizes)
        self.opening = opening
        self._measure = measure

    def drop_each(self, parts: Iterable[Iterable[int]], limit: int) -> None:
        """Drop part after part until the total is within the limit."""
        for part in takewhile(lambda _: self.total > limit, parts):
            for at in part:
                if self.kept.pop(at, None):
                    self.total -= self.sizes.pop(at)

    def shorten_each(self, positions: Iterable[int], size: int, limit: int) -> None:
        """Shorten text after text to `size` characters until the total is within the limit."""
        for at in takewhile(lambda _: self.total > limit, positions):
            self._shorten(at, size)

    def describe_each(self, positions: Iterable[int], limit: int) -> None:
        """Replace the attachments of message after message by a description until the total is within the limit."""
        for at in takewhile(lambda _: self.total > limit, positions):
            self._describe(at)

    def _describe(self, at: int) -> None:
        message = self.kept.get(at)
        if message is None or not message.attachments:
            return
        described = replace(message, text=in_words(message), attachments=())
        if (fewer := self._measure(described)) < self.sizes[at]:
            self.total += fewer - self.sizes[at]
            self.kept[at] = self.whole[at] = described
            self.sizes[at] = self.whole_sizes[at] = fewer

    def cap(self, positions: Iterable[int], least: int, limit: int) -> None:
        """Shorten the longest of these texts as far as needed, but not below `least` characters."""
        texts = [at for at in positions if at in self.kept]
        if self.total <= limit or not texts:
            return
        fits, too_long = least, max(len(self.kept[at].text) for at in texts)
        self._cap(texts, fits)
        if self.total > limit:
            return
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            self._cap(texts, middle)
            fits, too_long = (middle, too_long) if self.total <= limit else (fits, middle)
        self._cap(texts, fits)

    def _cap(self, positions: Iterable[int], size: int) -> None:
        for at in positions:
            self._shorten(at, size)

    def _shorten(self, at: int, size: int) -> None:
        """Replace the message by its original, cut to `size` characters if that saves tokens."""
        message, tokens = self.whole[at], self.whole_sizes[at]
        if len(message.text) > size:
            shorter = replace(message, text=shortened(message.text, size))
            if (fewer := self._measure(shorter)) < tokens:
                message, tokens = shorter, fewer
        self.total += tokens - self.sizes[at]
        self.kept[at], self.sizes[at] = message, tokens


def trim_history(state: TrimState, limit: int) -> None:
    """Shorten or drop what the model needs least: old results, notices and turns. Recent messages stay unchanged."""
    groups = state.groups
    state.shorten_each((at for at in groups.results if at not in groups.recent), RESULT, limit)
    state.drop_each(([at] for at in groups.notices if at not in groups.recent), limit)
    state.drop_each(groups.parts({*groups.recent, *groups.goal, *groups.requests}), limit)


def trim_recent(state: TrimState, limit: int) -> None:
    """Trim when the recent messages alone are too long: keep only the goal, the current request and the last round.

    Then shorten the system prompt, then all that is left, and finally describe attachments in words. A last round
    that does not fit is dropped once the user has sent another message: otherwise the session could not continue.
    """
    groups = state.groups
    last, results = groups.last_round[:1], groups.last_round[1:]
    requests = [*groups.goal, *groups.requests[:1], *groups.requests[-1:]]
    followed = groups.recent.difference(results)
    state.shorten_each((at for at in groups.results if at in followed), RESULT, limit)
    state.shorten_each((at for at in groups.goal if at not in groups.requests), GOAL, limit)
    state.describe_each((at for at in groups.goal if at not in groups.requests), limit)
    state.cap(results, RESULT, limit)
    state.drop_each(([at] for at in groups.notices), limit)
    state.drop_each(groups.parts({*groups.goal, *groups.requests, *groups.last_round}), limit)
    state.shorten_each([] if groups.prompt is None else [groups.prompt], PROMPT, limit)
    state.drop_each(groups.parts({*requests, *groups.last_round}), limit)
    if groups.has_new_request:
        state.cap(results, LEAST, limit)
        state.drop_each([groups.last_round], limit)
    for texts in (groups.requests[-1:], results, [*groups.goal, *groups.requests[:1]], last):
        state.cap(texts, LEAST, limit)
    state.describe_each(sorted(state.kept), limit)
