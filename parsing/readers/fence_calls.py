"""A fence whose tag is a tool: its body fills the tool, up to a closing fence at least as long."""

from __future__ import annotations

import re

from parsing.events import Arguments, Text
from parsing.fences import closing_fence, fence_usage, fill, fitting_object, tools_of
from parsing.framing import FINAL_STOPS
from parsing.literals import Unreadable, loads
from parsing.matching import NEED_MORE, NO_MATCH, compiled, match_at
from parsing.shapes import ENVELOPE, Misfit
from parsing.sink import Reader, Sink

_STOP = compiled(rf"(?:{FINAL_STOPS})\Z")
_MARKUP = re.compile(r"\s*<(?:tool_call|function_calls?|invoke|function|｜)[\s=>D|｜]")


class FenceCall(Reader):
    """`opening` is the whole opening line, `given` the arguments that stand there.

    `alone`: nothing has been shown before, so a call in another form that stands in this fence is taken for what it
    is; else it is answered by teaching the right form.
    """

    def __init__(self, sink: Sink, name: str, opening: str, run: str, given: Arguments, *, alone: bool) -> None:
        super().__init__(sink)
        self._name = name
        self._opening = opening
        self._alone = alone
        self._given = given
        self._shut = closing_fence(run)
        self._bol = True

    def read(self, buf: str, pos: int, last: bool) -> int:
        start = pos
        while pos < len(buf):
            if self._bol:
                end, _ = match_at(self._shut, buf, pos, last)
                if end == NEED_MORE:
                    break
                if end != NO_MATCH:
                    self._take(buf[start:pos])
                    self._finish()
                    return end
            newline = buf.find("\n", pos)
            self._bol = newline >= 0
            pos = newline + 1 if newline >= 0 else len(buf)
        self._take(buf[start:pos])
        self.stop = "" if self._bol else "\n"
        return pos

    def _take(self, piece: str) -> None:
        if piece:
            self._parts.append(piece)
            if self.streams:
                self._sink.delta(piece)
            elif piece.strip():
                self._begin()

    def _begin(self) -> None:
        """Show the call as it grows, unless its body may be JSON or markup that makes it another call."""
        body = "".join(self._parts)
        if body.lstrip()[0] not in "{[<":
            self.streams = True
            self._sink.open(self._name)
            self._sink.delta(body)

    def cut(self) -> None:
        """Show an unclosed fence as the ordinary text that it is, and report it; it is not run."""
        if self._sink.stop_cut:
            self._finish()
            return
        body = "".join(self._parts)
        self._sink.events.append(Text(self._opening + _STOP.sub("", body)))
        self._sink.bad("", f"The {self._name} fence was not closed, so it was not run. Send it again, whole.")

    def _finish(self) -> None:
        self.done = True
        body = self._outdented("".join(self._parts).removesuffix("\n").removesuffix("\r"))
        try:
            for name, arguments in self._calls(body):
                self._sink.call(name, arguments)
        except Misfit as error:
            self._sink.bad(self._opening + body, str(error))

    def _outdented(self, body: str) -> str:
        """The body as Markdown has it: in a list item, its lines are indented as the opening line is."""
        indent = len(self._opening) - len(self._opening.lstrip(" "))
        return re.sub(rf"^ {{1,{indent}}}", "", body, flags=re.MULTILINE) if indent else body

    def _calls(self, body: str) -> list[tuple[str, dict[str, object]]]:
        schema = self._sink.schema(self._name)
        if self._given:
            if body.strip():
                raise Misfit(f"The arguments stand on the first line and again below it. {fence_usage(schema)}")
            return [(self._name, self._given)]
        if fitting_object(body, schema) is None:
            if (found := self._other_form(body)) and self._alone:
                return found
            if found or _MARKUP.match(body):
                raise Misfit(
                    f"This {self._name} fence holds a call in another form, so it was not run. To call a tool, write a "
                    f"fence whose tag is the tool's name. {fence_usage(schema)}"
                )
            if others := tools_of(body, self._sink.tools):
                if len(others) == 1:
                    self._sink.open(others[0])
                raise Misfit(
                    f"This {self._name} fence holds arguments of {' or '.join(others[:3])}, so it was not run. To call "
                    f"a tool, write a fence whose tag is the tool's name. {fence_usage(schema)} If that is what it is, "
                    f"write it as a JSON object with the arguments of {self._name}."
                )
        return [(self._name, fill(body, schema))]

    def _other_form(self, body: str) -> list[tuple[str, dict[str, object]]]:
        """The calls of a JSON envelope that stands in this fence, if they are calls of offered tools."""
        if body.lstrip()[:1] not in ("{", "["):
            return []
        try:
            found = ENVELOPE.calls(loads(body), self._sink)
        except (Unreadable, Misfit):
            return []
        return found if found and all(self._sink.offers(name) for name, _ in found) else []
