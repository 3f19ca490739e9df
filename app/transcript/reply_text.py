"""The text of a reply: all that the model wrote, what of it is shown, and its thoughts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from io import StringIO

from app.core.events import AgentEvent, ReasoningDelta, TextDelta, TextReclassified

FOLDED_AFTER = 128  # characters, and a sixteenth of all that came before


class ReplyText:
    """Not lists of texts: one for each token would take ten times the memory."""

    def __init__(self) -> None:
        self.wrote = StringIO()
        self.shown = StringIO()
        self.thought = StringIO()
        self.half = ""  # of a character that the server has sent in two pieces
        self.fold_at = FOLDED_AFTER
        self.has_reclassified = False
        self._blocks: dict[str, tuple[int, int]] = {}  # call id -> where it is shown, as a block of code

    def fold(self, characters: int) -> None:
        """Join the pieces so far, of a reply with so many characters: a StringIO keeps each until its value is read.

        It keeps that value, too: where all is shown that was written, both are one text.
        """
        self.fold_at = characters + characters // 16 + FOLDED_AFTER
        self.thought.getvalue()
        written = self.wrote.getvalue()
        if self.shown.getvalue() == written:
            self.show_instead(written)

    def show_instead(self, text: str) -> None:
        self.shown = StringIO()
        self.shown.write(text)

    def whole(self, text: str) -> str:
        """Return the text up to its last whole character: clients count one where its two halves meet."""
        text = f"{self.half}{text}".encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        end = len(text) - ("\ud800" <= text[-1:] <= "\udbff")
        self.half = text[end:]
        return text[:end]

    def reclassify(self, characters: int) -> Iterator[AgentEvent]:
        """Move the end of what was shown to the thoughts."""
        begin = max(0, self.shown.tell() - characters)
        self.shown.seek(begin)
        thought = self.shown.read()
        self.shown.seek(begin)
        self.shown.truncate()
        if thought:
            self.has_reclassified = True
            self.thought.write(thought)
            yield TextReclassified(len(thought))
            yield ReasoningDelta(thought)

    # --- calls that are blocks of code, which are shown as well ---

    def show_block(self, call: str, block: str) -> TextDelta:
        """Show a call on lines of its own; what follows it begins with a line end."""
        begin = self.shown.tell()
        self.shown.seek(max(0, begin - 1))
        before = self.shown.read()
        text = block if before in ("", "\n") else f"\n{block}"
        self.shown.write(text)
        self._blocks[call] = begin, self.shown.tell()
        return TextDelta(text, call)

    def forget_blocks(self, calls: Collection[str]) -> int:
        """Return how much of the shown text is blocks of these calls, which are forgotten."""
        blocks = [self._blocks.pop(call, (0, 0)) for call in calls]
        return sum(after - begin for begin, after in blocks)

    @property
    def ends_in_block(self) -> bool:
        return self.shown.tell() in (after for _, after in self._blocks.values())

    @property
    def prose(self) -> str:
        """The text that is shown, without the blocks."""
        shown, end, parts = self.shown.getvalue(), 0, list[str]()
        for begin, after in self._blocks.values():
            parts.append(shown[end:begin])
            end = after
        return "".join([*parts, shown[end:]])
