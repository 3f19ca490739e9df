"""The table of a fire."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tests.support.fire.faults import Done
from tests.support.fire.watching import GAP_S, Gap, Watch

LONGEST = 8
ENDS = ("whole", "error", "cut", "silent", "hang")
HEAD = ("kind", "lane", "runs", "events", "lost", "doubled", *ENDS, "returns", "silence s")


def table(rows: Iterable[Sequence[object]]) -> str:
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in texts)


def runs_table(watches: Sequence[Watch]) -> str:
    groups = defaultdict[tuple[str, str], list[Watch]](list)
    for one in watches:
        groups[one.kind, one.lane].append(one)
    rows: list[Sequence[object]] = [HEAD]
    for (kind, lane), group in sorted(groups.items()):
        ends = Counter(one.end for one in group)
        sums = (
            sum(one.received.events for one in group),
            sum(one.lost for one in group),
            sum(one.doubled for one in group),
        )
        silence = max(one.silence_s for one in group)
        returns = sum(one.returns - 1 for one in group)
        rows.append((kind, lane, len(group), *sums, *(ends[end] or "" for end in ENDS), returns, f"{silence:.1f}"))
    return table(rows)


def faults_table(faults: Sequence[Done], watches: Sequence[Watch]) -> str:
    """The longest silence of a native client that falls to each fault: the last one that began before it ended."""
    longest, ended = defaultdict[str, float](float), defaultdict[str, float](float)
    for gap in (gap for one in watches if one.lane == "native" for gap in one.gaps):
        before = [one for one in faults if gap.start - 2 * GAP_S <= one.start <= gap.end]
        name = before[-1].name if before else "none"
        longest[name] = max(longest[name], gap.seconds)
    for one in faults:
        ended[one.name] = max(ended[one.name], one.took_s)
    counts = Counter(one.name for one in faults)
    rows: list[Sequence[object]] = [("fault", "times", "longest silence s", "longest end s")]
    for name in sorted({*counts, *longest}):
        took = f"{ended[name]:.1f}" if ended[name] else ""
        rows.append((name, counts[name], f"{longest[name]:.1f}", took))
    return table(rows)


def silences(faults: Sequence[Done], watches: Sequence[Watch], start: float) -> str:
    """The longest of native clients, with what began in them."""
    gaps = sorted(((gap, one) for one in watches if one.lane == "native" for gap in one.gaps), key=_length)[-LONGEST:]
    rows: list[Sequence[object]] = [("kind", "run", "silence s", "from", "to", "faults in it")]
    for gap, one in reversed(gaps):
        within = ", ".join(f"{fault.name} {fault.who}" for fault in faults if gap.start - 1 <= fault.start <= gap.end)
        times = (f"{gap.seconds:.1f}", f"{gap.start - start:.1f}", f"{gap.end - start:.1f}")
        rows.append((one.kind, one.received.run, *times, within))
    return table(rows)


def _length(pair: tuple[Gap, Watch]) -> float:
    return pair[0].seconds


def refusals_table(watches: Sequence[Watch]) -> str:
    sums = Counter[tuple[str, str]]()
    for one in watches:
        for words, times in one.refusals.items():
            sums[one.lane, words] += times
    return table([("lane", "what a client got", "times"), *((*key, times) for key, times in sorted(sums.items()))])


def errors_table(watches: Sequence[Watch], start: float) -> str:
    """Streams that ended in an error of their format, or broke off."""
    rows: list[Sequence[object]] = [("begun s", "servers", "kind", "lane", "end", "why")]
    for one in watches:
        if one.end in ("error", "cut"):
            words = one.why[-200:].replace("\n", " ")
            rows.append((f"{one.at - start:.1f}", "new" if one.new else "mixed", one.kind, one.lane, one.end, words))
    return table(rows)
