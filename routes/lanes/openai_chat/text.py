"""The text of an answer as clients of chat receive it: one text for all rounds, and no white space around calls.

The rules depend on the text alone, so that a log gives the same answer streamed, joined or whole:
white space is held until text follows it; before a call or a further round, and around thoughts in front of all text,
it is dropped; a further round begins with an empty line, if there was text before.
"""

from __future__ import annotations

import json

from msgspec import Struct

from routes.lanes.event_text import without_end

WHITE = " \t\r\n"
EMPTY_LINE = "\n\n"


class RunningText(Struct):
    _begun: bool = False  # text has been sent
    _held: str = ""  # white space, or what separates rounds
    _strips: bool = False  # white space in front of the next text is dropped

    def part(self) -> None:
        """A round begins, or a call stands here."""
        self._held = EMPTY_LINE if self._begun else ""
        self._strips = self._begun

    def think(self) -> None:
        """A thought stands here."""
        if not self._begun:
            self._held, self._strips = "", True

    def add(self, text: str) -> str:
        """Take more text. Return what is sent of it now."""
        if self._strips:
            text = text.lstrip(WHITE)
        body = text.rstrip(WHITE)
        if not body:
            self._held += text
            return ""
        sent = self._held + body
        self._held = text[len(body) :]
        self._begun, self._strips = True, False
        return sent

    def add_literal(self, literal: str) -> str:
        """The same for a JSON string, which is what comes back; empty if nothing is sent.

        Nearly always it neither begins nor ends with white space but for spaces, and is not decoded.
        """
        if self._begun and not self._strips and (found := without_end(literal, self._held)):
            sent, self._held = found
            return sent
        text = self.add(json.loads(literal))
        return json.dumps(text) if text else ""

    def end(self, *, calls: bool) -> str:
        """Return what is sent at the end of the answer: the white space that its text ends with."""
        return "" if calls or self._strips else self._held
