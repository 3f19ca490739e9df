"""Text outside calls: where something may begin, and where Markdown says that nothing can."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import regex

from parsing.arguments import properties_of, required_of
from parsing.blocks import Blocks, Draft
from parsing.cuts import is_cut, is_cut_call
from parsing.dialects import FENCED, TOOL_ELEMENT, Dialect
from parsing.events import Text, Thought
from parsing.fences import on_the_line
from parsing.framing import Reasoning
from parsing.lexis import NONE, WAIT, compiled, first_characters, look
from parsing.openers import AHEAD, ECHO, Openers, Table, tool_elements
from parsing.readers.fence_calls import FenceCall
from parsing.sink import CUT

_FENCE = compiled(r" {0,3}(?P<run>`{3,40}|~{3,40})(?P<info>[^\n`]{0,400})\n")
_TICKS = re.compile("`+")
_VISIBLE = re.compile(r"\S")
_SPAN_LIMIT = 4096


class Prose(Blocks):
    """The state of the text: its line, its code spans and fences, its reasoning.

    Methods that look for a beginning return where it ends, WAIT if more text must be seen, or NONE.
    """

    def __init__(self, tools: Mapping[str, Mapping[str, Any]], limit: int, openers: Openers, *, fences: bool) -> None:
        super().__init__(tools, limit)
        self._openers = openers
        self._gates = openers.gates
        self._fences = fences
        self._elements = tool_elements(tuple(tools))
        self._closer_first: frozenset[str] = frozenset()
        self._quotes = False  # an answer in which markup is text
        self._ticks = 0
        self._phantom = 0  # characters of the prompt that are not to be said

    def _text(self, buf: str, pos: int, last: bool) -> int:
        if self._closer is not None and not self._ticks and buf[pos] in self._closer_first:
            end, _ = look(self._closer, buf, pos, last)
            if end != NONE:
                return self._end_thought(end) if end >= 0 else WAIT
        if self._fence:
            return self._in_fence(buf, pos, last)
        if self._ticks:
            return self._in_span(buf, pos, last)
        if not self._quotes and (step := self._beginning(buf, pos, last)) != NONE:
            return step
        return self._run(buf, pos)

    def _beginning(self, buf: str, pos: int, last: bool) -> int:
        if not self._shown and self._voice is Text and self._draft is None:
            step = self._at_start(buf, pos, last)
            if step != NONE:
                return step
        if self._bol and buf[pos] in self._openers.line_gates:
            step = self._at_line(buf, pos, last)
            if step != NONE:
                return step
        return self._at_gate(buf, pos, last) if buf[pos] in self._gates else NONE

    # --- saying ---

    def _run(self, buf: str, pos: int) -> int:
        """Say text up to the next character that may begin something, or through the end of the line."""
        match = _gate(self._gates, self._closer_first).search(buf, pos + 1)
        end = match.start() if match else len(buf)
        newline = buf.find("\n", pos, end)
        end = newline + 1 if newline >= 0 else end
        return self._say(buf[pos:end], end)

    def _say(self, text: str, end: int) -> int:
        """Say `text`, which ends at `end`."""
        bare = not text.strip()
        if self._draft is not None and self._draft.row and not bare:
            self._release(self._draft)
        if self._phantom:
            text, self._phantom = text[self._phantom :], max(0, self._phantom - len(text))
        if text:
            self._sink.events.append(self._voice(text))
            self._shown = self._shown or (not bare and self._voice is Text)
            self._bol = text[-1] == "\n" or (self._bol and bare)
        return end

    # --- the beginning of the message ---

    def _at_start(self, buf: str, pos: int, last: bool) -> int:
        openers = self._openers
        if buf[pos] in openers.header_gates:
            end, match = look(openers.headers.pattern, buf, pos, last)
            if match or end == WAIT:
                return self._begin_kind(openers.headers, match, buf, pos) if match else WAIT
        if buf[pos].isspace():
            found = _VISIBLE.search(buf, pos)
            end = max(pos + 1, (found.start() if found else len(buf)) - 1)  # with the last space something may begin
            return self._say(buf[pos:end], end)
        end, match = look(openers.first.pattern, buf, pos, last)
        if end == WAIT:
            begun = buf[pos:]
            return WAIT if self._sink.may_offer(begun) or openers.begins_first(begun) else NONE
        if not match:
            return NONE
        kind = openers.first.kind(match)
        if isinstance(kind, Reasoning):
            return self._begin_kind(openers.first, match, buf, pos)
        if isinstance(kind, Dialect) and self._calls and self._offers(match):
            self._sketch(Draft(Text, self._sink.index, self._shown, kind))
            self._begins(kind, match, buf, pos)
            self._hold(buf[pos:end])
            return end
        return NONE

    # --- the beginning of a line ---

    def _at_line(self, buf: str, pos: int, last: bool) -> int:
        openers = self._openers
        end, match = look(openers.lines.pattern, buf, pos, last)
        if match or end == WAIT:
            step = self._begin_kind(openers.lines, match, buf, pos) if match else WAIT
            if step != NONE:
                return step
        if self._sink.index:
            end, match = look(openers.echo_lines.pattern, buf, pos, last)
            self._over = match is not None
            if end != NONE:
                return end
        return self._open_fence(buf, pos, last) if buf[pos] in " `~" else NONE

    def _open_fence(self, buf: str, pos: int, last: bool) -> int:
        end, match = look(_FENCE, buf, pos, last)
        if not match:
            return end
        if self._closer is not None and self._closer.search(match["info"]):
            return NONE  # the reasoning ends on this very line
        name, _, rest = match["info"].strip().partition(" ")
        if self._fences and self._voice is Text and name in self._sink.tools:
            given = on_the_line(rest, self._sink.schema(name))
            if given is not None:
                self._sink.dialect = FENCED.name
                opening = buf[pos:end]
                self._open_block(opening)
                reader = FenceCall(self._sink, name, opening, match["run"], given, alone=not self._shown)
                self._start(FENCED, reader)
                return end
        self._fence = match["run"]
        return self._say(buf[pos:end], end)

    def _in_fence(self, buf: str, pos: int, last: bool) -> int:
        """In a fence everything is text, up to a fence at least as long."""
        if self._bol:
            end, match = look(_fence_end(self._fence), buf, pos, last)
            if end == WAIT:
                return WAIT
            if match:
                self._fence = ""
                step = self._say(buf[pos:end], end)
                self._bol = False
                return step
        newline = buf.find("\n", pos)
        end = newline + 1 if newline >= 0 else len(buf)
        if self._closer is not None:
            found = _gate(self._gates, self._closer_first).search(buf, pos + 1, end)
            end = found.start() if found and buf[found.start()] != "\n" else end
        return self._say(buf[pos:end], end)

    # --- inside a line ---

    def _at_gate(self, buf: str, pos: int, last: bool) -> int:
        if buf[pos] == "`":
            return self._open_span(buf, pos, last)
        if buf[pos] == "\n":
            return NONE
        openers = self._openers
        if len(buf) - pos >= AHEAD and not openers.may_begin(buf[pos : pos + AHEAD]):
            return self._at_element(buf, pos, last)
        for table in (openers.marked, openers.rest):
            end, match = look(table.pattern, buf, pos, last)
            step = self._begin_kind(table, match, buf, pos) if match else end
            if step != NONE:
                return step
        step = self._at_element(buf, pos, last)
        return step if step != NONE else self._at_token(buf, pos, last)

    def _at_element(self, buf: str, pos: int, last: bool) -> int:
        """The tag of a tool's own element, with a child that the tool declares or with none that it requires."""
        if self._elements is None or buf[pos] != "<":
            return NONE
        end, match = look(self._elements, buf, pos, last)
        if not match:
            return end
        schema, child = self._sink.schema(match["offered"]), match["child"] or _first_key(match["attributes"])
        fits = child in properties_of(schema) if child else not required_of(schema)
        return end if fits and self._begins(TOOL_ELEMENT, match, buf, pos) else NONE

    def _at_token(self, buf: str, pos: int, last: bool) -> int:
        tokens = self._openers.tokens
        end, match = look(tokens.pattern, buf, pos, last)
        if match:
            self._over = tokens.kind(match) == ECHO and self._sink.index > 0
            return end
        if not last or not self._calls or not is_cut(buf[pos:], self._sink.tools, self._openers):
            return end
        if self._voice is Text and self._draft is None and is_cut_call(buf[pos:], self._openers):
            self._sink.bad(buf[pos:], CUT)
        return len(buf)

    def _open_span(self, buf: str, pos: int, last: bool) -> int:
        match = _TICKS.match(buf, pos)
        end = match.end() if match else pos + 1
        if end == len(buf) and not last:
            return WAIT
        self._ticks = end - pos
        return self._say(buf[pos:end], end)

    def _in_span(self, buf: str, pos: int, last: bool) -> int:
        """Inside inline code, markup is text; a span that its line does not close was none."""
        newline = buf.find("\n", pos)
        end = newline if newline >= 0 else len(buf)
        for match in _TICKS.finditer(buf, pos, end):
            if len(match.group()) == self._ticks:
                if match.end() == len(buf) and not last:
                    return WAIT
                self._ticks = 0
                found = self._closer.search(buf, pos, match.start()) if self._closer is not None else None
                if found and found.end() < match.start():  # a stray tick: the mark is not what is quoted
                    return self._say(buf[pos : found.start()], found.start())
                return self._say(buf[pos : match.end()], match.end())
        if newline >= 0 or last:
            self._ticks = 0
            return pos
        if len(buf) - pos > _SPAN_LIMIT:
            self._ticks = 0
            return self._say(buf[pos:], len(buf))
        return WAIT

    # --- what begins ---

    def _begin_kind(self, table: Table, match: regex.Match[str], buf: str, pos: int) -> int:
        kind = table.kind(match)
        if isinstance(kind, Dialect):
            return match.end() if self._begins(kind, match, buf, pos) else NONE
        if isinstance(kind, Reasoning):
            if self._closer is not None:  # reasoning that is open already is ended by its own mark only
                return NONE
            if self._shown and not self._bol and (after := buf[match.end() : match.end() + 1]) in ("", " "):
                return NONE if after else WAIT  # in the middle of a sentence the mark is only mentioned
            self._think(kind.shuts, answer=kind.answer)
        return match.end()

    def _think(self, closer: str, *, answer: bool = False) -> None:
        self._voice = Text if answer else Thought
        self._quotes = answer
        self._closer = compiled(closer)
        self._closer_first = first_characters(closer)

    def _end_thought(self, end: int) -> int:
        if self._draft is not None and self._draft.voice is Thought:
            self._release(self._draft)
        self._voice = Text
        self._quotes = False
        self._closer = None
        self._closer_first = frozenset()
        self._fence = ""
        self._ticks = 0
        self._bol = True
        return end


def _first_key(attributes: str | None) -> str:
    return (attributes or "").partition("=")[0].strip()


@lru_cache(maxsize=64)
def _gate(gates: str, extra: frozenset[str]) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(gates + ''.join(sorted(extra)))}]")


@lru_cache(maxsize=64)
def _fence_end(run: str) -> regex.Pattern[str]:
    return compiled(rf" {{0,3}}{re.escape(run[0])}{{{len(run)},100}}[ \t]{{0,100}}(?=\r?\n)")
