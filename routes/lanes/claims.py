"""Answers in the history that a client sends: those of runs, and those that are untrusted.

An answer is trusted if a run of the same principal has given it, in a conversation without untrusted text
(`app.transcript.own_words`); else it is treated as the result of a tool is. One look-up is enough for a whole history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from app.core.messages import Message
from app.transcript.own_words import names_of


class Claim(Struct, frozen=True):
    """Neighbouring messages of the assistant, as a client tells them, or others; `names` are those that prove them."""

    messages: Sequence[Message]
    names: Sequence[str] = ()
    single: Sequence[Sequence[str]] = ()  # those of each message alone: what stood between two answers may be gone

    @property
    def all_names(self) -> Iterator[str]:
        yield from self.names
        for names in self.single:
            yield from names

    def judged(self, known: Collection[str]) -> Iterable[Message]:
        """Return the messages, those marked that no run has written."""
        if all(name in known for name in self.names):
            return self.messages
        own = [all(name in known for name in names) for names in self.single]
        return [one if true else replace(one, untrusted=True) for one, true in zip(self.messages, own, strict=True)]


def claims_of(history: Sequence[Message]) -> list[Claim]:
    found = list[Claim]()
    for is_answer, group in groupby(history, key=lambda message: message.role == "assistant"):
        messages = list(group)
        if not is_answer:
            found.append(Claim(messages))
            continue
        names = names_of(messages)
        single = [names] if len(messages) == 1 else [names_of([one]) for one in messages]
        found.append(Claim(messages, names, single))
    return found
