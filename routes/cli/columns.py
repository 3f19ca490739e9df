"""Rows as the command line prints them, in columns as wide as they need to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def aligned(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> list[str]:
    """A line for the columns' names, and one for each row."""
    lines = [dict(zip(columns, columns, strict=True)), *rows]
    widths = {name: max(len(row[name]) for row in lines) for name in columns}
    return ["  ".join(f"{row[name]:{widths[name]}}" for name in columns).rstrip() for row in lines]
