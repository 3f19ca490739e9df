"""Limits that a run shares with its helpers: what they take counts against its own limits as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from app.core.helper_events import HelperFinished, HelperStarted
from app.runs.discipline.limits import CALL_LIMIT, DEADLINE, ROUND_LIMIT, TOKEN_LIMIT, Gauge, Limits
from app.storage.runs import EventRow
from app.transcript.run_totals import RunTotals, logged

Totals = Callable[[], RunTotals]


class Family(Struct):
    """The helpers of one run. `ended` sums those that are over; `begun` counts all below the person's run.

    What they take is counted by the reasons of limits.
    """

    under_way: list[Member] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    begun: int = 0

    def taken(self) -> Counter[str]:
        """Return what all helpers have taken so far, their own helpers included."""
        return sum((member.taken() for member in self.under_way), self.ended)

    def take_up(self, events: Iterable[EventRow]) -> None:
        """Count what helpers have taken in an earlier server, by the log of the run."""
        for kind, fields in logged(events, (HelperStarted.type, HelperFinished.type)):
            if kind == HelperStarted.type:
                self.begun += 1
            else:
                self.count(fields["rounds"], fields["calls"], fields["usage"])

    def count(self, rounds: int, calls: int, usage: Mapping[str, int]) -> None:
        """Count what a helper that is over has taken, by the event of its end."""
        self.ended += taken(rounds, calls, usage["prompt_tokens"] + usage["completion_tokens"])

    def leave(self, member: Member) -> None:
        self.under_way.remove(member)
        self.ended += member.taken()


def taken(rounds: int, calls: int, tokens: int) -> Counter[str]:
    return Counter({ROUND_LIMIT: rounds, CALL_LIMIT: calls, TOKEN_LIMIT: tokens})


class Member(Struct, eq=False):
    """One helper: its totals, and its own helpers."""

    totals: Totals
    family: Family

    def taken(self) -> Counter[str]:
        own = self.totals()
        return taken(own.rounds, own.calls, own.tokens) + self.family.taken()


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
        extra = self.family.taken()
        for gauge in super().gauges(totals, elapsed_s):
            yield Gauge(gauge.reason, gauge.unit, gauge.limit, gauge.used + extra[gauge.reason], gauge.kept)
        if self.above:
            for gauge in self.above.limits._all(self.above.totals(), 0):
                if gauge.reason != DEADLINE:  # its time is given to each helper as its time limit
                    kept = gauge.kept + (gauge.reason == ROUND_LIMIT)  # a last round for each level
                    yield Gauge(gauge.reason, gauge.unit, gauge.limit, gauge.used, kept)

    def spent(self, totals: RunTotals) -> bool:
        """Return True if the token limit of the run, or of one above, leaves no room for even a last round."""
        above = self.above is not None and self.above.limits.spent(self.above.totals())
        return above or 0 < self.tokens <= totals.tokens + self.family.taken()[TOKEN_LIMIT]


class ParentLimits(Struct, frozen=True):
    """The run that a helper works for: its limits, which know the helper as a member of their family; its workspace."""

    limits: SharedLimits
    totals: Totals
    workspace: Path


def _room(gauge: Gauge) -> float:
    return gauge.limit - gauge.used - gauge.kept
