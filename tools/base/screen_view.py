"""The rows of a screen and its cursor: writing, moving, erasing."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from tools.base.screen_row import END, Row, fitting, has_wide

HEIGHT = 40
WIDE = 4_096  # columns where there is no terminal: longer lines go on in the next row, and are joined when they leave
TAB = 8
FAR = 500  # how far behind the end of a row something can be written


class View(Struct):
    """One screen. `left` takes the text of rows that leave it at the top. `x` is END or a column of the row `y`."""

    left: Callable[[str], None]
    height: int = HEIGHT
    width: int = WIDE
    style: int = 0
    rows: list[Row] = field(default_factory=lambda: [Row()])
    y: int = 0
    x: int = END
    left_lines: int = 0
    _saved: tuple[int, int, int] = (0, 0, 0)
    _is_cut: bool = False  # the row that left last goes on in the first one

    @property
    def used(self) -> list[Row]:
        """The rows down to the cursor, or to the last one with text."""
        end = len(self.rows)
        while end > self.y + 1 and not self.rows[end - 1].text:
            end -= 1
        return self.rows[:end]

    @property
    def filled(self) -> list[Row]:
        """The same, without the one that has just been begun."""
        used = self.used
        return used if used[-1].shown() else used[:-1]

    @property
    def lines(self) -> int:
        """Lines so far, those that have left and an unfinished one included."""
        rows = self.filled
        return self.left_lines + (sum(not row.wrapped for row in rows[:-1]) + 1 if rows else int(self._is_cut))

    def text(self) -> str:
        """The text of all rows, as it would leave."""
        *rows, last = self.used
        return "".join(map(_leaving, rows)) + last.shown()

    @property
    def row(self) -> Row:
        return self.rows[self.y]

    @property
    def column(self) -> int:
        return min(self.row.column(self.x), self.width - 1)  # behind a full row, the cursor is still on its end

    def write(self, text: str) -> None:
        """Write text in which the only control characters are tabs and line ends."""
        first, *others = text.split("\n")
        self._put(first)
        if self._may_pass(others):
            self._pass(others)
            return
        for line in others:
            self.next_line()
            self._put(line)

    def _may_pass(self, lines: list[str]) -> bool:
        if len(lines) <= self.height or self.style or self.y + 1 < len(self.rows):
            return False
        return max(map(len, lines)) <= self.width

    def _pass(self, lines: list[str]) -> None:
        """Write more lines than there is room for below the last row: only the last ones get rows."""
        for row in self.rows:
            self._leave(row)
        passing, staying = lines[: -self.height], lines[-self.height :]
        self.left_lines += len(passing)
        self.left("\n".join(passing) + "\n")
        self.rows = [Row(line) for line in staying]
        self.y, self.x = len(staying) - 1, END

    def _put(self, text: str) -> None:
        """Write text without a line's end at the cursor; it goes on in the next row at the right margin."""
        exact = self.width < WIDE and has_wide(text)
        while text:
            row = self.rows[self.y]
            if self.x == END and not row.laid and not exact:
                room = max(0, self.width - len(row.text))  # a row may be of a wider window
                row.append(text[:room], self.style)
            else:
                room = self._overwrite(row, text)
            text = text[room:]
            if text and (room == 0 or len(row.text) >= self.width):
                row.wrapped = True
                self.next_line()

    def _overwrite(self, row: Row, text: str) -> int:
        """Write as much of the text as fits into the row; return how much that was."""
        start = row.column(self.x)
        if start >= self.width:
            return 0
        if text[0] == "\t":
            self.to_column((start // TAB + 1) * TAB)
            return 1
        tab = text.find("\t")
        piece = text[: min(self.width - start, len(text) if tab < 0 else tab)]
        piece = piece if piece.isascii() else piece[: fitting(piece, self.width - start)]
        if not piece:  # half of a wide character
            row.text = row.text.ljust(self.width)
            return 0
        end = row.put(start, piece, self.style)
        self.x = END if end >= len(row.text) else end
        return len(piece)

    def to_column(self, column: int) -> None:
        """Move the cursor in its row; not far beyond what is written there."""
        row = self.rows[self.y]
        if column:
            row.lay()
            column = max(0, min(column, self.width - 1, len(row.text) + FAR))
        self.x = END if column == len(row.text) else column

    def to_row(self, y: int) -> None:
        """Move the cursor to a row of the screen, in its column."""
        column = self.column
        y = max(0, min(y, self.height - 1))
        self.rows.extend(Row() for _ in range(len(self.rows), y + 1))
        self.y = y
        self.to_column(column)

    def next_line(self) -> None:
        """Move the cursor to the beginning of the next row; at the bottom, the first row leaves the screen."""
        if self.y + 1 == self.height:
            self._leave(self.rows.pop(0))
            self.rows.append(Row())
        else:
            self.y += 1
            if self.y == len(self.rows):
                self.rows.append(Row())
        self.x = 0 if self.rows[self.y].text else END

    def feed_line(self) -> None:
        """Move the cursor to the next row, in its column."""
        column = self.column
        self.next_line()
        self.to_column(column)

    def resize(self, height: int, width: int) -> None:
        """Take another size. In a lower one the first rows leave, so that the cursor stays on the screen."""
        del self.rows[max(height, self.y + 1) :]
        while len(self.rows) > height:
            self._leave(self.rows.pop(0))
            self.y -= 1
        self.height, self.width = height, width

    def save(self) -> None:
        self._saved = (self.y, self.column, self.style)

    def restore(self) -> None:
        y, column, self.style = self._saved
        self.to_row(y)
        self.to_column(column)

    def _leave(self, row: Row) -> None:
        self.left_lines += not row.wrapped
        self._is_cut = row.wrapped
        self.left(_leaving(row))


def _leaving(row: Row) -> str:
    return row.shown() + ("" if row.wrapped else "\n")
