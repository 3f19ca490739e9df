"""Outputs in pieces: however they are asked for, they are the whole, and no secret is in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.policy.canary import Canary
from app.redaction.escape_sequences import ShownText
from app.redaction.output_chunks import OutputPart, Source, redacted_output
from app.redaction.redactor import MARK, Redactor
from app.runs.job_output import EXACT, WIDEST, decoded, readable, size_of
from app.runs.live_outputs import ENDED, Outputs
from tools.base.output_buffer import OutputBuffer, OutputSlice

SECRET, LONGER = "hunter2-hunter2-hunter2", "hunter2-hunter2-hunter2-and-more"
OVERLAPPING = "hunter2-and-something-else"
REDACTOR = Redactor([SECRET, LONGER, OVERLAPPING])
PIECES = st.lists(
    st.sampled_from(["x", "é", "\n", "hunter2-", "and-", "something-else", SECRET, LONGER, LONGER[:20], "word "]),
    max_size=40,
)

PARTED = st.lists(
    st.sampled_from(
        ["x", "\n", *(f"hunter2-{colour}hunter2-{colour}" for colour in ("", "\x1b[0m")), "hunter2", "\x1b[31m", "\x1b"]
    ),
    max_size=40,
)


def source(text: Callable[[], str], *, ended: bool, piece: int) -> Source:
    async def read(offset: int, size: int) -> OutputSlice:
        now = text()
        start = min(offset, len(now))
        part = now[start : start + size]
        return OutputSlice(start, part, len(now), start + len(part) < len(now))

    return Source(read, (REDACTOR,), ended, piece=piece)


def in_bytes(data: bytes, piece: int) -> Source:
    async def read(offset: int, size: int) -> OutputSlice:
        part = data[offset : offset + size]
        whole = offset + len(part) >= len(data)
        return OutputSlice(offset, decoded(part, whole=whole), len(data), not whole)

    return Source(read, (REDACTOR,), True, size_of, WIDEST, piece=piece)


async def told(asked: Source) -> str:
    """All pieces, one after the other."""
    pieces, after = [], 0
    while True:
        part = await asked.part(after, 0)
        assert part.start == after and (part.next > after or part.done)
        pieces.append(part.text)
        after = part.next
        if part.done:
            return "".join(pieces)


@given(PIECES, st.integers(1, 50))
def test_pieces_hide_what_the_whole_hides(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    assert asyncio.run(told(source(lambda: text, ended=True, piece=size))) == REDACTOR.redact(text)


@given(PARTED, st.integers(1, 50))
def test_pieces_hide_secrets_that_sequences_part(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    shown = asyncio.run(told(source(lambda: text, ended=True, piece=size)))
    assert shown == redacted_output((REDACTOR,), text)
    assert SECRET not in ShownText(shown).text


@pytest.mark.parametrize(
    "between", ["\x1b[0m", "\x1b]8;;http://x/\x1b\\", "\x1b[1;38;5;9m\x1b[4m", "\x1b(B", "\x0f", "\x9b0m"]
)
def test_a_sequence_anywhere_in_a_secret_does_not_show_it(between: str) -> None:
    everywhere = between.join(SECRET)
    for text in (*(f"{SECRET[:at]}{between}{SECRET[at:]}" for at in range(1, len(SECRET))), everywhere):
        assert redacted_output((REDACTOR,), f"\x1b[31ma{text}\x1b[0mb") == f"\x1b[31ma{MARK}\x1b[0mb"
    # Above half of one is hidden at the end, where a sequence may be unfinished.
    assert redacted_output((REDACTOR,), f"a{between.join(SECRET[:18])}\x1b[3") == f"a{MARK}\x1b[3"
    assert redacted_output((REDACTOR,), f"a{between}b") == f"a{between}b"


def test_any_number_of_sequences_is_passed_over_in_one_search() -> None:
    for text in (
        "\x9d" * 200_000,
        "\x1b[" * 100_000,
        "\x1b]x" * 70_000,
        "\x1b" * 200_000,
        f"{SECRET[:9]}\x1b[0m" * 20_000,
    ):
        assert redacted_output((REDACTOR,), text) == text
        assert asyncio.run(told(source(lambda text=text: text, ended=True, piece=65_536))) == text  # type: ignore[misc]


@given(PIECES, st.binary(max_size=10), st.integers(1, 50))
def test_pieces_of_bytes_hide_it_too(pieces: list[str], strange: bytes, size: int) -> None:
    data = "".join(pieces).encode() + strange
    expected = REDACTOR.redact(data.decode(errors=EXACT))
    assert readable(asyncio.run(told(in_bytes(data, size)))) == readable(expected)


@given(PIECES, st.lists(st.integers(1, 30), max_size=30))
def test_a_growing_output_is_told_as_it_would_be_at_its_end(pieces: list[str], steps: list[int]) -> None:
    text = "".join(pieces)

    async def follow() -> str:
        shown, after, there = list[str](), 0, 0
        for step in [*steps, len(text)]:
            there = min(len(text), there + step)
            ended = there == len(text)
            part = await source(lambda there=there: text[:there], ended=ended, piece=1000).part(after, 0)  # type: ignore[misc]
            assert part.start == after
            shown.append(part.text)
            after = part.next
        return "".join(shown)

    assert asyncio.run(follow()) == REDACTOR.redact(text)


def test_what_is_not_kept_is_skipped_with_the_rest_of_its_line() -> None:
    output = OutputBuffer(2000)
    output.feed(b"head\n" + b"x" * 5000 + SECRET.encode() + b"\n" + b"y" * 980 + b"\nend")
    reading = Source(partial(_part, output), (REDACTOR,), True, piece=1500)
    head = asyncio.run(reading.part(0, 0))
    assert head.text.startswith("head\nxxx") and len(head.text) == head.next == 1000
    end = asyncio.run(reading.part(head.next, 0))
    assert end.start > head.next and "hunter" not in end.text and end.text.endswith("\nend") and end.done
    assert end.next == end.characters == 5 + 5000 + len(SECRET) + 1 + 980 + 4


async def _part(output: OutputBuffer, offset: int, size: int) -> OutputSlice:
    return output.part(offset, size)


def test_the_code_of_the_prompt_is_hidden_where_pieces_meet() -> None:
    canary = Canary()
    output = OutputBuffer()
    spaced = " ".join(canary.code)
    output.feed(f"{'a' * 90}{spaced}{'b' * 90}".encode())
    reading = Source(partial(_part, output), (Redactor(), canary), True, piece=100)
    assert asyncio.run(told(reading)) == f"{'a' * 90}[blocked]{'b' * 90}"


def written(outputs: Outputs, run: str, *, asked: bool) -> OutputPart | None:
    with outputs.writing(run, "c", (REDACTOR,)) as one:
        one.output = OutputBuffer()
        one.output.feed(f"so far {SECRET[:12]}".encode())
        part = asyncio.run(one.part(0)) if asked else None
        one.output.feed(f"{SECRET[12:]}\n".encode(), final=True)
    return part


def test_only_outputs_that_somebody_reads_stay_for_a_while() -> None:
    outputs = Outputs()
    first = written(outputs, "r0", asked=True)
    assert first and (first.text, first.done) == ("so far ", False)
    left = outputs.of("r0", "c")
    assert left
    last = asyncio.run(left.part(first.next))
    assert (last.text, last.lines, last.done) == (f"{MARK}\n", 1, True)
    written(outputs, "unseen", asked=False)
    assert outputs.of("unseen", "c") is None
    for number in range(1, ENDED + 1):
        written(outputs, f"r{number}", asked=True)
    assert outputs.of("r0", "c") is None and outputs.of("r1", "c")
