"""Texts between delimiters that a model may forget: where they end, and where the call ends that they have broken.

Such a text may quote whole calls, so a closer of calls in it ends nothing as long as its own delimiter follows. If the
next delimiter begins another text, or none follows at all, the one of this text was forgotten: the call is broken, and
what stands behind its closer is not its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache

import regex

from parsing.matching import NEED_MORE, compiled, match_at

REACH = 3000  # characters in which the delimiter of a text that quotes a closer must follow; else it is taken for text
_NEAR = 20
_BRACKETS = ("}", ")")
_CLOSES = r"<tool_call\|>|<end_function_call>"
_OPENS = r"<\|tool_call>|<start_function_call>"
_NEXT_KEY = re.compile(r",\s*[\w.-]+\s*:")
_PAIRS = {"{": "}", "[": "]", "(": ")"}
_ALONE = re.compile(r"\s*(?:\Z|<\||<(?:turn|eos|start_function|end_of_turn))")  # no words
_BEHIND = compiled(r"\s{0,20}(?:[})\]:]|,\s{0,20}[\w\"<{\[])")  # what may stand behind a text


class Outcome(Enum):
    """The reason why no more of a text is passed."""

    MORE = 1  # what follows must be seen together with what comes next
    CLOSED = 2  # its delimiter is next
    BROKEN = 3  # its delimiter was forgotten, and the call has ended
    ENDED = 4  # the same, with the call's closer behind it and no words behind that


class DelimitedText:
    """Passes the texts of one call."""

    def __init__(self) -> None:
        self._quoted = 0  # calls that the open text quotes, and has not closed

    def advance(self, buf: str, pos: int, last: bool, delimiter: str, before: Sequence[str]) -> tuple[int, Outcome]:
        """Pass the text up to where it ends. `before` are the pieces before `pos`. Return the place, and the reason."""
        start = pos
        while True:
            found = _marks(delimiter).search(buf, pos, partial=not last)
            at = found.start() if found else len(buf)
            if found is None or found.partial:
                return at, Outcome.MORE
            if found["shut"] is None and found["opens"] is None:
                self._quoted = 0
                return at, Outcome.CLOSED
            opens = found["opens"] is not None
            if opens or (
                not self._quoted and _end_of((*before[-_NEAR:], buf[max(start, at - _NEAR) : at])) in _BRACKETS
            ):
                goes_on = _goes_on(buf, found.end(), last, delimiter, cut=opens)
                if goes_on is None:
                    return at, Outcome.MORE
                if not goes_on:
                    alone = not opens and _ALONE.match(buf, found.end())
                    return at, Outcome.ENDED if alone else Outcome.BROKEN
            self._quoted = max(0, self._quoted + (1 if opens else -1))
            pos = found.end()


def _end_of(pieces: Iterable[str]) -> str:
    """The last visible character, if it is near."""
    return "".join(each[-_NEAR:] for each in pieces)[-_NEAR:].rstrip()[-1:]


def _goes_on(buf: str, pos: int, last: bool, delimiter: str, *, cut: bool) -> bool | None:
    """Return whether the text goes on at `pos`, up to its delimiter; None if more must be seen.

    Where no delimiter follows at all, the message may have been `cut` in the text.
    """
    at = buf.find(delimiter, pos, pos + REACH)
    if at < 0:
        return True if len(buf) - pos >= REACH else cut if last else None
    end, match = match_at(_BEHIND, buf, at + len(delimiter), last)
    return None if end == NEED_MORE else match is not None


def closed(raw: str, delimiter: str, closers: str) -> str | None:
    """`raw` with the delimiter that its last text lacks in front of these closers. None if it may end elsewhere."""
    head, _, text = raw.rpartition(delimiter)
    for closer in reversed(closers):
        text = text.rstrip()
        if not text.endswith(closer):
            return None
        text = text[:-1]
    if _NEXT_KEY.search(text) or any(text.count(opener) != text.count(closer) for opener, closer in _PAIRS.items()):
        return None
    return f"{head}{delimiter}{text}{delimiter}{closers}"


@lru_cache(maxsize=8)
def _marks(delimiter: str) -> regex.Pattern[str]:
    return compiled(rf"(?P<shut>{_CLOSES})|(?P<opens>{_OPENS})|{regex.escape(delimiter)}")
