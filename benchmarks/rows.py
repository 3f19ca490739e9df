"""The rows that a relay is judged by: each beside the bare byte relay of the same round, with its goals."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.load import Load
from benchmarks.measure import Measured, median
from benchmarks.subjects import FLOOR, OURS

Compare = Callable[[float, float], float]
Round = Mapping[tuple[str, str], Measured]  # by load and subject

LOADS = {
    "paced": Load(streams=300, tokens=300, rate=30),
    "more": Load(streams=400, tokens=300, rate=30),
    "requests": Load(streams=1, tokens=1, rate=0, turns=300),
    "flat": Load(streams=4, tokens=40_000, rate=0, limit_s=5),
}
ALL_DELIVERED = 0.995
CALM_MS = 2.0  # p50 over the relay's
FULL_CORE, QUIET = 0.8, 0.1


def absolute(value: float, floor: float) -> float:
    return value


@dataclass(frozen=True, slots=True)
class Row:
    """`value` is a field of Measured; `firm` and `aim` are goals for it, as it is compared with the relay's."""

    name: str
    load: str
    value: str
    unit: str
    compare: Compare
    firm: float | None = None
    aim: float | None = None
    better: Callable[[float, float], bool] = operator.le
    scale: float = 1.0

    def of(self, one: Round, subject: str) -> float:
        return float(getattr(one[self.load, subject], self.value)) * self.scale

    def compared(self, one: Round, subject: str) -> float:
        return self.compare(self.of(one, subject), self.of(one, FLOOR))

    def verdict(self, value: float) -> str:
        """The best goal that is reached."""
        goals = {"aim": self.aim, "firm": self.firm}
        set_goals = {name: goal for name, goal in goals.items() if goal is not None}
        return next(
            (name for name, goal in set_goals.items() if self.better(value, goal)), "missed" if set_goals else ""
        )


RATIO, OVER = operator.truediv, operator.sub
ROWS = (
    Row("CPU per token", "paced", "token_us", "us", RATIO, 3.5, 2.5),
    Row("delivered, 300 streams", "paced", "delivered", "%", absolute, 99.5, None, operator.ge, 100),
    Row("delivered, 400 streams", "more", "delivered", "%", absolute, None, 99.5, operator.ge, 100),
    Row("p50 over the relay's", "paced", "p50_ms", "ms", OVER, 1, 0.3),
    Row("p99 over the relay's", "paced", "p99_ms", "ms", OVER, 20, 5),
    Row("first token p50 over", "paced", "first_ms", "ms", OVER, 5, 2),
    Row("CPU a request", "requests", "answer_us", "us", RATIO, 12, 6),
    Row("memory a stream", "paced", "grown_kb", "KB", RATIO, 5, 3),
    Row("flat out, 1,000 tokens/s", "flat", "tokens_per_s", "k/s", absolute, scale=0.001),
)
HEADER = f"{'':26}{'itself':>10}{'relay':>10}{'compared':>10}{'lowest':>9}{'highest':>9}{'firm':>7}{'aim':>7}  reached"


def report(rounds: Sequence[Round], subject: str) -> Iterator[str]:
    """A line for each row that was measured, then what is to be known before they are believed."""
    loads = {load for load, name in rounds[0] if name == subject}
    yield f"\n{subject}, median of {len(rounds)}" if len(rounds) > 1 else f"\n{subject}"
    yield HEADER
    for row in ROWS:
        if row.load in loads:
            yield line(row, rounds, subject)
    yield from doubts(rounds, subject, loads)


def line(row: Row, rounds: Sequence[Round], subject: str) -> str:
    compared = [row.compared(one, subject) for one in rounds]
    itself, relay = (statistics.median(row.of(one, name) for one in rounds) for name in (subject, FLOOR))
    values = f"{row.name:26}{itself:10.2f}{relay:10.2f}{statistics.median(compared):10.2f}"
    spread = f"{min(compared):9.2f}{max(compared):9.2f}" if len(rounds) > 1 else " " * 18
    goals = "".join(f"{'' if goal is None else f'{goal:g}':>7}" for goal in (row.firm, row.aim))
    reached = row.verdict(statistics.median(compared)) if subject == OURS else ""
    if row.value == "token_us" and any(has_queue(one[row.load, subject], one[row.load, FLOOR]) for one in rounds):
        reached = "not calm"
    return f"{values}{spread}{goals}  {reached}".rstrip()


def has_queue(got: Measured, floor: Measured) -> bool:
    """Its tokens wait for one another and join: its CPU per token is not that of a server with time for each."""
    return got.p50_ms - floor.p50_ms > CALM_MS or got.delivered < ALL_DELIVERED


def doubts(rounds: Sequence[Round], subject: str, loads: set[str]) -> Iterator[str]:
    for load in sorted(loads & {"paced", "more"}):
        for number, one in enumerate(rounds, 1):
            got, floor = one[load, subject], one[load, FLOOR]
            where = f"  {LOADS[load].streams} streams, round {number}:"
            if has_queue(got, floor):
                yield f"{where} not calm (p50 {got.p50_ms:.1f} ms): tokens join, their CPU is not comparable"
            if max(got.upstream_cores, got.reader_cores) > FULL_CORE:
                yield f"{where} the load's own processes are near their limit"
            if got.other_cores > QUIET:
                yield f"{where} other processes used {got.other_cores:.1f} cores: latencies are theirs as well"


def generators(rounds: Sequence[Round], subjects: Sequence[str]) -> Iterator[str]:
    """Cores that the server, the upstream and the reader used: it must be the first that has no more."""
    yield f"\n{'cores used':26}{'server':>10}{'upstream':>10}{'reader':>10}{'others':>10}"
    for load in ("paced", "more", "flat"):
        for name in subjects:
            if (load, name) in rounds[0]:
                got = median([one[load, name] for one in rounds])
                cores = (got.server_cores, got.upstream_cores, got.reader_cores, got.other_cores)
                yield f"{LOADS[load].streams:3} {name:22}" + "".join(f"{used:10.2f}" for used in cores)
