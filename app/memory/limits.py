"""Limits of memories, and texts and kinds as they are stored."""

from __future__ import annotations

from tools.base.access import FACT, KINDS
from tools.base.escape_invisible import visible

MOST_BYTES = 2_000  # of one memory
MOST_PAGE = 200  # memories in one answer
MOST_OF_RUN = 32  # that the model of one run may store


class UnfitMemory(Exception):
    """A text or kind that cannot be stored. The message says what to do."""


class MemoryFull(UnfitMemory):
    """The owner has as many memories as there may be."""


def text_of(text: str) -> str:
    """Return the text as it is stored. Raises UnfitMemory."""
    text = text.encode("utf-8", "replace").decode()  # a half of a character cannot be stored
    text = "\n".join(" ".join(visible(line).split()) for line in text.strip().splitlines()).strip()
    if not text:
        raise UnfitMemory("text: a memory needs words. Write a sentence that will be understood later.")
    if len(text.encode()) > MOST_BYTES:
        raise UnfitMemory(f"text: a memory has at most {MOST_BYTES:,} bytes. Shorten it, or keep it in a file.")
    return text


def kind_of(kind: str) -> str:
    """Return the kind. Raises UnfitMemory."""
    kind = kind.strip().lower() or FACT
    if kind not in KINDS:
        raise UnfitMemory(f"kind: there are {', '.join(KINDS)}.")
    return kind
