"""Parts that commands share: their actions, rows in columns as wide as they need to be, and reasons on stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from pydantic import ValidationError

_Parser = TypeVar("_Parser", bound=argparse.ArgumentParser)


def action(actions: argparse._SubParsersAction[_Parser], name: str, text: str) -> _Parser:
    """The parser of one action of a command."""
    return actions.add_parser(name, help=text, description=text, allow_abbrev=False)


def flag_problems(wrong: ValidationError) -> str:
    """The problems of fields that were given as flags."""
    flags = (
        (f"--{str(error['loc'][0]).replace('_', '-')}: " if error["loc"] else "", error) for error in wrong.errors()
    )
    texts = (f"{flag}{error['msg']}" for flag, error in flags)
    return "; ".join(texts).replace("Value error, ", "")


def aligned(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> list[str]:
    """A line for the columns' names, and one for each row."""
    lines = [dict(zip(columns, columns, strict=True)), *rows]
    widths = {name: max(len(row[name]) for row in lines) for name in columns}
    return ["  ".join(f"{row[name]:{widths[name]}}" for name in columns).rstrip() for row in lines]


def failed(reason: object) -> int:
    """Say on stderr why a command cannot do its work, and return its exit code."""
    print(f"dragoman: {reason}", file=sys.stderr)
    return 1
