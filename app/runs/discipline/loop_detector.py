"""Noticing that a model runs in circles: the same calls with the same results, again and again.

What is compared are hashes of whole arguments and whole results. A call that is made again and brings another result
has shown progress, however often.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from app.core.messages import AskedCall
from tools.base.permit import canonical

STREAK = 4  # times in a row without a word
WINDOW, OFTEN = 5, 3  # of so many rounds so many were the same
STALE = 8  # rounds in a row without a single call that brought anything new: a circle of any size
MOST = 15  # times that one call brings nothing new

Signature = bytes


def signature(call: AskedCall, result: str = "") -> Signature:
    """A hash of the tool, its full arguments and its result. Results may name their own call: that is no news."""
    words = "\n".join([call.name, canonical(call.arguments), result.replace(call.id, "")])
    return hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Round(Struct, frozen=True):
    """The calls and results of a round. `fresh` are those that no earlier round had; `silent`: without prose."""

    calls: frozenset[Signature]
    fresh: frozenset[Signature]
    silent: bool


class LoopDetector(Struct):
    """Detects rounds of calls that bring nothing new."""

    _last: list[Round] = field(default_factory=list)  # a deque takes 600 bytes when it is empty
    _seen: set[Signature] = field(default_factory=set)
    _stale: int = 0
    _again: Counter[Signature] = field(default_factory=Counter)  # call without result -> times it brought nothing new

    def detects(self, calls: Sequence[AskedCall], results: Mapping[str, str], *, prose: bool) -> bool:
        """Record a round; return whether the run repeats itself. `results` by the ids of the calls."""
        asked = set[Signature]()
        whole = set[Signature]()
        for call in calls:
            exact, brought = signature(call), signature(call, results.get(call.id, ""))
            if brought in self._seen or exact in asked:  # twice in one reply: it cannot have read the first result
                self._again[exact] += 1
            asked.add(exact)
            whole.add(brought)
        fresh = whole - self._seen
        self._last = [*self._last[-WINDOW + 1 :], Round(frozenset(whole), frozenset(fresh), not prose)]
        self._stale = 0 if fresh else self._stale + 1
        self._seen |= whole
        circles = self._streak() or self._circle() or self._stale >= STALE
        return circles or any(self._again[exact] >= MOST - 1 for exact in asked)

    def _streak(self) -> bool:
        last = self._last[-STREAK:]
        return len(last) == STREAK and all(one.silent and one.calls == last[0].calls for one in last)

    def _circle(self) -> bool:
        """One round came OFTEN times in the WINDOW, and whatever was new in the window came again in it."""
        if len(self._last) < WINDOW:
            return False
        rounds = Counter(one.calls for one in self._last)
        calls = Counter(call for one in self._last for call in one.calls)
        return max(rounds.values()) >= OFTEN and all(calls[new] > 1 for one in self._last for new in one.fresh)
