"""What a round's counting and trimming cost: CPU per message, against one pass of `len` in the same run.

A session's first request counts every message. Each round after that counts two new ones, and looks up the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice

from app.context.compaction.trim import trim
from app.core.messages import AskedCall, Message
from app.models.scripted import Scripted
from app.models.tokens.counter import TokenCounter
from benchmarks import context_run
from benchmarks.parser import CODE, PROSE, seconds

SIZES = (10, 100, 1_000, 10_000)
AGAINST = SIZES.index(100)
ROUNDS = 3  # of each turn
AT_LEAST = 20_000  # messages that are timed together
SYSTEM = Message("system", PROSE * 5)


def messages() -> Iterator[Message]:
    """A conversation without end, in which no two texts are the same."""
    for first in count(0, ROUNDS):
        yield Message("user", f"{first}: {PROSE[:100]}")
        for number in range(first, first + ROUNDS):
            call = AskedCall(f"c{number}", "bash", {"command": f"head -n {number} tides.py"}, "native")
            yield Message("assistant", "", (call,))
            yield Message("tool", f"{number}: {CODE * 10}", call=call.id, name=call.name)
        yield Message("assistant", f"{first}: {PROSE}")


def conversation(size: int) -> list[Message]:
    return [SYSTEM, *islice(messages(), size - 1)]


def counted(counter: TokenCounter, history: Sequence[Message], runner: asyncio.Runner) -> int:
    runner.run(counter.prepare(history))
    return sum(map(counter.measure, history))


def per_message_us(size: int, work: Callable[[], object]) -> float:
    times = max(1, AT_LEAST // size)

    def often() -> None:
        for _ in range(times):
            work()

    return seconds(often) / times / size * 1e6


def costs(size: int, runner: asyncio.Runner) -> dict[str, float]:
    """Microseconds of CPU per message of a conversation of `size`."""
    history, provider = conversation(size), Scripted([])
    known = TokenCounter(provider)
    total = counted(known, history, runner)
    news = zip(*[islice(messages(), size, None)] * 2, strict=False)  # two messages that nobody has counted
    measure, half = known.measure, total // 2 + known.measure(SYSTEM)
    return {
        "len of each text": per_message_us(size, lambda: sum(len(message.text) for message in history)),
        "count, first request": per_message_us(size, lambda: counted(TokenCounter(provider), history, runner)),
        "count, a round later": per_message_us(size, lambda: counted(known, [*history, *next(news)], runner)),
        "trim, it fits": per_message_us(size, lambda: trim(history, total, measure)),
        "trim, half is too much": per_message_us(size, lambda: trim(history, half, measure)),
    }


def main() -> None:
    with asyncio.Runner() as runner:
        runs = [costs(size, runner) for size in SIZES]
    print(f"{'us a message, of':26}" + "".join(f"{size:>9,}" for size in SIZES) + f"{'growth':>10}{'x len':>8}")
    for step in runs[0]:
        spent = [run[step] for run in runs]
        growth, times = spent[-1] / spent[AGAINST], spent[-1] / runs[-1]["len of each text"]
        print(f"{step:26}" + "".join(f"{each:9.2f}" for each in spent) + f"{growth:10.2f}{times:8.1f}")
    print(f"growth: {SIZES[-1]:,} messages against {SIZES[AGAINST]}, per message; 1 is linear")
    print(f"\n{(context_run.__doc__ or '').splitlines()[0]}")
    context_run.main()


if __name__ == "__main__":
    main()
