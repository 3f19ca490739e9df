"""Search for secrets in text that a terminal shows without its escape sequences: a colour may part a secret."""

from __future__ import annotations

from bisect import bisect_right

from app.redaction.redactor import Redactor
from tools.base.patterns import lazy_pattern

# Possessive, and no string passes over the beginning of another: the search is linear in any text.
_SEQUENCE = lazy_pattern(
    r"(?:\x1b\[|\x9b)[0-?]{0,128}+[ -/]{0,8}+[@-~]?+"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\n\v\x18\x1a\x1b\x80-\x9f]*+(?:\x07|\x1b\\|\x9c)?+"
    r"|\x1b[ -/]{0,8}+[0-~]?+"
    r"|[\x00-\x07\x0e-\x1f\x7f-\x9f]"
)
_EACH, _MOST = 16, 16_384  # characters of sequences for a character of a secret, and in a whole one

Spans = list[tuple[int, int]]


def margin_of(redactor: Redactor) -> int:
    """Return how many characters a secret takes at most, the sequences in it included."""
    return min(_EACH * redactor.longest, redactor.longest + _MOST)


class ShownText:
    """A text without its sequences, an unfinished one at its end included, and where its characters stand."""

    def __init__(self, written: str) -> None:
        self.size = len(written)
        self._begins, self._stands = [0], [0]
        pieces, at, size = list[str](), 0, 0
        for sequence in _SEQUENCE.finditer(written):
            pieces.append(written[at : sequence.start()])
            size, at = size + sequence.start() - at, sequence.end()
            self._begins.append(size)
            self._stands.append(at)
        self.text = "".join([*pieces, written[at:]])

    def position(self, at: int) -> int:
        """Return where a character of this text stands in the other."""
        nearest = bisect_right(self._begins, at) - 1
        return self._stands[nearest] + at - self._begins[nearest]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the same for a span: sequences around it are not in it."""
        return self.position(start), self.position(end - 1) + 1


def spans_of_secrets(redactor: Redactor, written: str, *, goes_on: bool) -> tuple[Spans, int]:
    """Return the secrets in a text, each as (start, end), and the position from which it may be the beginning of one.

    A secret that is cut at the end of a text that does not go on is one, if half of it is there.
    """
    look = redactor.look if goes_on else redactor.look_at_end
    spans, tail = look(written)
    if _SEQUENCE.search(written) is None:
        return spans, tail
    shown = ShownText(written)
    parted, shown_tail = look(shown.text)
    if shown_tail < len(shown.text):  # no more is withheld than a secret can take: sequences may go on for ever
        tail = min(tail, max(shown.position(shown_tail), shown.size - margin_of(redactor)))
    return spans + [shown.span(*span) for span in parted], tail
