"""An explicit opener round a tool's name, in a form that no row knows: rejected, with the form that would be read."""

from __future__ import annotations

import re

from parsing.matching import NEED_MORE, NO_MATCH, compiled, first_characters, match_at
from parsing.shapes import call_usage
from parsing.sink import Reader, Sink

REACH = 2000  # characters: a closer that comes later belongs to something else

_ELEMENT_END = r"</(?:[\w.-]{{1,40}}[:|])?{}(?:_name)?(?::[\w-]{{1,40}})?\s?>"


class UntaughtCall(Reader):
    """The block up to its closer: that of the element `label`, if there is one.

    Without a closer the rest of the line is taken: what follows is the answer.
    """

    def __init__(self, sink: Sink, name: str, label: str) -> None:
        super().__init__(sink)
        self._name = name
        self._closer = compiled(_ELEMENT_END.format(re.escape(label))) if label else sink.closer
        self._marks = first_characters(self._closer.pattern)
        self._seen = 0  # characters that have been searched and hold no closer

    def read(self, buf: str, pos: int, last: bool) -> int:
        end = min(len(buf), pos + REACH)
        for at in range(pos + self._seen, end):
            if buf[at] not in self._marks:
                continue
            after, match = match_at(self._closer, buf, at, last)
            if match is not None:
                return self._finish(buf, pos, after)
            if after == NEED_MORE:
                self._seen = at - pos
                return pos
            assert after == NO_MATCH
        self._seen = end - pos
        if end - pos < REACH:
            return self._finish(buf, pos, len(buf)) if last else pos
        newline = buf.find("\n", pos, end)
        return self._finish(buf, pos, newline if newline >= 0 else end)

    def cut(self) -> None:
        self._finish("", 0, 0)

    def _finish(self, buf: str, pos: int, end: int) -> int:
        self.done = True
        raw = f"{self._name}{buf[pos:end]}"
        usage = call_usage(self._name or "NAME")
        self._sink.bad(raw, f"This is no form of a call that can be read, so it was not run. {usage}")
        return end
