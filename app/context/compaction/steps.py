"""The ladder: what is left out or shortened, one rung after the other, until a draft is small enough.

Each step only takes away, and the next one is taken or not, whatever is to go in the end: so a larger budget never
leaves less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from app.context.compaction.message_groups import shape_of
from app.core.messages import Message, in_words
from app.models.tokens.cutting import shortened

Measure = Callable[[Message], int]
"""Tokens of one message as it goes over the wire."""

RESULT = 1_000  # characters of a tool's result that others have followed
PROMPT = 2_000
GOAL = 4_000  # of what a person asked for first, once the conversation has gone on
LEAST = 200  # of any message: less of it would say nothing


class Draft:
    """Messages that become fewer and shorter. Each is measured once, and again only where it is shortened."""

    def __init__(self, messages: Sequence[Message], sizes: Sequence[int], measure: Measure, opening: int) -> None:
        self.shape = shape_of(messages, opening)
        self.kept = dict(enumerate(messages))
        self.total = sum(sizes)
        self.sizes = dict(enumerate(sizes))
        self.whole, self.whole_sizes = list(messages), list(sizes)
        self.opening = opening
        self._measure = measure

    def drop_each(self, parts: Iterable[Iterable[int]], limit: int) -> None:
        """Leave out one part after the other."""
        for part in parts:
            if self.total <= limit:
                return
            for at in part:
                if self.kept.pop(at, None):
                    self.total -= self.sizes.pop(at)

    def shorten_each(self, positions: Iterable[int], size: int, limit: int) -> None:
        """Shorten one text after the other to `size` characters."""
        for at in positions:
            if self.total <= limit:
                return
            self._shorten(at, size)

    def describe_each(self, positions: Iterable[int], limit: int) -> None:
        """Put words in the place of one message's pictures and PDFs after the other."""
        for at in positions:
            if self.total <= limit:
                return
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
        """Shorten the longest of these texts as far as needed, none below `least` characters."""
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
        """The message as it came, with `size` characters of its text if it is smaller then."""
        message, tokens = self.whole[at], self.whole_sizes[at]
        if len(message.text) > size:
            shorter = replace(message, text=shortened(message.text, size))
            if (fewer := self._measure(shorter)) < tokens:
                message, tokens = shorter, fewer
        self.total += tokens - self.sizes[at]
        self.kept[at], self.sizes[at] = message, tokens


def gently(draft: Draft, limit: int) -> None:
    """What the model misses least: old results, notices and turns. The last messages stay as they are."""
    shape = draft.shape
    draft.shorten_each((at for at in shape.results if at not in shape.recent), RESULT, limit)
    draft.drop_each(([at] for at in shape.notices if at not in shape.recent), limit)
    draft.drop_each(shape.parts({*shape.recent, *shape.goal, *shape.requests}), limit)


def firmly(draft: Draft, limit: int) -> None:
    """Where the last messages alone are too much: all but the first goal, the request and the last round may go.

    Then the system prompt is shortened, then whatever is still there, and in the end pictures are told of in words. A
    round that was too much for its own turn goes once the person has spoken again: else the session would be lost.
    """
    shape = draft.shape
    last, results = shape.last_round[:1], shape.last_round[1:]
    spoken = [*shape.goal, *shape.requests[:1], *shape.requests[-1:]]
    followed = shape.recent.difference(results)
    draft.shorten_each((at for at in shape.results if at in followed), RESULT, limit)
    draft.shorten_each((at for at in shape.goal if at not in shape.requests), GOAL, limit)
    draft.describe_each((at for at in shape.goal if at not in shape.requests), limit)
    draft.cap(results, RESULT, limit)
    draft.drop_each(([at] for at in shape.notices), limit)
    draft.drop_each(shape.parts({*shape.goal, *shape.requests, *shape.last_round}), limit)
    draft.shorten_each([] if shape.prompt is None else [shape.prompt], PROMPT, limit)
    draft.drop_each(shape.parts({*spoken, *shape.last_round}), limit)
    if shape.spoken_since:
        draft.cap(results, LEAST, limit)
        draft.drop_each([shape.last_round], limit)
    for texts in (shape.requests[-1:], results, [*shape.goal, *shape.requests[:1]], last):
        draft.cap(texts, LEAST, limit)
    draft.describe_each(sorted(draft.kept), limit)
