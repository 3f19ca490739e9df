"""The replacement of a text that occurs exactly once, with failures that help a model to name the right one."""

from __future__ import annotations

import difflib

from msgspec import Struct

from tools.base.outcome import ToolFailed

_NEAREST = 3
_SEARCHED_LINES = 2_000
_SEARCHED_CHARACTERS = 200


class Replacement(Struct, frozen=True):
    """`old`, found at `start`, gives way to `new`, which makes `text`."""

    start: int
    old: str
    new: str
    text: str


def replace_once(text: str, old: str, new: str, name: str, otherwise: str) -> Replacement:
    """Replace `old` in the text of `name`. Raises ToolFailed; `otherwise` is what to do with an empty `old`."""
    if "\r\n" in text and "\r" not in old and (with_returns := _with_returns(old)) in text:
        # A model sees and writes plain newlines; the text keeps its own.
        old, new = with_returns, _with_returns(new)
    at = _only_place(text, old, name, otherwise)
    if old == new:
        raise ToolFailed("old and new are the same: nothing would change.")
    return Replacement(at, old, new, text[:at] + new + text[at + len(old) :])


def _with_returns(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _only_place(text: str, old: str, name: str, otherwise: str) -> int:
    if not old:
        raise ToolFailed(f"old is empty: give the text to replace, or {otherwise}.")
    at = text.find(old)
    if at < 0:
        raise ToolFailed(f"old is not in {name}. It must match exactly, spaces included.{_nearest(text, old)}")
    if text.find(old, at + 1) >= 0:
        raise ToolFailed(f"old is in {name} {text.count(old)} times or more: add lines around it so that it is unique.")
    return at


def _nearest(text: str, old: str) -> str:
    """The lines of the text that are most like the first line of `old`, with their numbers."""
    sought = next((line.strip() for line in old.splitlines() if line.strip()), "")[:_SEARCHED_CHARACTERS]
    lines = {
        line.strip()[:_SEARCHED_CHARACTERS]: f"{number}: {line[:_SEARCHED_CHARACTERS]}"
        for number, line in enumerate(text.splitlines()[:_SEARCHED_LINES], start=1)
    }
    near = difflib.get_close_matches(sought, lines, n=_NEAREST, cutoff=0.5)
    return "" if not near else "\nThe nearest lines are:\n" + "\n".join(lines[line] for line in near)
