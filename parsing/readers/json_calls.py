"""Calls written as JSON: an object or an array of objects; the arguments stream as they are written."""

from __future__ import annotations

import re

from parsing.literals import Unreadable, is_json, loads
from parsing.matching import NEED_MORE, NO_MATCH, first_characters, groups_at
from parsing.nesting import MORE, Nesting
from parsing.readers.followers import after_json
from parsing.shapes import Misfit, Named, Shape
from parsing.sink import CUT, Reader, Sink

_KEY = r'"(?P<{}>[a-z_]{{1,20}})"\s{{0,20}}:\s{{0,20}}'
_HEAD = re.compile(
    rf'\{{\s{{0,20}}{_KEY.format("first")}"(?P<name>[^"\\]{{1,128}})"\s{{0,20}},\s{{0,20}}{_KEY.format("second")}(?=\{{)'
)


class JsonCalls(Reader):
    """One JSON value. Each object of a top-level array is a call of its own, made as soon as it closes.

    With `offered_only`, nothing but the value marks it as a call: it is refused at the first key that no call has, and
    at the first name that is no tool.
    """

    def __init__(self, sink: Sink, shape: Shape, *, offered_only: bool = False) -> None:
        super().__init__(sink)
        self.strict = False  # the call counts only if it is `exact`: JSON without repairs
        self.exact = True
        self._closer = sink.closer
        self._shape = shape
        self._name = shape.name if isinstance(shape, Named) else ""
        self._offered_only = offered_only
        self._nesting = Nesting(watch=0 if self._name else 1, marks=first_characters(sink.closer.pattern))
        self._home = 1  # the depth of a call's object
        self._level = 1  # the depth of the keys that name and fill it
        self._role = ""
        self._inside = False  # a call's object is open
        self._mark = 0
        self._doubted = False  # a call's object seems to be closed: what follows decides
        self._bracket = ""  # of an array, that closed it too

    def read(self, buf: str, pos: int, last: bool) -> int:
        self._mark = pos
        nesting = self._nesting
        if not nesting.depth and not self._parts:
            pos = self._pass_head(buf, pos)
        while pos < len(buf) and not self.done:
            if self._doubted:
                if not self._decide(buf, pos, last):
                    break
                continue
            pos = nesting.advance(buf, pos)
            hit = nesting.hit
            if not hit or (hit == MORE and not last):
                break
            if nesting.foreign:
                step = self._foreign(buf, pos, last)
                if step == NEED_MORE:
                    break
                pos += step
            else:
                self._on_mark(hit, buf, pos)
        self._take(buf, pos)
        self.exact = self.exact and not nesting.doubtful
        self.stop = "" if self.done else nesting.stop
        return pos

    def _pass_head(self, buf: str, pos: int) -> int:
        """Pass the name and the key of the arguments at once, where a call begins with them as nearly all do."""
        match = _HEAD.match(buf, pos)
        if match is None or self._offered_only:
            return pos
        if self._shape.role(match["first"]) != "name" or self._shape.role(match["second"]) != "arguments":
            return pos
        self._nesting.pass_head()
        self._inside = True
        self._name = match["name"]
        self._role = "arguments"
        return match.end()

    @property
    def in_string(self) -> bool:
        """Surely inside a string: the quote that opened it has not been seen again."""
        return self._nesting.in_string

    def cut(self) -> None:
        if self._doubted and self._nesting.balanced:
            self._closed(self._nesting.depth, "", 0)
        if self._inside:
            self._sink.bad("".join(self._parts), CUT)

    def _take(self, buf: str, pos: int) -> None:
        if pos > self._mark:
            piece = buf[self._mark : pos]
            self._mark = pos
            self._put(piece)

    def _put(self, piece: str) -> None:
        self._parts.append(piece)
        if self.streams:
            self._sink.delta(piece)

    def _foreign(self, buf: str, pos: int, last: bool) -> int:
        """Handle a character that no JSON has. Return how many characters to pass, or NEED_MORE."""
        end, _ = groups_at(self._closer, buf, pos, last)
        if end == NEED_MORE:
            return NEED_MORE
        self.exact = False
        unsettled = bool(self._nesting.unsettled)
        self._nesting.settle(closed=end > 0)
        if end > 0:
            self._take(buf, pos)
            if isinstance(self._shape, Named) and not self._inside:  # a call without arguments
                self._sink.call(self._name, {})
            self._finish(ended=True)
            self.done = True
        elif self._offered_only and not unsettled and buf[pos] not in "}])":
            self._refuse()
        return 0 if self.done or unsettled else 1

    def _on_mark(self, hit: str, buf: str, pos: int) -> None:
        depth = self._nesting.depth
        if hit in "{[":
            self._opened(hit, depth, buf, pos)
        elif hit in "}])":
            if self._inside and depth < self._home and (self._nesting.doubtful or self._nesting.ends_in_text):
                self._take(buf, pos - (self._home == 2 and depth == 0))
                self._bracket, self._mark = buf[self._mark : pos], pos
                self._doubted = True
            else:
                self._closed(depth, buf, pos)
        elif hit == ":" and depth == self._level:
            self._keyed(self._nesting.word.strip())
        elif hit == ",":
            self._role = ""
            if depth == 1 and self._home == 2:
                self._take(buf, pos)
                self._parts.clear()
        elif hit == '"' and depth == self._level and self._role == "name":
            self._named(self._nesting.word)

    def _decide(self, buf: str, pos: int, last: bool) -> bool:
        """Close the object if what follows may follow it; else its last quote was a part of a text.

        Return False to see more first.
        """
        nesting = self._nesting
        pattern = after_json(self._closer.pattern, nesting.depth, doubtful=nesting.doubtful)
        end, _ = groups_at(pattern, buf, pos, last)
        if end == NEED_MORE:
            return False
        self._doubted = False
        may_follow = end != NO_MATCH or (last and nesting.balanced and not buf[pos:].strip(" \t\r\n]"))
        if may_follow or not nesting.reopen():
            nesting.forget()
            self._closed(nesting.depth, buf, pos)
        else:
            self._put(self._bracket)
        return True

    def _opened(self, hit: str, depth: int, buf: str, pos: int) -> None:
        if hit == "[" and depth == 1:
            self._home = self._level = self._nesting.watch = 2
        elif hit == "{" and depth == self._home:
            self._take(buf, pos - 1)
            self._parts.clear()
            self._inside = True
            if isinstance(self._shape, Named):
                self._stream(buf, pos - 1)
        elif hit == "{" and depth == self._level + 1:
            if self._role in ("arguments", "whole") and self._name:
                self._stream(buf, pos - 1)
            elif self._role == "nested":
                self._level = self._nesting.watch = depth

    def _stream(self, buf: str, pos: int) -> None:
        self._take(buf, pos)
        self._sink.open(self._name)
        self.streams = True

    def _closed(self, depth: int, buf: str, pos: int) -> None:
        if self.streams and depth <= self._level and not isinstance(self._shape, Named):
            self._take(buf, pos)
            self.streams = False
        if depth < self._home:
            self._take(buf, pos - 1 if depth == 0 and self._home == 2 else pos)
            self._finish(ended=depth == 0 and self._home == 2)
        elif depth < self._level:
            self._level = self._nesting.watch = max(depth, self._home)
        if depth == 0:
            self._take(buf, pos)
            self.done = True

    def _keyed(self, key: str) -> None:
        self._role = self._shape.role(key)
        if self._role == "whole":
            self._named(key)
        if self._offered_only and self._role == "other":
            self._refuse()

    def _named(self, name: str) -> None:
        self._name = name
        if self._offered_only and not self._sink.offers(name):
            self._refuse()

    def _refuse(self) -> None:
        self.refused = self.done = True

    def _finish(self, *, ended: bool) -> None:
        """The object of a call has ended: make its calls, or report the defect."""
        if not self._inside or self.refused:
            return
        raw = "".join(self._parts)
        self._inside = self.streams = False
        self._parts.clear()
        self._level = self._home
        self._nesting.watch = 0 if isinstance(self._shape, Named) else self._home
        if not isinstance(self._shape, Named):
            self._name = ""
        self.exact = self.exact and (not self.strict or is_json(raw))
        try:
            found = self._shape.calls(loads(raw, ended=ended), self._sink)
        except Unreadable as error:
            self._sink.bad(raw, f"This call's JSON cannot be read: {error}. Send the call again as valid JSON.")
            return
        except Misfit as error:
            self.exact = False
            self._sink.bad(raw, str(error))
            return
        for name, arguments in found:
            self._sink.call(name, arguments)
