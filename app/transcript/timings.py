"""Times of a round and of a run: preparation, first token, tokens a second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from msgspec import Struct, field

PREPARATION, CONTEXT, FIRST, RATE = "preparation_s", "context_s", "first_token_s", "tokens_per_s"
PROMPT, TOOLS, RECALL = "prompt_s", "tools_s", "recall_s"  # steps before the first round
SHORTEST_STEP_S = 0.001
SHORTEST_S = 0.05  # of an answer with a rate: shorter ones have come in one piece


class RequestTimes(Struct):
    """Moments of one request, on a clock of the caller. `since` is when its preparation began.

    `fitted` is when its context was ready, `sent` when its budget was reserved and its hooks had ended.
    """

    since: float
    sent: float
    first: float | None = None
    ended: float = 0.0
    fitted: float | None = None

    def timing(self, tokens: int) -> dict[str, float]:
        """Return the times, of an answer of so many tokens; left out is what there was not."""
        timing = {PREPARATION: round(self.sent - self.since, 3)}
        if self.fitted is not None:
            timing[CONTEXT] = round(self.fitted - self.since, 3)
        if self.first is None:
            return timing
        timing[FIRST] = round(self.first - self.sent, 3)
        seconds = self.ended - self.first
        if tokens > 1 and seconds >= SHORTEST_S and (rate := round((tokens - 1) / seconds, 1)):
            timing[RATE] = rate
        return timing


def seconds_of(timing: Mapping[str, float], tokens: int) -> float:
    """Return how long a request took, as far as its times say so."""
    rate = timing.get(RATE)
    answer_s = (tokens - 1) / rate if rate else 0.0
    return timing.get(PREPARATION, 0.0) + timing.get(FIRST, 0.0) + answer_s


class RunTimes(Struct):
    """Sums of the rounds of a run; the first token is that of its first answer.

    `steps` are those of the run's preparation, until a round reports them.
    """

    preparation_s: float = 0.0
    first_token_s: float | None = None
    tokens: int = 0  # of the answers that have a rate
    seconds: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step of the run's preparation."""
        since = perf_counter()
        yield
        if (taken := perf_counter() - since) > SHORTEST_STEP_S:
            self.steps[name] = round(taken, 3)

    def take_steps(self) -> dict[str, float]:
        """Return the steps that no round has reported."""
        steps, self.steps = self.steps, {}
        return steps

    def add(self, timing: Mapping[str, float], tokens: int) -> None:
        self.preparation_s += timing.get(PREPARATION, 0.0)
        if self.first_token_s is None:
            self.first_token_s = timing.get(FIRST)
        if rate := timing.get(RATE):
            self.tokens += tokens - 1
            self.seconds += (tokens - 1) / rate

    def timing(self) -> dict[str, float]:
        rate = round(self.tokens / self.seconds, 1) if self.seconds else None
        wanted = {PREPARATION: round(self.preparation_s, 3) or None, FIRST: self.first_token_s, RATE: rate}
        return {name: value for name, value in wanted.items() if value is not None}
