"""Group messages into the units that trimming drops as a whole: turns, and the rounds in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from msgspec import Struct, field

from app.core.messages import Message

RECENT = 10  # messages that are trimmed last


class TurnGroup(Struct, frozen=True):
    """The requests of a user and the rounds that serve them, by position. A round is an answer and its calls' results.

    A user message between two rounds steers the turn and does not begin a new one.
    """

    requests: list[int] = field(default_factory=list)
    rounds: list[list[int]] = field(default_factory=list)


class MessageGroups(Struct, frozen=True):
    """Positions by group. There is always a last turn, perhaps empty; only the first can be without requests."""

    prompt: int | None  # the first system message
    notices: list[int]  # the other system messages after the opening
    results: list[int]
    turns: list[TurnGroup]
    recent: frozenset[int]  # the last messages, extended to whole rounds

    @property
    def requests(self) -> list[int]:
        return self.turns[-1].requests

    @property
    def last_round(self) -> list[int]:
        """The last round of the current turn."""
        return self.turns[-1].rounds[-1] if self.turns[-1].rounds else []

    @property
    def has_new_request(self) -> bool:
        """True if a user message follows the last round."""
        return bool(self.last_round) and self.requests[-1:] > self.last_round[-1:]

    @property
    def goal(self) -> list[int]:
        """The first request of the session."""
        return next((turn.requests[:1] for turn in self.turns if turn.requests), [])

    def parts(self, protected: Collection[int]) -> Iterator[list[int]]:
        """Yield the groups to drop, in order: whole old turns, or the unprotected rounds, then requests, of a turn."""
        protected = frozenset(protected)
        for turn in self.turns:
            rounds = [one for one in turn.rounds if protected.isdisjoint(one)]
            requests = [at for at in turn.requests if at not in protected]
            if turn is not self.turns[-1] and len(rounds) == len(turn.rounds):
                yield [*requests, *chain(*rounds)]
            else:
                yield from rounds
                yield from ([at] for at in requests)


def without_orphaned_results(messages: Sequence[Message]) -> list[int]:
    """Return the positions of all messages except results that answer no earlier call."""
    calls: set[str | None] = set()
    kept = []
    for at, message in enumerate(messages):
        if message.role != "tool" or message.call in calls:
            kept.append(at)
        if message.calls:
            calls.update(call.id for call in message.calls)
    return kept


def group_messages(messages: Sequence[Message], opening: int) -> MessageGroups:
    """Group messages whose results all answer a call; the first `opening` belong to no turn."""
    turns = [TurnGroup()]
    by_call: dict[str | None, list[int]] = {}
    results, notices, answered = [], [], False
    for at, message in enumerate(messages[opening:], opening):
        match message.role:
            case "system":
                notices.append(at)
                continue  # neither begins nor ends a turn
            case "user":
                if answered:
                    turns.append(TurnGroup())
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
    return MessageGroups(prompt, [at for at in notices if at != prompt], results, turns, recent)


def _recent(turns: Sequence[TurnGroup], since: int, end: int) -> frozenset[int]:
    touched = (one for turn in turns for one in turn.rounds if one[-1] >= since)
    return frozenset(chain(range(since, end), *turns[-1].rounds[-1:], *touched))
