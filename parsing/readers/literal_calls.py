"""Calls written as object literals: call:NAME{key:<delimiter>text<delimiter>,key:bare word,...}."""

from __future__ import annotations

from parsing.arguments import coerce_text
from parsing.literals import Bare, Literals, Unreadable, read_whole
from parsing.matching import NEED_MORE, NO_MATCH, groups_at
from parsing.nesting import MORE, Nesting
from parsing.readers.delimited import DelimitedText, Outcome, closed
from parsing.readers.followers import after_literal
from parsing.sink import CUT, Reader, Sink

_UNCLOSED = (
    "The call of {name} was not run: a text in it is not closed. Write {delimiter} before and behind every text, and "
    "send the call again."
)
STRINGS = ('<|"|>', "<escape>")


class LiteralCall(Reader):
    """The inside of one call's braces, or parentheses: `opener` opened them."""

    def __init__(self, sink: Sink, name: str, opener: str) -> None:
        super().__init__(sink)
        self._name = name
        self._nesting = Nesting(watch=0, quotes='"', strings=STRINGS)
        self._nesting.advance(opener, 0)
        self._bracket = "}" if opener == "{" else ")"
        self._ended = False  # the bracket is closed, and a quote was doubtful: what follows decides
        self._text = DelimitedText()
        self.streams = True
        sink.open(name)

    def read(self, buf: str, pos: int, last: bool) -> int:
        nesting = self._nesting
        while pos < len(buf):
            if nesting.delimiter:
                pos, reads_on = self._pass_text(buf, pos, last)
                if not reads_on:
                    break
            if self._ended:
                end, _ = groups_at(after_literal(self._sink.closer.pattern), buf, pos, last)
                if end == NEED_MORE:
                    return pos
                self._decide(may_follow=end != NO_MATCH or (last and nesting.balanced and not buf[pos:].strip()))
                if self.done:
                    return pos
            after = nesting.advance(buf, pos)
            if nesting.depth == 0:
                self._show(buf[pos : after - 1])
                if not nesting.doubtful:
                    self._finish()
                    return after
                self._ended = True
                pos = after
                continue
            if nesting.foreign:
                end, _ = groups_at(self._sink.closer, buf, after, last)
                if end == NEED_MORE:
                    self._show(buf[pos:after])
                    return after
                if end > 0:  # the block's closer: the bracket was forgotten
                    self._show(buf[pos:after])
                    self._finish(ended=True)
                    return after
                after += 0 if nesting.unsettled else 1
                nesting.settle(closed=False)
            self._show(buf[pos:after])
            pos = after
            if nesting.hit == MORE:
                break
        self.stop = nesting.stop
        return pos

    def cut(self) -> None:
        if self._ended and self._nesting.balanced:
            self._finish()
        else:
            self._sink.bad("".join(self._parts), CUT)

    def _decide(self, *, may_follow: bool) -> None:
        """End the call if what follows may follow it; else its last quote was a part of a text."""
        self._ended = False
        if may_follow or not self._nesting.reopen():
            self._finish()
        else:
            self._show(self._bracket)

    def _pass_text(self, buf: str, pos: int, last: bool) -> tuple[int, bool]:
        """Pass the open text, or end the call that it has broken. Return the place, and whether to read on there."""
        at, outcome = self._text.advance(buf, pos, last, self._nesting.delimiter, self._parts)
        self._show(buf[pos:at])
        if outcome in (Outcome.BROKEN, Outcome.ENDED):
            self._finish_unclosed(mended=outcome is Outcome.ENDED)
        return at, outcome is Outcome.CLOSED

    def _finish_unclosed(self, *, mended: bool) -> None:
        """End the call in an open text: with the delimiter that it lacks, where only one place is left for it."""
        raw, delimiter, closers = "".join(self._parts), self._nesting.delimiter, self._nesting.closers
        whole = closed(raw, delimiter, closers) if mended else None
        if whole is not None:
            self._finish(whole[:-1])
            return
        self.done = True
        self._sink.bad(raw, _UNCLOSED.format(name=self._name, delimiter=delimiter))

    def _finish(self, mended: str = "", *, ended: bool = False) -> None:
        self.done = True
        raw = "".join(self._parts)
        text = "{" + (mended or raw) + ("" if ended else "}")
        try:
            value = read_whole(text, Literals.value, ended=ended, strings=STRINGS, words=True)
        except Unreadable as error:
            self._sink.bad(raw, f"This call's arguments cannot be read: {error}. Send the call again.")
            return
        schema = self._sink.schema(self._name)
        self._sink.call(self._name, {key: _fitted(each, schema, key) for key, each in value.items()})


def _fitted(value: object, schema: object, key: str) -> object:
    if isinstance(value, Bare) and isinstance(schema, dict):
        declared = coerce_text(str(value), schema, key)
        return _guess(str(value)) if key not in schema.get("properties", {}) else declared
    return _plain(value)


def _plain(value: object) -> object:
    match value:
        case Bare():
            return _guess(str(value))
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
    return value


def _guess(word: str) -> object:
    """A bare word that no schema describes: a literal if it is one, else text."""
    reader = Literals(word)
    try:
        value = reader.value()
        reader.finish()
    except Unreadable:
        return word
    return value
