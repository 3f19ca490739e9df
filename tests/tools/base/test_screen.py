"""The screen of a program's output: what a person would see of it, in any slicing, in bounded time and memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.base.output_buffer import LINE_CHARACTERS, OutputBuffer
from tools.base.screen import Screen, Window, without_controls

BAR = "".join(f"\r{step:3d}/400 |{'#' * (step // 8):<50}|" for step in range(401))
SMALL = Window(4, 10)


def shown(text: str, window: Window | None = None) -> str:
    left: list[str] = []
    screen = Screen(left.append, window)
    screen.feed(text)
    return "".join(left) + screen.text()


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        (BAR, f"400/400 |{'#' * 50}|"),
        ("10%\r20%\rdone\r\n", "done\n"),
        ("loading...\r\x1b[Kready\n", "ready\n"),
        ("12345\rab\n", "ab345\n"),
        ("a\r\n\r\nb  \n", "a\n\nb  \n"),  # blanks that were written stay
        ("progress\r        \rdone", "done"),
        ("progress\r        \n", "\n"),
        ("type\b\b\bxyz", "txyz"),
        ("\x1b[1;31mred\x1b[0m and \x1b[38;5;200mpink\x1b[m", "red and pink"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "textlink"),
        ("\x1b]never ended\nnext", "\nnext"),
        ("a: 1\nb: 1\n\x1b[2A\x1b[2Ka: 2\n\x1b[2Kb: 2\n", "a: 2\nb: 2\n"),
        ("a: wait\nb: wait\n\x1b[2Fa: done\x1b[K\x1b[2E", "a: done\nb: wait\n"),
        ("one\ntwo\nthree\x1b[1;1H\x1b[Jall", "all"),
        ("\x1b[H\x1b[2J\x1b[3Jfresh\n", "fresh\n"),
        ("before\n\x1b[?1049h\x1b[Hinside the editor\x1b[?1049lafter\n", "before\nafter\n"),
        ("before\n\x1b[?1049h\x1b[Hinside", "before\ninside"),
        ("ab\x1b[1Dcd\x1b[5Ge", "acd e"),
        ("abcdef\x1b[3G\x1b[2P\x1b[1@", "ab ef"),
        ("abcdef\x1b[3G\x1b[2X", "ab  ef"),
        ("abcdef\x1b[3G\x1b[1K", "   def"),
        ("x\x1b7abc\x1b8y", "xybc"),
        ("下载中 10%\r下载中 90%\n", "下载中 90%\n"),
        ("中文\b\bx", "中x"),
        ("中文\rx", "x 文"),
        (
            "e\u0301 👩\u200d💻 \u0928\u092e\u0938\u094d\u0924\u0947\n",
            "e\u0301 👩\u200d💻 \u0928\u092e\u0938\u094d\u0924\u0947\n",
        ),
        ("a\tb\nc\td\r\n", "a\tb\nc\td\n"),
        ("a\tb\rA", "A       b"),
        ("a\0b\x07\x7f", "a\ufffdb"),
        ("\x1b[3\n1m", "[3\n1m"),  # no sequence: nothing of it is swallowed
        ("\x1b[?25l\x1b[?2004hx\x1b[>4;1m\x1b(B\x1b=\x1b[6n\x1b[!p", "x"),
        ("x" * 10_000 + "\n", "x" * 10_000 + "\n"),
        ("", ""),
        ("\x1b", ""),
        ("\n" * 50, "\n" * 50),
    ],
)
def test_what_is_read_is_what_a_person_sees(written: str, seen: str) -> None:
    assert shown(written) == seen == without_controls(written)


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("one\r\ntwo\nthree\r\n", "one\ntwo\n   three\n"),  # a driver would have returned the carriage
        ("0123456789abc\r\n", "0123456789abc\n"),  # wrapped by the terminal, joined again
        ("0123456789abc\rX\r\n", "0123456789Xbc\n"),
        ("0123456789\r*\r\n", "*123456789\n"),
        ("中文中文中文\r\n", "中文中文中文\n"),
        ("1\r\n2\r\n3\r\n4\r\n5\x1b[9A*", "1\n2*\n3\n4\n5"),  # no higher than the screen's top
        ("1\r\n2\r\n3\r\n4\r\n5\x1b[H*\x1b[99;99H!", "1\n*\n3\n4\n5        !"),
    ],
)
def test_a_terminal_has_a_size(written: str, seen: str) -> None:
    assert shown(written, SMALL) == seen


PIECES = [
    *(
        "a",
        "word ",
        "中",
        "e\u0301",
        "\t",
        "\n",
        "\r",
        "\r\n",
        "\b",
        "\0",
        "\x07",
        "\x1b",
        "\x1b[",
        "\x9b",
        "\x85",
        "\v",
    ),
    *("\x1b[A", "\x1b[2B", "\x1b[3C", "\x1b[D", "\x1b[4G", "\x1b[2;3H", "\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J"),
    *("\x1b[1J", "\x1b[2J", "\x1b[L", "\x1b[M", "\x1b[P", "\x1b[@", "\x1b[X", "\x1b[s", "\x1b[u", "\x1b7", "\x1b8"),
    *("\x1b[31m", "\x1b[0m", "\x1b[38;2;1;2;3;1m", "\x1b[?1049h", "\x1b[?1049l", "\x1b]0;t", "\x07", "\x1b\\", "\x1bc"),
    *("\x1b[" + "1;" * 80 + "m", "line\n" * 60, "y" * 5_000, "\x1bM", "\x1b[999999999999A", "\x1b(", ";5", "m"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=60), st.sampled_from([None, SMALL]), st.data())
@settings(max_examples=300)
def test_any_slicing_of_the_bytes_gives_the_same(pieces: list[str], window: Window | None, data: st.DataObject) -> None:
    written = "".join(pieces).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=20)))
    whole, sliced = OutputBuffer(2_000, window), OutputBuffer(2_000, window)
    whole.feed(written, final=True)
    for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
        sliced.feed(written[start:end])
        assert sliced.lines >= 0 and len(sliced.tail) <= 12
    sliced.feed(b"", final=True)
    assert (sliced.text(), sliced.tail, sliced.lines) == (whole.text(), whole.tail, whole.lines)
    assert sliced.written() == whole.written()
    assert len(whole.text()) <= 2_000 and "\x1b" not in whole.text() and "\r" not in whole.text()


def test_a_terminal_that_is_resized_loses_nothing_and_marks_where() -> None:
    output = OutputBuffer(window=Window(4, 10))
    output.feed(b"1\r\n2\r\n3\r\n0123456789")
    output.resize(Window(2, 6))
    output.feed(b"abcdefgh\r\n\x1b[1;1Hx")
    assert output.text() == "1\n2\n3\n0123456789abcdefxh"
    assert output.written().count("\x1b[8;2;6t") == 1


@given(st.lists(st.sampled_from(PIECES) | st.tuples(st.integers(5, 9), st.integers(20, 30))))
def test_any_sizes_are_taken_at_any_time(steps: list[str | tuple[int, int]]) -> None:
    output = OutputBuffer(2_000, Window(5, 20))
    for step in steps:
        if isinstance(step, str):
            output.feed(step.encode())
        else:
            output.resize(Window(*step))
        assert output.lines >= 0 and len(output.tail) <= 12
    assert len(output.text()) <= 2_000


@pytest.mark.parametrize(
    ("written", "drawn"),
    [("line\r 5%\r\x1b[K9%\n", False), ("\x1b[H\x1b[2J\x1b[3Jclear", False), ("\x1b[?1049hvim", True),
     ("\x1b[?1049hvim\x1b[?1049l", False), ("\x1b[H\x1b[Jtop" * 3, True)],
)  # fmt: skip
def test_programs_that_draw_on_the_whole_screen_are_known(written: str, *, drawn: bool) -> None:
    output = OutputBuffer(window=Window())
    output.feed(written.encode())
    assert output.is_drawn == drawn


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n\t"), max_size=300))
def test_text_without_control_characters_is_left_as_it_is(text: str) -> None:
    assert without_controls(text) == text


def test_a_progress_bar_of_400_steps_is_its_last_line() -> None:
    output = OutputBuffer()
    for step in BAR.split("\r"):
        output.feed(step.encode() + b"\r")
    output.feed(b"\ndone\n", final=True)
    assert output.text() == f"400/400 |{'#' * 50}|\ndone\n"
    assert output.tail == (f"400/400 |{'#' * 50}|", "done")
    assert (output.lines, output.bytes) == (2, len(BAR) + 7)
    assert output.written() == BAR[1:].join(["\r", "\r\ndone\n"])


def test_a_tail_has_the_colours_of_a_terminal_each_line_its_own() -> None:
    output = OutputBuffer()
    output.feed("\x1b[1;32mok\x1b[22m and\nstill green\x1b[39m plain\n\x1b[41m中\x1b[0m\n".encode())
    assert output.tail == (
        "\x1b[1;32mok\x1b[0m\x1b[32m and\x1b[0m",
        "\x1b[32mstill green\x1b[0m plain",
        "\x1b[41m中\x1b[0m",
    )
    assert output.is_coloured and output.text() == "ok and\nstill green plain\n中\n"
    output.feed(b"\x1b[7m" + b"x" * 1_000)
    assert output.tail[-1] == f"…\x1b[7m{'x' * (LINE_CHARACTERS - 1)}\x1b[0m"


HOSTILE = {
    "overwriting": "y" * 4_000 + "\bx\b" * 6_000,
    "wide": "\r中文输出" * 5_000,
    "far": "\x1b[9999Cx\n" * 2_000,
    "up": "a\nb\x1b[9A" * 4_000,
    "erase": "\t" * 4_000 + "\x1b[1K\x1b[2Kx\r" * 3_000,
    "styles": "".join(f"\x1b[38;2;{n % 256};{n // 256};7mx" for n in range(6_000)),
    "parameters": ("\x1b[" + "1;" * 90) * 1_000,
    "string": "\x1b]" + "x" * 200_000,
    "lines": "\x1b[H\x1b[9999L\x1b[9999M" * 1_500,
}


@pytest.mark.parametrize("written", HOSTILE.values(), ids=HOSTILE)
def test_hostile_output_costs_little_time_and_memory(written: str) -> None:
    tracemalloc.start()
    try:
        screen, left = Screen(lambda _: None), 0
        for at in range(0, len(written), 8_192):
            screen.feed(written[at : at + 8_192])
            left += len(screen.text())
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 3_000_000


@pytest.mark.parametrize(
    ("written", "asks"),
    [
        ("Your name: ", True),
        ("Really?", True),
        ("Go on? [Y/n] ", True),
        ("Continue (yes/no)", True),
        ("version: (1.0.0) ", True),
        (">>> ", True),
        ("\x1b[32muser\x1b[0m$ ", True),
        ("Press ENTER to continue", True),
        ("first\r\nName: ", True),
        ("Name: \r\n", False),
        ("Results:\r\n", False),
        ("", False),
        ("Downloading ...", False),
        ("\r 45% (45/100)", False),
        ("[####    ]", False),
        ("\x1b[?1049hName: ", False),
    ],
)
def test_a_question_is_noticed_while_the_cursor_stands_behind_it(written: str, asks: bool) -> None:
    output = OutputBuffer(window=Window(24, 80))
    output.feed(written.encode())
    assert output.asks == asks
    output.feed(b"Bob\r\n")
    assert not output.asks
