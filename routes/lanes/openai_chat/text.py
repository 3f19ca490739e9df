"""The text of an answer as clients of chat receive it: one text for all rounds, and no white space around calls.

The rules depend on the text alone, so that a log gives the same answer streamed, joined or whole:
white space is held until text follows it; before a call or a further round, and around thoughts in front of all text,
it is dropped; a further round begins with an empty line, if there was text before.
"""

from __future__ import annotations

from msgspec import Struct

WHITE = " \t\r\n"
EMPTY_LINE = "\n\n"


class RunningText(Struct):
    """`plain`: the next text is sent as it is, unless it ends in white space."""

    plain: bool = False
    _begun: bool = False  # text has been sent
    _held: str = ""  # white space, or what separates rounds
    _strips: bool = False  # white space in front of the next text is dropped

    def part(self) -> None:
        """A round begins, or a call stands here."""
        self._held = EMPTY_LINE if self._begun else ""
        self._strips = self._begun
        self.plain = False

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
            self.plain = self.plain and not self._held
            return ""
        sent = self._held + body
        self._held = text[len(body) :]
        self._begun, self._strips, self.plain = True, False, not self._held
        return sent

    def end(self, *, calls: bool) -> str:
        """Return what is sent at the end of the answer: the white space that its text ends with."""
        return "" if calls or self._strips else self._held
