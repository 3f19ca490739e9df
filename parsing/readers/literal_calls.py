"""Calls written as object literals: call:NAME{key:<delimiter>text<delimiter>,key:bare word,...}."""

from __future__ import annotations

from parsing.arguments import coerce_text
from parsing.literals import Bare, Literals, Unreadable
from parsing.nesting import MORE, Nesting
from parsing.sink import CUT, Sink

STRINGS = ('<|"|>', "<escape>")


class LiteralCall:
    """The inside of one call's braces, or parentheses: `opener` opened them."""

    def __init__(self, sink: Sink, name: str, opener: str) -> None:
        self.done = False
        self.refused = False
        self.streams = False
        self.stop = ""
        self._sink = sink
        self._name = name
        self._nesting = Nesting(watch=0, quotes='"', strings=STRINGS)
        self._nesting.advance(opener, 0)
        self._parts: list[str] = []
        self.take = self._parts.append
        self.streams = True
        sink.open(name)

    def read(self, buf: str, pos: int, last: bool) -> int:
        nesting = self._nesting
        while pos < len(buf):
            after = nesting.advance(buf, pos)
            if nesting.depth == 0:
                self._take(buf[pos : after - 1])
                self._finish()
                return after
            if nesting.foreign:
                after += 0 if nesting.unsettled else 1
                nesting.settle(closed=False)
            self._take(buf[pos:after])
            pos = after
            if nesting.hit == MORE:
                break
        self.stop = nesting.stop
        return pos

    def cut(self) -> None:
        self._sink.bad("".join(self._parts), CUT)

    def _take(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._sink.delta(text)

    def _finish(self) -> None:
        self.done = True
        raw = "".join(self._parts)
        try:
            reader = Literals(f"{{{raw}}}", strings=STRINGS, words=True)
            value = reader.value()
            reader.finish()
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
