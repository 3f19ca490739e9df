"""What parsing costs: CPU per KB in small pieces, against a yardstick measured in the same process.

The yardstick is one function call with an `in` test that returns a tuple, per piece: no parser can do with less.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from time import process_time

from parsing import Parser
from tests.parsing_forms import WRITERS

TOOLS = {
    "write_note": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "body": {"type": "string"}},
        "required": ["path", "body"],
    }
}
SIZES_KB = (2, 8, 32, 128)
REPEATS = 3
PROSE = (
    "The harbour lies open to the north-west, and a swell runs in with the flood; small craft wait for slack water. "
    "Pilots used to say that the light on the point was worth three men. It is automatic now (since 1998), and the "
    "keeper's house is let to visitors; they come for the quiet, the seals and the long evenings.\n\n"
)
CODE = (
    "def tide(port, day):\n    # heights above chart datum\n    table = load(port)[day % 29]\n"
    "    return [h * 0.97 for h in table if h > -1]\n\n"
)


def pieces_of(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def seconds(run: Callable[[], object], repeats: int = REPEATS) -> float:
    """The least CPU time of a few runs."""
    best = math.inf
    for _ in range(repeats):
        start = process_time()
        run()
        best = min(best, process_time() - start)
    return best


def parsed(pieces: Sequence[str], *, fences: bool = True) -> int:
    parser = Parser(TOOLS, fences=fences)
    feed = parser.feed
    events = 0
    for piece in pieces:
        events += len(feed(piece))
    return events + len(parser.close())


def _touch(piece: str) -> tuple[str, ...]:
    return () if "<" in piece else (piece,)


def yardstick(pieces: Sequence[str]) -> int:
    return sum(len(_touch(piece)) for piece in pieces)


def per_kb(text: str, size: int) -> tuple[float, float]:
    """Milliseconds per KB, and the same as a multiple of the yardstick."""
    pieces = pieces_of(text, size)
    spent = seconds(lambda: parsed(pieces))
    least = seconds(lambda: yardstick(pieces))
    return spent * 1000 / (len(text) / 1024), spent / least


def call_text(dialect: str, size: int) -> str:
    body = (CODE * (size // len(CODE) + 1))[:size]
    return WRITERS[dialect]([("write_note", {"path": "tides.py", "body": body})])


def growth(times: Sequence[float]) -> float:
    """The exponent with which time grows from the smallest size to the largest."""
    return math.log(times[-1] / times[0]) / math.log(SIZES_KB[-1] / SIZES_KB[0])


def main() -> None:
    only = sys.argv[1:]
    prose = PROSE * (64 * 1024 // len(PROSE))
    for size in (4, 1):
        cost, times = per_kb(prose, size)
        print(f"prose, {size} characters a piece: {cost:.3f} ms/KB, {times:.1f} x yardstick")
    megabyte = PROSE * (1024 * 1024 // len(PROSE))
    spent = seconds(lambda: parsed([megabyte]))
    print(f"prose, one piece of 1 MB: {spent * 1000:.0f} ms")
    print(
        f"{'one call, 4 characters a piece':32}" + "".join(f"{size:>6} KB" for size in SIZES_KB) + "   x yard  exponent"
    )
    for dialect in WRITERS:
        if only and dialect not in only:
            continue
        costs, totals, times = [], [], 0.0
        for size in SIZES_KB:
            text = call_text(dialect, size * 1024)
            cost, times = per_kb(text, 4)
            costs.append(cost)
            totals.append(cost * len(text))
        print(f"{dialect:32}" + "".join(f"{cost:9.3f}" for cost in costs) + f"{times:9.1f}{growth(totals):9.2f}")
    cost, times = per_kb(call_text("hermes", 32 * 1024), 1)
    print(f"one call, 1 character a piece: {cost:.3f} ms/KB, {times:.1f} x yardstick")
    text = call_text("hermes", 1024 * 1024)
    spent = seconds(lambda: parsed([text]))
    print(f"one call in one piece of 1 MB: {spent * 1000:.0f} ms")


if __name__ == "__main__":
    main()
