"""Texts of models as they are, with every character spelled out that cannot be seen."""

from __future__ import annotations

import json
from typing import Any

import regex

TICKS = regex.compile("`{3,}")
UNSEEN = regex.compile(r"(?![ \n\t])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]")


def exact(written: str) -> str:
    """The text with every character that cannot be seen spelled out; spaces, tabs and line ends stay."""
    return UNSEEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", written)


def one_line(written: str) -> str:
    """`exact`, line ends and tabs spelled out, too."""
    return exact(written).replace("\n", "<U+000A>").replace("\t", "<U+0009>")


def exact_json(value: Any) -> str:
    """One line of JSON, to be changed by a person and read again: what cannot be seen is escaped."""
    return UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], json.dumps(value, ensure_ascii=False))


def fenced(written: str, language: str = "") -> str:
    """Markdown that shows the text as it is, by a fence that is longer than any inside."""
    fence = "`" * (1 + max(map(len, TICKS.findall(written)), default=2))
    return f"{fence}{language}\n{written}\n{fence}"
