"""Limits of a run; 0 is no limit."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from app.transcript.run_totals import RunTotals

ROUND_LIMIT, CALL_LIMIT, TOKEN_LIMIT, DEADLINE = "round_limit", "call_limit", "token_limit", "deadline"
LAST_S = 60.0  # that a last round gets of a run's time, or LAST_SHARE of it where that is less
LAST_SHARE = 0.1
NEARLY = 0.8


class Gauge(Struct, frozen=True):
    """One limit and how much of it is used. `kept` is for a last round without tools. `reason` ends a run."""

    reason: str
    unit: str
    limit: float
    used: float
    kept: float = 0

    @property
    def over(self) -> bool:
        """The reason why the next round is the last; None while there may be more."""
        return self.used + self.kept >= self.limit

    @property
    def nearly(self) -> bool:
        """A run of few rounds is not told so in its first."""
        few = self.unit == "rounds" and self.limit - self.used <= 2
        return self.used > 0 and (few or self.used >= NEARLY * self.limit)

    @property
    def left(self) -> str:
        return f"{max(0, self.limit - self.used):,.0f} of {self.limit:,.0f} {self.unit}"


class Limits(Struct, frozen=True):
    """Rounds of model and tools, tool calls, tokens read and written, seconds."""

    rounds: int = 20
    calls: int = 0
    tokens: int = 0
    seconds: float = 0

    @property
    def kept_s(self) -> float:
        """Return the seconds reserved for a last round."""
        return min(LAST_S, LAST_SHARE * self.seconds)

    def as_fields(self) -> dict[str, float]:
        """As `POST /chat` names them; those that do not limit are left out."""
        named = {
            "max_rounds": self.rounds,
            "max_calls": self.calls,
            "max_tokens": self.tokens,
            "time_limit_s": self.seconds,
        }
        return {name: limit for name, limit in named.items() if limit}

    def gauges(self, totals: RunTotals, elapsed_s: float) -> Iterator[Gauge]:
        """Yield a gauge per limit. A round is expected to cost as much as the most expensive request so far."""
        if self.rounds:
            yield Gauge(ROUND_LIMIT, "rounds", self.rounds, totals.rounds, 1)
        if self.calls:
            yield Gauge(CALL_LIMIT, "tool calls", self.calls, totals.calls)
        if self.tokens:
            yield Gauge(TOKEN_LIMIT, "tokens", self.tokens, totals.tokens, 2 * totals.dearest)
        if self.seconds:
            yield Gauge(DEADLINE, "seconds", self.seconds, elapsed_s, self.kept_s)

    def over(self, totals: RunTotals, elapsed_s: float) -> str | None:
        """The reason why the next round is the last; None while there may be more."""
        return next((gauge.reason for gauge in self.gauges(totals, elapsed_s) if gauge.over), None)

    def nearly(self, totals: RunTotals, elapsed_s: float) -> list[Gauge]:
        """Return the gauges of limits that are nearly reached."""
        return [gauge for gauge in self.gauges(totals, elapsed_s) if gauge.nearly]

    def spent(self, totals: RunTotals) -> bool:
        """Return True if the token limit leaves no room for even a last round."""
        return 0 < self.tokens <= totals.tokens
