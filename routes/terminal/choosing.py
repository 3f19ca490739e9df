"""A list above the prompt: arrows choose a row, and what is typed leaves the rows that contain it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import chop_cells

ROWS, PREVIEW = 8, 4  # lines


def offered(rows: Sequence[str], typed: str) -> list[int]:
    """The places of the rows that contain all words."""
    words = typed.casefold().split()
    return [at for at, row in enumerate(rows) if all(word in row.casefold() for word in words)]


def drawn(rows: Sequence[str], places: Sequence[int], at: int, columns: int) -> str:
    """The rows around the chosen one, a line each, and below them the rest of that one."""
    if not places:
        return "  -"
    first = max(0, min(at - ROWS // 2, len(places) - ROWS))
    lines = list[str]()
    for number, place in enumerate(places[first : first + ROWS], start=first):
        mark = "❯" if number == at else " "
        lines.append(_cut(f"{mark} {rows[place].partition(chr(10))[0]}", columns))
    preview = rows[places[at]].split("\n")[1 : PREVIEW + 1]
    count = [f"  {at + 1}/{len(places)}"] if len(places) > ROWS else []
    return "\n".join([*lines, *count, *(_cut(f"    {line}", columns) for line in preview)])


def numbered(rows: Sequence[str]) -> str:
    """The list where keys are not read singly."""
    return "\n".join(f"{number:3}  {row.partition(chr(10))[0]}" for number, row in enumerate(rows, start=1))


def numbered_choice(rows: Sequence[str], typed: str) -> int | None:
    number = typed.strip()
    return int(number) - 1 if number.isdecimal() and 1 <= int(number) <= len(rows) else None


def _cut(line: str, columns: int) -> str:
    return next(iter(chop_cells(line, max(1, columns - 1))), "")
