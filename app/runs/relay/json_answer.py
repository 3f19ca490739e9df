"""The text of an answer that is to be JSON, without what a model writes around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.models.wire.structured_output import json_of, schema_of
from tools.base.patterns import lazy_pattern

LONGEST_BEGINNING = 64  # characters, white space included, of which the first two others are looked at
SECOND = {"{": '"}', "[": '"{[]-0123456789'}  # what stands behind a bracket that JSON begins with
_MARK = lazy_pattern(r'["\\{}\[\]]')


class JSONAnswer:
    """Text goes in piece by piece, and comes out as soon as it is JSON surely.

    An object that the text begins with, or an array where the format allows one, comes out as it is written, up to its
    end. Anything else, such as `[Note]` or `{name: 1}`, is held until the end: then the JSON in it comes out, repaired,
    or all of it if there is none that fits `response_format`.
    """

    def __init__(self, response_format: Mapping[str, Any]) -> None:
        self._format = response_format
        self._begins = "{" if schema_of(response_format).get("type", "object") == "object" else "{["
        self._begin()

    def _begin(self) -> None:
        self._held: list[str] = []
        self._shown = 0
        self._streams: bool | None = None  # None until the text begins
        self._is_over = self._in_string = self._escaped = False
        self._depth = 0

    def feed(self, text: str) -> str:
        if self._streams is None:
            text = "".join([*self._held, text]).lstrip()
            self._held, self._streams = [], self._begins_as_json(text)
        if not self._streams:
            self._held.append(text)
            return ""
        shown = "" if self._is_over else text[: self._end_in(text)]
        self._shown += len(shown)
        return shown

    def close(self) -> str:
        """The rest, once the text has ended."""
        held, self._held = "".join(self._held), []
        return (json_of(held, self._format) or held) if held.strip() else ""

    def restart(self) -> int:
        """Begin again: the text so far was a thought. Return how much of it has come out."""
        shown = self._shown
        self._begin()
        return shown

    def _begins_as_json(self, text: str) -> bool | None:
        """Return whether the text begins as JSON of this format does, or None if that needs more of it."""
        bracket, behind = text[:1], text[1:LONGEST_BEGINNING].lstrip()[:1]
        if bracket and bracket not in self._begins:
            return False
        if not behind:
            return None if len(text) < LONGEST_BEGINNING else False
        return behind in SECOND[bracket]

    def _end_in(self, text: str) -> int:
        """Return where the value ends in this piece, or its length."""
        if self._escaped and text:
            self._escaped, begin = False, 1
        else:
            begin = 0
        while mark := _MARK.search(text, begin):
            begin = mark.end()
            if mark[0] == '"':
                self._in_string = not self._in_string
            elif mark[0] == "\\":
                self._escaped = self._in_string and begin == len(text)
                begin += self._in_string
            elif not self._in_string:
                self._depth += 1 if mark[0] in "{[" else -1
                if self._depth == 0:
                    self._is_over = True
                    return begin
        return len(text)
