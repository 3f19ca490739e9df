"""What parsing costs: CPU per KB in small pieces, against a yardstick measured in the same process.

The yardstick is one function call with an `in` test that returns a tuple, per piece: no parser can do with less.
A short call is timed from the making of its parser to its closing: 200 characters of text in pieces of 4, and no two
calls alike. GOALS are what each figure should stay below.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from time import process_time

from parsing import Parser
from tests.support.parsing.forms import WRITERS

TOOLS = {
    "write_note": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "body": {"type": "string"}},
        "required": ["path", "body"],
    },
    "bash": {
        "type": "object",
        "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
        "required": ["command"],
    },
}
SIZES_KB = (2, 8, 32, 128)
REPEATS = 7
SHORT = 200  # characters
SHORT_CALLS = 100
SHORT_DIALECTS = {"JSON": "hermes", "XML": "anthropic_xml", "XML, functions": "qwen3_coder", "DSML": "dsml_v4"}
GOALS = {
    "prose, pieces of 4: x yardstick": 3.5,
    "arguments of 32 KB: x yardstick": 6.0,
    "arguments of 128 KB: x yardstick": 6.0,
    "one character a piece: x yardstick": 4.0,
    "call of 200 characters: µs": 60.0,
    "growth: exponent": 1.05,
}
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
    spent = least = math.inf
    for _ in range(REPEATS):  # in turn: on a busy machine a factor of two lies between one moment and the next
        spent = min(spent, seconds(lambda: parsed(pieces), 1))
        least = min(least, seconds(lambda: yardstick(pieces), 1))
    return spent * 1000 / (len(text) / 1024), spent / least


def call_text(dialect: str, size: int) -> str:
    body = (CODE * (size // len(CODE) + 1))[:size]
    return WRITERS[dialect]([("write_note", {"path": "tides.py", "body": body})])


def short_calls(dialect: str) -> list[list[str]]:
    """Calls of SHORT characters each, in pieces: the same tool with ever different arguments."""
    found = []
    for number in range(SHORT_CALLS):
        start = 7919 * number % len(PROSE)
        command = f"grep -n {number} '" + (PROSE[start:] + PROSE).replace("\n", " ")
        markup = len(WRITERS[dialect]([("bash", {"command": ""})]))
        found.append(pieces_of(WRITERS[dialect]([("bash", {"command": command[: SHORT - markup]})]), 4))
    return found


def growth(times: Sequence[float]) -> float:
    """The exponent with which time grows to the largest size; from the second, as small ones cost what a call costs."""
    return math.log(times[-1] / times[1]) / math.log(SIZES_KB[-1] / SIZES_KB[1])


def _each(run: Callable[[list[str]], object], calls: list[list[str]]) -> float:
    return seconds(lambda: [run(call) for call in calls], 3 * REPEATS) / len(calls)


def _short_call_rows() -> list[float]:
    """Print what a short call costs in each form. Return microseconds."""
    found = []
    for form, dialect in SHORT_DIALECTS.items():
        calls = short_calls(dialect)
        spent = _each(parsed, calls)
        made = _each(lambda _: Parser(TOOLS), calls)
        least = _each(yardstick, calls)
        found.append(spent * 1e6)
        print(
            f"one call of {SHORT} characters, {form:16}{spent * 1e6:6.1f} µs, {made * 1e6:.1f} of them for the parser, "
            f"{spent / least:.1f} x yardstick"
        )
    return found


def _dialect_rows(dialects: Iterable[str]) -> tuple[list[float], list[float], list[float]]:
    """Print a row each. Return the multiples of the yardstick at 32 and at 128 KB, and the exponents."""
    sizes = "".join(f"{size:>6} KB" for size in SIZES_KB)
    print(f"{'one call, 4 characters a piece':32}{sizes}  x yard at 32, 128 KB  exponent")
    multiples: list[list[float]] = []
    exponents = []
    for dialect in dialects:
        costs, totals, row = [], [], []
        for size in SIZES_KB:
            text = call_text(dialect, size * 1024)
            cost, times = per_kb(text, 4)
            costs.append(cost)
            totals.append(cost * len(text))
            row.append(times)
        multiples.append(row)
        exponents.append(growth(totals))
        figures = "".join(f"{cost:9.3f}" for cost in costs)
        print(f"{dialect:32}{figures}{row[-2]:14.1f}{row[-1]:8.1f}{exponents[-1]:10.2f}")
    return [row[-2] for row in multiples], [row[-1] for row in multiples], exponents


def main() -> None:
    only = sys.argv[1:]
    found: dict[str, float] = {}
    prose = PROSE * (64 * 1024 // len(PROSE))
    single = 0.0
    for size in (4, 1):
        cost, times = per_kb(prose, size)
        single = times
        found.setdefault("prose, pieces of 4: x yardstick", times)
        print(f"prose, {size} characters a piece: {cost:.3f} ms/KB, {times:.1f} x yardstick")
    megabyte = PROSE * (1024 * 1024 // len(PROSE))
    spent = seconds(lambda: parsed([megabyte]))
    print(f"prose, one piece of 1 MB: {spent * 1000:.0f} ms")
    at_32, at_128, exponents = _dialect_rows(only or WRITERS)
    found["arguments of 32 KB: x yardstick"] = max(at_32)
    found["arguments of 128 KB: x yardstick"] = max(at_128)
    for dialect in ("hermes", "anthropic_xml"):
        cost, times = per_kb(call_text(dialect, 32 * 1024), 1)
        single = max(single, times)
        print(f"one call, 1 character a piece, {dialect}: {cost:.3f} ms/KB, {times:.1f} x yardstick")
    found["one character a piece: x yardstick"] = single
    text = call_text("hermes", 1024 * 1024)
    spent = seconds(lambda: parsed([text]))
    print(f"one call in one piece of 1 MB: {spent * 1000:.0f} ms")
    found["call of 200 characters: µs"] = max(_short_call_rows())
    found["growth: exponent"] = max(exponents)
    print(f"\n{'the worst of each':40}{'found':>8}{'goal':>8}")
    for name, goal in GOALS.items():
        print(f"{name:40}{found[name]:8.2f}{goal:8.2f}  {'reached' if found[name] <= goal else 'missed'}")


if __name__ == "__main__":
    main()
