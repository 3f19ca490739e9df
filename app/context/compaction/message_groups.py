"""The parts of a conversation that are left out as one: turns, and the rounds in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from app.core.messages import Message

RECENT = 10  # messages that stay as long as they can


@dataclass(frozen=True, slots=True)
class Turn:
    """What a user asked for and what was done about it, by position. A round is an answer and its calls' results.

    What users say between two rounds steers the turn; it begins none.
    """

    requests: list[int] = field(default_factory=list)
    rounds: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shape:
    """Where everything is. There is always a last turn, which may be empty; only the first can be without requests."""

    prompt: int | None  # the first system message
    notices: list[int]  # the other system messages behind the opening
    results: list[int]
    turns: list[Turn]
    recent: frozenset[int]  # the last messages, and the whole rounds that they belong to

    @property
    def requests(self) -> list[int]:
        return self.turns[-1].requests

    @property
    def last_round(self) -> list[int]:
        """The last round of the current turn."""
        return self.turns[-1].rounds[-1] if self.turns[-1].rounds else []

    @property
    def spoken_since(self) -> bool:
        """Whether the person has said something after the last round."""
        return bool(self.last_round) and self.requests[-1:] > self.last_round[-1:]

    @property
    def goal(self) -> list[int]:
        """The first thing that a user asked for."""
        return next((turn.requests[:1] for turn in self.turns if turn.requests), [])

    def parts(self, protected: Collection[int]) -> Iterator[list[int]]:
        """What may be left out, in this order: each old turn; of one that must stay in part, rounds, then requests."""
        staying = frozenset(protected)
        for turn in self.turns:
            rounds = [one for one in turn.rounds if staying.isdisjoint(one)]
            requests = [at for at in turn.requests if at not in staying]
            if turn is not self.turns[-1] and len(rounds) == len(turn.rounds):
                yield [*requests, *chain(*rounds)]
            else:
                yield from rounds
                yield from ([at] for at in requests)


def answering(messages: Sequence[Message]) -> list[int]:
    """Where messages stand, but for results that answer no call before them."""
    asked: set[str | None] = set()
    kept = []
    for at, message in enumerate(messages):
        if message.role != "tool" or message.call in asked:
            kept.append(at)
        if message.calls:
            asked.update(call.id for call in message.calls)
    return kept


def shape_of(messages: Sequence[Message], opening: int) -> Shape:
    """The shape of messages whose results all answer a call; the first `opening` are no part of any turn."""
    turns = [Turn()]
    by_call: dict[str | None, list[int]] = {}
    results, notices, answered = [], [], False
    for at, message in enumerate(messages[opening:], opening):
        match message.role:
            case "system":
                notices.append(at)
                continue  # says nothing about whose turn it is
            case "user":
                if answered:
                    turns.append(Turn())
                turns[-1].requests.append(at)
            case "assistant":
                turns[-1].rounds.append([at])
                by_call.update((call.id, turns[-1].rounds[-1]) for call in message.calls)
            case "tool":
                by_call.get(message.call, []).append(at)
                results.append(at)
        answered = message.role == "assistant"
    prompt = next((at for at, message in enumerate(messages) if message.role == "system"), None)
    recent = _recent(turns, max(opening, len(messages) - RECENT), len(messages))
    return Shape(prompt, [at for at in notices if at != prompt], results, turns, recent)


def _recent(turns: Sequence[Turn], since: int, end: int) -> frozenset[int]:
    touched = (one for turn in turns for one in turn.rounds if one[-1] >= since)
    return frozenset(chain(range(since, end), *turns[-1].rounds[-1:], *touched))
