"""Where arguments come from: the share of 500 constructed calls whose parts are right, and the time a call takes."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from app.core.spans import Span
from app.provenance.argument_spans import spans_of, texts_in
from app.provenance.text_index import MOST_READ, ReadText, TextIndex
from benchmarks.origins.cases import Case, Part, all_cases

WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo", "lima")


def found(case: Case, spans: Iterable[Span]) -> frozenset[Part]:
    texts = dict(texts_in(case.arguments))
    return frozenset((one.argument, texts[one.argument][one.start : one.end], one.kind, one.untrusted) for one in spans)


def derived(case: Case) -> Sequence[Span]:
    index = TextIndex()
    for source in case.sources:
        index.add(source)
    return spans_of(case.arguments, index)


def full_index(most: int = MOST_READ) -> TextIndex:
    """An index with so much text, in which no two passages are alike."""
    index, number, size = TextIndex(), 0, 0
    while size < most - 20_000:
        words = [f"{WORDS[(number * 7 + at) % len(WORDS)]}{(number * 31 + at * at) % 9973}" for at in range(2_000)]
        text = " ".join(words)
        index.add(ReadText("result", f"c{number}", "the result of a tool", text, untrusted=bool(number % 2)))
        number, size = number + 1, size + len(text)
    return index


def main() -> None:
    cases = all_cases()
    right, of_kind = Counter[str](), Counter(one.kind for one in cases)
    for one in cases:
        is_right = found(one, derived(one)) == one.parts
        right[one.kind] += is_right
        if not is_right and "-v" in sys.argv:
            print(f"{one.kind}: {one.arguments}: {sorted(found(one, derived(one)) ^ one.parts)}")
    for kind, count in of_kind.items():
        print(f"{kind:16} {right[kind]:3} of {count:3} right")
    print(f"{'all':16} {right.total():3} of {len(cases):3} right, {right.total() / len(cases):.1%}")
    index, times = full_index(), list[float]()
    for one in cases:
        for source in one.sources:
            index.add(source)
    for one in cases:
        begun = time.process_time()
        spans_of(one.arguments, index)
        times.append((time.process_time() - begun) * 1000)
    times.sort()
    p50, p95 = times[len(times) // 2], times[len(times) * 95 // 100]
    print(f"a call with {MOST_READ:,} characters read: {p50:.2f} ms (p50), {p95:.2f} ms (p95)")
