import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.base.output_buffer import LINE_CHARACTERS, TAIL_LINES, TEXT_CHARACTERS, OutputBuffer, lines_of


def fed(*blocks: bytes, most: int = TEXT_CHARACTERS) -> OutputBuffer:
    output = OutputBuffer(most)
    for block in blocks:
        output.feed(block)
    output.feed(b"", final=True)
    return output


@pytest.mark.parametrize(
    ("written", "text", "tail", "lines"),
    [
        (b"", "", (), 0),
        (b"one", "one", ("one",), 1),
        (b"one\n", "one\n", ("one",), 1),
        (b"one\n\ntwo", "one\n\ntwo", ("one", "", "two"), 3),
        (b"10%\r20%\rdone\r\n", "done\n", ("done",), 1),
        (b"10%\r", "10%", ("10%",), 1),
        (b"caf\xc3\xa9 \xff", "café \ufffd", ("café \ufffd",), 1),
        (b"cut \xe2\x82", "cut \ufffd", ("cut \ufffd",), 1),
        (b"a\0b", "a\ufffdb", ("a\ufffdb",), 1),
    ],
)
def test_what_was_written_is_shown(written: bytes, text: str, tail: tuple[str, ...], lines: int) -> None:
    output = fed(written)
    assert (output.text(), output.tail, output.lines, output.bytes) == (text, tail, lines, len(written))


@given(
    st.lists(st.sampled_from(["a", "é", "\n", "\r", "\r\n", "x" * 300, "\n" * 20, "word "]), max_size=60),
    st.sampled_from([1000, 10_000]),
    st.data(),
)
def test_slicing_does_not_matter(pieces: list[str], most: int, data: st.DataObject) -> None:
    written = "".join(pieces).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=20)))
    blocks = [written[start:end] for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    whole, sliced = fed(written, most=most), fed(*blocks, most=most)
    assert len(whole.text()) <= most
    assert (sliced.text(), sliced.tail, sliced.lines) == (whole.text(), whole.tail, whole.lines)


@given(st.lists(st.text("ab", max_size=5), max_size=40))
def test_the_tail_is_the_last_lines(lines: list[str]) -> None:
    output = fed("".join(f"{line}\n" for line in lines).encode())
    assert output.tail == tuple(lines[-TAIL_LINES:])
    assert output.lines == len(lines)


def test_an_endless_line_shows_its_moving_end() -> None:
    output = fed(b"before\n", b"x" * 1_000_000, b"END")
    (line,) = output.tail
    assert line.startswith("…") and line.endswith("xEND") and len(line) == LINE_CHARACTERS


def test_long_output_keeps_head_and_end_and_says_how_much_is_missing() -> None:
    written = "".join(f"line {number}\n" for number in range(1_000_000)).encode()
    text = fed(*[written[at : at + 65_536] for at in range(0, len(written), 65_536)]).text()
    assert len(text) <= TEXT_CHARACTERS
    head, _, rest = text.partition("\n[... ")
    lines, _, rest = rest.partition(" lines, ")
    count, _, end = rest.partition(" characters left out ...]\n")
    assert head.startswith("line 0\nline 1\n") and end.endswith("line 999998\nline 999999\n")
    assert int(count.replace(",", "")) == len(written) - len(head) - len(end)
    assert len(head.splitlines()) + int(lines.replace(",", "")) + len(end.splitlines()) == 1_000_000


def test_lines_that_are_not_kept_are_counted() -> None:
    """With those that are, one that is cut included, they are all that were written."""
    for line in ("line\n", "x\r\n", "long " * 100 + "\n", "\n"):
        count = 2 * TEXT_CHARACTERS // len(line) + 1
        output = fed(line.encode() * count)
        head = output.part(0, TEXT_CHARACTERS)
        end = output.part(head.start + len(head.text), TEXT_CHARACTERS)
        assert end.start > len(head.text) and not head.missing
        assert lines_of(head.text) + end.missing + lines_of(end.text) == count
    assert fed(b"x" * 2 * TEXT_CHARACTERS).part(TEXT_CHARACTERS, 1).missing == 0


@pytest.mark.parametrize("length", [TEXT_CHARACTERS - 1, TEXT_CHARACTERS, TEXT_CHARACTERS + 1])
def test_the_cap_is_exact(length: int) -> None:
    text = fed(b"x" * length).text()
    assert (text == "x" * length) == (length <= TEXT_CHARACTERS)
    assert len(text) <= TEXT_CHARACTERS


@pytest.mark.parametrize("block", [b"x" * 65_536, b"y\n" * 32_768, b"\n" * 65_536, b"\r" * 65_536])
def test_memory_does_not_grow(block: bytes) -> None:
    output = OutputBuffer()
    tracemalloc.start()
    try:
        for _ in range(200):
            output.feed(block)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert output.bytes == 200 * 65_536
    assert kept < 1_000_000


def test_bytes_that_come_one_by_one_cost_no_more_than_in_blocks() -> None:
    """Head and end are not copied for each of them: a second here would be minutes of that."""
    output = OutputBuffer()
    for _ in range(400_000):
        output.feed(b"x")
    assert len(output.text()) <= TEXT_CHARACTERS and output.bytes == 400_000


def test_lines_that_are_cut_go_whole() -> None:
    lines = "".join(f"line {number} of many\n" for number in range(20_000))
    head, _, rest = fed(lines.encode()).text().partition("\n[... ")
    told, _, end = rest.partition(" lines, ")[2].partition(" characters left out ...]\n")
    assert lines.startswith(f"{head}\n") and lines.endswith(f"\n{end}")
    assert int(told.replace(",", "")) == len(lines) - len(head) - len(end)
    assert len(head) + len(end) > TEXT_CHARACTERS - 200
