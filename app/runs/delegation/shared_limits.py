"""Limits that a run shares with its helpers: what they take counts against its own limits as well."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field

from app.core.helper_events import HelperFinished, HelperStarted
from app.runs.discipline.limits import CALL_LIMIT, ROUND_LIMIT, TOKEN_LIMIT, Gauge, Limits
from app.storage.runs import EventRow
from app.transcript.run_totals import RunTotals

Totals = Callable[[], RunTotals]


class Family(Struct):
    """The helpers of one run. `ended` sums those that are over; `begun` counts all below the person's run."""

    under_way: list[Member] = field(default_factory=list)
    ended: Taken = field(default_factory=lambda: Taken())
    begun: int = 0

    def taken(self) -> Taken:
        """Return what all helpers have taken so far, their own helpers included."""
        total = self.ended
        for member in self.under_way:
            total = total.plus(member.taken())
        return total

    def take_up(self, events: Iterable[EventRow]) -> None:
        """Count what helpers have taken in an earlier server, by the log of the run."""
        for event in events:
            if event.type == HelperStarted.type:
                self.begun += 1
            elif event.type == HelperFinished.type:
                fields = json.loads(event.data)
                used = fields["usage"]["prompt_tokens"] + fields["usage"]["completion_tokens"]
                self.ended = self.ended.plus(Taken(fields["rounds"], fields["calls"], used))

    def leave(self, member: Member) -> None:
        self.under_way.remove(member)
        self.ended = self.ended.plus(member.taken())


class Taken(Struct, frozen=True):
    rounds: int = 0
    calls: int = 0
    tokens: int = 0

    def plus(self, other: Taken) -> Taken:
        return Taken(self.rounds + other.rounds, self.calls + other.calls, self.tokens + other.tokens)


class Member(Struct, eq=False):
    """One helper: its totals, and its own helpers."""

    totals: Totals
    family: Family

    def taken(self) -> Taken:
        own = self.totals()
        return Taken(own.rounds, own.calls, own.tokens).plus(self.family.taken())


class SharedLimits(Limits, frozen=True):
    """Limits of a run with its `family`, and below those of the run that it helps, if there is one."""

    family: Family = field(default_factory=Family)
    above: ParentLimits | None = None

    @property
    def root(self) -> Family:
        """The family of the person's run."""
        return self.above.limits.root if self.above else self.family

    def gauges(self, totals: RunTotals, elapsed_s: float) -> Iterator[Gauge]:
        """Yield a gauge per limit, of the run's own limit or of one above, whichever leaves less."""
        tightest = dict[str, Gauge]()
        for gauge in self._all(totals, elapsed_s):
            known = tightest.get(gauge.reason)
            if known is None or _room(gauge) < _room(known):
                tightest[gauge.reason] = gauge
        yield from tightest.values()

    def _all(self, totals: RunTotals, elapsed_s: float) -> Iterator[Gauge]:
        taken = self.family.taken()
        extra = {ROUND_LIMIT: taken.rounds, CALL_LIMIT: taken.calls, TOKEN_LIMIT: taken.tokens}
        for gauge in super().gauges(totals, elapsed_s):
            yield Gauge(gauge.reason, gauge.unit, gauge.limit, gauge.used + extra.get(gauge.reason, 0), gauge.kept)
        if self.above:
            for gauge in self.above.limits._all(self.above.totals(), 0):
                if gauge.reason in extra:  # its time is given to each helper as its time limit
                    kept = gauge.kept + (gauge.reason == ROUND_LIMIT)  # a last round for each level
                    yield Gauge(gauge.reason, gauge.unit, gauge.limit, gauge.used, kept)

    def spent(self, totals: RunTotals) -> bool:
        """Return True if the token limit of the run, or of one above, leaves no room for even a last round."""
        above = self.above is not None and self.above.limits.spent(self.above.totals())
        return above or 0 < self.tokens <= totals.tokens + self.family.taken().tokens


class ParentLimits(Struct, frozen=True):
    """The run that a helper works for: its limits, which know the helper as a member of their family."""

    limits: SharedLimits
    totals: Totals


def _room(gauge: Gauge) -> float:
    return gauge.limit - gauge.used - gauge.kept
