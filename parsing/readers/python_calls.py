"""Calls written as Python: NAME(key=literal, ...), alone, in a list or line by line. Nothing is ever evaluated."""

from __future__ import annotations

from collections.abc import Container

from parsing.arguments import properties_of
from parsing.events import Arguments
from parsing.literals import Literals, Unreadable, read_whole
from parsing.matching import NEED_MORE, compiled, match_at
from parsing.nesting import Nesting
from parsing.readers.followers import NAME, after_python
from parsing.sink import CUT, Reader, Sink

_BEFORE = r"\s{0,200}(?P<list>\[)?[,;]?\s{0,200}(?:(?P<fence>```(?:python|py|tool_code)?)\s{0,200})?"
_PRINTED = compiled(rf"{_BEFORE}(?P<print>print\s?\(\s{{0,20}}){NAME}")
_HEAD = compiled(rf"{_BEFORE}{NAME}")
_TAIL = compiled(r"\s{0,200}(?:(?P<print>\))|(?P<list>\])|(?P<fence>```))")


class PythonCalls(Reader):
    """One or more calls. With `offered_only` a call that is not a tool's, or not of literals alone, refuses the whole.

    `listed`: only a closed list is whole.
    """

    def __init__(self, sink: Sink, *, offered_only: bool = False) -> None:
        super().__init__(sink)
        self._offered_only = offered_only
        self._nesting: Nesting | None = None
        self._name = ""
        self._in_list = False
        self._in_print = False
        self._in_fence = False
        self._any = False
        self._ended = False  # the parenthesis is closed: what follows decides whether the call is

    def read(self, buf: str, pos: int, last: bool) -> int:
        while pos < len(buf) and not self.done:
            step = self._step(buf, pos, last)
            if step < 0:
                break
            pos = step
        self.stop = self._nesting.stop if self._nesting and not self.done else ""
        return pos

    def _step(self, buf: str, pos: int, last: bool) -> int:
        if self._ended:
            return self._decide(buf, pos, last)
        return self._head(buf, pos, last) if self._nesting is None else self._body(buf, pos, last)

    def cut(self) -> None:
        if self._ended and self._nesting is not None and self._nesting.balanced:
            self._call()
        if self._nesting is not None:
            self._sink.bad("".join(self._parts), CUT)
        elif self._sink.stop_cut or (not self._in_list and not self._in_fence):
            self.done = self._any

    def _head(self, buf: str, pos: int, last: bool) -> int:
        if self._any:
            end, match = match_at(_TAIL, buf, pos, last)
            if match:
                return self._tail(match.lastgroup or "", end)
            if end == NEED_MORE:
                return NEED_MORE
        for pattern in (_PRINTED, _HEAD):
            end, match = match_at(pattern, buf, pos, last)
            if match:
                return self._begin(match.groupdict(), end)
            if end == NEED_MORE:
                return NEED_MORE
        within = self._in_list or self._in_fence or not self._any
        if last and within and not self._offered_only and self._is_cut(buf[pos:]):
            self.done = True
            self._sink.bad(buf[pos:], CUT)
            return len(buf)
        return self._end(pos)

    def _is_cut(self, text: str) -> bool:
        """Return whether the message ends before the parenthesis of a call."""
        return bool(text.strip(" \r\n,;")) and _HEAD.match(text, partial=True) is not None

    def _tail(self, kind: str, end: int) -> int:
        if kind == "print" and self._in_print:
            self._in_print = False
        elif kind == "fence" and self._in_fence:
            self._in_fence = False
            self.done = True
        elif kind == "list" and self._in_list:
            self._in_list = False
            self.done = not self._in_fence
        else:
            self.done = True
            return end - 1
        return end

    def _begin(self, groups: dict[str, str | None], end: int) -> int:
        name = groups["name"] or ""
        if (self._offered_only or (self._any and not self._in_fence)) and not self._sink.offers(name):
            return self._end(end)
        self._in_list = self._in_list or groups["list"] is not None
        self._in_fence = self._in_fence or groups["fence"] is not None
        self._in_print = groups.get("print") is not None
        self._name = name
        self._any = True
        self._parts.clear()
        self.streams = True
        self._nesting = Nesting(watch=0)
        self._nesting.advance("(", 0)
        if not self._offered_only:
            self._sink.open(name)
        return end

    def _end(self, pos: int) -> int:
        self.done = True
        self.refused = self._offered_only and (self._in_list or not self._any)
        return pos

    def _body(self, buf: str, pos: int, last: bool) -> int:
        nesting = self._nesting
        assert nesting is not None
        after = nesting.advance(buf, pos)
        if nesting.hit == ")" and nesting.depth == 0:
            self._show(buf[pos : after - 1])
            self._ended = True
            return after
        if nesting.foreign and nesting.unsettled:
            nesting.settle(closed=False)
            self._show(buf[pos:after])
            return after
        if nesting.foreign:  # a character that no literal has: it is read, and refused, at the end
            self._show(buf[pos : after + 1])
            return after + 1
        self._show(buf[pos:after])
        return after if after > pos else NEED_MORE

    def _decide(self, buf: str, pos: int, last: bool) -> int:
        """Make the call if what follows may follow it; else its last quote was a part of a text."""
        nesting = self._nesting
        assert nesting is not None
        brackets = ")" * self._in_print + "]" * self._in_list + "`" * self._in_fence
        pattern = after_python(self._sink.closer.pattern, brackets, doubtful=nesting.doubtful)
        end, match = match_at(pattern, buf, pos, last)
        if end == NEED_MORE:
            return NEED_MORE
        if match is None:
            rest = buf[pos:].strip(" \t\r\n,;)]`")
            begun = not nesting.doubtful and pattern.match(buf, pos, partial=True)
            closed = nesting.balanced or "]" in buf[pos:]
            may_follow = last and closed and bool(begun or not rest)
        else:
            may_follow = not (nesting.doubtful and match["name"]) or self._sink.offers(match["name"])
        if may_follow:
            self._call()
        elif nesting.reopen():
            self._ended = False
            self._show(")")
        else:
            self._reject("words stand behind it")
        return pos

    def _call(self) -> None:
        try:
            arguments = keywords("".join(self._parts))
        except Unreadable as error:
            self._reject(str(error))
            return
        self._nesting = None
        self._ended = False
        declared = properties_of(self._sink.schema(self._name))
        self._sink.call(self._name, {_parameter(key, declared): value for key, value in arguments.items()})

    def _reject(self, reason: str) -> None:
        self._nesting = None
        self._ended = False
        self.refused = self._offered_only
        self.done = self.done or self.refused
        self._sink.bad(
            f"{self._name}({''.join(self._parts)})",
            f"Not run: {reason}. Write {self._name}(key=value, ...) with literal values only, each with its name.",
        )


def _parameter(key: str, declared: Container[str]) -> str:
    """A parameter whose name Python forbids or uses is written with an underscore behind it."""
    bare = key.removesuffix("_")
    return bare if key not in declared and bare in declared else key


def keywords(text: str) -> Arguments:
    """The keyword arguments written in `text`, the inside of the parentheses. Raises Unreadable."""
    return read_whole(text, _keywords, sets=True)


def _keywords(reader: Literals) -> Arguments:
    found: Arguments = {}
    while reader.skip():
        key = reader.word()
        if reader.skip() != "=":
            raise Unreadable("an argument has no name")
        reader.pos += 1
        found[key] = reader.value()
        if reader.skip() == ",":
            reader.pos += 1
        elif reader.skip():
            raise Unreadable(f"only literal values are allowed, and commas between them (character {reader.pos})")
    return found
