"""Control characters and escape sequences: what each does to a screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tools.base.screen_row import Row
from tools.base.screen_view import View

_MOST = 9_999  # of a parameter


def apply_sequence(view: View, final: str, parameters: str) -> None:
    """Apply a control sequence; nothing happens if it is unknown."""
    move = _SEQUENCES.get(final)
    words = parameters.split(";")
    if move and all(word.isdecimal() or not word for word in words):
        move(view, *(min(int(word or 0), _MOST) for word in (*words, "")[:2]))


def apply_escape(view: View, final: str) -> None:
    """Apply an escape sequence of one character; nothing happens if it is unknown."""
    if move := _ESCAPES.get(final):
        move(view)


def apply_control(view: View, character: str) -> None:
    """Apply a control character that is neither a line's end nor a tab."""
    if move := _CONTROLS.get(character):
        move(view)


def _to_column(view: View, column: int, _: int) -> None:
    view.to_column(max(0, column - 1))


def _to(view: View, row: int, column: int) -> None:
    view.to_row(row - 1)
    view.to_column(max(0, column - 1))


def _erase_screen(view: View, part: int, _: int) -> None:
    if part == 0:
        _erase_line(view, 0, 0)
        del view.rows[view.y + 1 :]
    elif part == 1:
        _erase_line(view, 1, 0)
        for row in view.rows[: view.y]:
            row.clear()
    else:
        column = view.column
        view.rows = [Row() for _ in range(view.y + 1)]
        view.to_column(column)


def _erase_line(view: View, part: int, _: int) -> None:
    column, row = view.column, view.row
    if part == 0:
        row.blank(row.column(view.x), len(row.text))  # the last character of a full row stays
    elif part == 1:
        row.blank(0, min(column + 1, len(row.text)))
    else:
        row.clear()
    view.to_column(column)


def _erase(view: View, count: int, _: int) -> None:
    column = view.column
    view.row.blank(column, min(column + max(1, count), len(view.row.text)))
    view.to_column(column)


def _delete(view: View, count: int, _: int) -> None:
    column = view.column
    view.row.delete(column, max(1, count))
    view.to_column(column)


def _insert(view: View, count: int, _: int) -> None:
    column = view.column
    view.row.insert(column, min(max(1, count), view.width - column), view.width)
    view.to_column(column)


def _insert_lines(view: View, count: int, _: int) -> None:
    count = min(max(1, count), view.height - view.y)
    view.rows[view.y : view.y] = [Row() for _ in range(count)]
    del view.rows[view.height :]
    view.to_column(0)


def _delete_lines(view: View, count: int, _: int) -> None:
    del view.rows[view.y : view.y + max(1, count)]
    view.rows.extend(Row() for _ in range(len(view.rows), view.y + 1))
    view.to_column(0)


def _reverse_line(view: View) -> None:
    column = view.column
    if view.y:
        view.to_row(view.y - 1)
    else:
        view.rows.insert(0, Row())
        del view.rows[view.height :]
        view.to_column(column)


def _reset(view: View) -> None:
    view.style = 0
    view.to_row(0)
    _erase_screen(view, 2, 0)
    view.to_column(0)


_SEQUENCES: Mapping[str, Callable[[View, int, int], None]] = {
    "A": lambda view, count, _: view.to_row(view.y - max(1, count)),
    "B": lambda view, count, _: view.to_row(view.y + max(1, count)),
    "C": lambda view, count, _: view.to_column(view.column + max(1, count)),
    "D": lambda view, count, _: view.to_column(max(0, view.column - max(1, count))),
    "E": lambda view, count, _: _to(view, view.y + max(1, count) + 1, 1),
    "F": lambda view, count, _: _to(view, view.y - max(1, count) + 1, 1),
    "G": _to_column,
    "`": _to_column,
    "d": lambda view, row, _: view.to_row(row - 1),
    "H": _to,
    "f": _to,
    "J": _erase_screen,
    "K": _erase_line,
    "X": _erase,
    "P": _delete,
    "@": _insert,
    "L": _insert_lines,
    "M": _delete_lines,
    "s": lambda view, _, __: view.save(),
    "u": lambda view, _, __: view.restore(),
}
_ESCAPES: Mapping[str, Callable[[View], None]] = {
    "7": View.save,
    "8": View.restore,
    "D": View.feed_line,
    "E": View.next_line,
    "M": _reverse_line,
    "c": _reset,
}
_CONTROLS: Mapping[str, Callable[[View], None]] = {
    "\0": lambda view: view.write("\ufffd"),  # not every database can store NUL, and it parts what is written with it
    "\v": View.feed_line,
    "\f": View.feed_line,
    "\x84": View.feed_line,
    "\x85": View.next_line,
    "\x8d": _reverse_line,
}
