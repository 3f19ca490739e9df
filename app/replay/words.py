"""Values and calls in words of one line."""

from __future__ import annotations

import json

from parsing import Arguments


def short(text: str, most: int) -> str:
    """Return a text on one line, at most so many characters of it."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def call_in_words(name: str, arguments: Arguments) -> str:
    return f"{name} {json.dumps(arguments, ensure_ascii=False)}"
