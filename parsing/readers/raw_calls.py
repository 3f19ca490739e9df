"""Calls whose body is text up to a marker: read whole, at the end."""

from __future__ import annotations

import re
from collections.abc import Callable

from parsing.events import Arguments
from parsing.fences import fill
from parsing.matching import NEED_MORE, NO_MATCH, compiled, first_mark, groups_at
from parsing.shapes import Misfit
from parsing.sink import CUT, Reader, Sink

Reading = Callable[[str, Sink], list[tuple[str, Arguments]]]


class RawCall(Reader):
    """The text up to `end`; to the end of the message if `whole_at_end`.

    `reading` makes the calls of the text; it raises Misfit.
    """

    def __init__(self, sink: Sink, end: str, reading: Reading, name: str = "", *, whole_at_end: bool = False) -> None:
        super().__init__(sink)
        self._start = self.stop = first_mark(end)
        self._end = compiled(end)
        self._reading = reading
        self._whole_at_end = whole_at_end
        self.streams = bool(name)
        if name:
            sink.open(name)

    def read(self, buf: str, pos: int, last: bool) -> int:
        start = pos
        self.stop = self._start
        while pos < len(buf):
            found = buf.find(self._start, pos)
            if found < 0:
                pos = len(buf)
                break
            pos = found
            end, _ = groups_at(self._end, buf, pos, last)
            if end == NEED_MORE:
                self.stop = ""
                break
            if end != NO_MATCH:
                self._take(buf[start:pos])
                self._finish()
                return end
            pos += 1
        self._take(buf[start:pos])
        return pos

    def cut(self) -> None:
        if self._sink.is_whole(self._whole_at_end):
            self._finish()
        else:
            self._sink.bad("".join(self._parts), CUT)

    def _take(self, text: str) -> None:
        if text:
            self._parts.append(text)
            if self.streams:
                self._sink.delta(text)

    def _finish(self) -> None:
        self.done = True
        raw = "".join(self._parts)
        try:
            found = self._reading(raw, self._sink)
        except Misfit as error:
            self._sink.bad(raw, str(error))
            return
        for name, arguments in found:
            self._sink.call(name, arguments)


def body_of(name: str) -> Reading:
    """A reading for text that fills the one tool `name`, as the body of a fence does."""

    def read(text: str, sink: Sink) -> list[tuple[str, Arguments]]:
        return [(name, fill(text.strip("\r\n"), sink.schema(name)))]

    return read


def words_of(name: str, lead: str = "") -> Reading:
    """The same for text that stands among other words: `lead` is what the opener has taken of it."""

    def read(text: str, sink: Sink) -> list[tuple[str, Arguments]]:
        return [(name, fill(f"{lead}{text}".strip(), sink.schema(name)))]

    return read


CODE_TOOLS = ("python", "code_interpreter", "ipython", "interpreter")
_WORDS = re.compile(r"\s*[\w.]+\s*")
_FENCED = re.compile(r"\s*```[\w-]*\n(?P<code>.*?)\n?```\s*\Z", re.DOTALL)


def code_for(text: str, sink: Sink) -> list[tuple[str, Arguments]]:
    """The call of whichever code tool is offered. Raises Misfit when none is."""
    match = _FENCED.match(text)
    code = match["code"] if match else text.strip("\r\n")
    if not code.strip():
        return []
    if _WORDS.fullmatch(code) and any(tool.startswith(code.strip().split(".")[0]) for tool in sink.tools):
        raise Misfit(CUT)
    name = next((each for each in CODE_TOOLS if sink.offers(each)), None)
    if name is None:
        raise Misfit("Code was sent, but no tool runs code here. Call one of the tools instead.")
    return [(name, fill(code, sink.schema(name)))]
