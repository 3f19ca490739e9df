"""Rows as the command line prints them, in columns as wide as they need to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from app.config.display import as_written
from app.config.settings import Loaded

MAX_COLUMN = 40


def aligned(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> list[str]:
    """A line for the columns' names, and one for each row."""
    lines = [dict(zip(columns, columns, strict=True)), *rows]
    widths = {name: max(len(row[name]) for row in lines) for name in columns}
    return ["  ".join(f"{row[name]:{widths[name]}}" for name in columns).rstrip() for row in lines]


def config_table(loaded: Loaded) -> str:
    """The settings in force, one aligned line each: name, value (keys masked), where the value comes from."""
    rows = [("setting", "value", "from")]
    rows += [(name, as_written(getattr(loaded.settings, name)), origin) for name, origin in loaded.origins.items()]
    name_width = max(len(name) for name, _, _ in rows)
    value_width = min(MAX_COLUMN, max(len(value) for _, value, _ in rows))  # a longer value moves its own line only
    return "\n".join(f"{name:{name_width}}  {value:{value_width}}  {origin}" for name, value, origin in rows)
