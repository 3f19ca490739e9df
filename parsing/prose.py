"""Text outside calls: where something may begin, and where nothing can because Markdown makes it code."""

from __future__ import annotations

import re
from functools import lru_cache

import regex

from parsing.arguments import properties_of, required_of
from parsing.blocks import Blocks
from parsing.dialects import FENCED, TOOL_ELEMENT, Dialect
from parsing.drafts import Draft, Output
from parsing.events import Text, Thought
from parsing.fences import closing_fence, info_string_arguments
from parsing.framing import CUT_HEADER, FINAL_STOPS, FOREIGN_SHUTS, Reasoning
from parsing.matching import NEED_MORE, NO_MATCH, compiled, match_at
from parsing.openers import (
    AHEAD,
    ANSWER,
    ECHO,
    FOREIGN,
    HEAD,
    ITEM,
    ORPHAN,
    WRAPPER,
    Kind,
    Openers,
    Opening,
    tool_elements,
)
from parsing.readers.fence_calls import FenceCall
from parsing.sink import CUT, Sink
from parsing.state import OVER, TEXT, State
from parsing.truncation import is_truncated, is_truncated_call

_FENCE = compiled(r" {0,3}(?P<run>`{3,40}|~{3,40})(?P<info>[^\n`]{0,400})\n")
_CUT_HEADER = compiled(CUT_HEADER)
_LINE_GATES = "`\n"  # what begins code, or a line
_FENCE_INDENT = 3  # more makes it indented code
_TICKS = re.compile("`+")
_INDENT = re.compile(r"[^\S\n]+")
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)+")
_INDENT_LIMIT = 3  # spaces in front of what begins at the beginning of a line
_VISIBLE = re.compile(r"\S")
_SPAN_LIMIT = 4096
_TICKS_LIMIT = 256
_MENTION = re.compile(r"<(?:tool_calls?|function_calls?|tool_use)[\s>]")
CUT_TOKEN = 3  # characters of a token that can be nothing else where the message ends


class Prose:
    """Reads the text outside calls: the modes TEXT, SPAN and FENCE. Tool-name `fences` may be calls."""

    def __init__(
        self, sink: Sink, state: State, output: Output, blocks: Blocks, openers: Openers, *, fences: bool
    ) -> None:
        self._sink = sink
        self._state = state
        self._output = output
        self._blocks = blocks
        self._openers = openers
        self._gates = openers.gates
        self._line_gates = openers.line_gates
        self.fences = fences
        self._elements = tool_elements(tuple(sink.tools))
        self._mentioned = False  # the opener of a call is shown as text: so are closers behind it
        self.tried = 0  # places where an opener was looked for that its head does not rule out

    # --- the modes ---

    def text(self, buf: str, pos: int, last: bool) -> int:
        """Let something begin, or the reasoning end; else pass text up to the next place where that may be."""
        state = self._state
        if buf[pos] in state.closer_gates and (step := self._at_closer(buf, pos, last)) != NO_MATCH:
            return step
        if not state.verbatim and (step := self._at_beginning(buf, pos, last)) != NO_MATCH:
            return step
        if state.line_start and (indent := _INDENT.match(buf, pos)):
            return self._emit(buf, pos, max(pos + 1, indent.end() - _INDENT_LIMIT))
        end = self._next_gate(buf, pos, last)
        newline = buf.find("\n", pos, end + 1)
        if newline < 0:
            return self._emit(buf, pos, end)
        blank = _BLANK_LINES.match(buf, newline + 1) if state.shown and self._output.draft is None else None
        return self._emit(buf, pos, blank.end() if blank else newline + 1)

    def _next_gate(self, buf: str, pos: int, last: bool) -> int:
        """Find the next character behind `pos` at which something may begin, or the reasoning end.

        Brackets that their heads rule out are passed at once: a text may be all brackets.
        """
        state, output = self._state, self._output
        search = _gate(self._gates, state.closer_gates).search
        match = search(buf, pos + 1)
        if last or output.hidden or output.draft is not None or buf[pos].isspace():
            return match.start() if match else len(buf)
        closer = state.closer if state.closer_gates else None
        while match is not None and len(buf) - (at := match.start()) >= AHEAD and buf[at] not in _LINE_GATES:
            if _may_begin(self._openers, self._elements, closer, buf[at : at + HEAD]):
                return at
            match = search(buf, at + 1)
        return match.start() if match else len(buf)

    def span(self, buf: str, pos: int, last: bool) -> int:
        """Pass inline code, in which markup is text; a span that its line does not close was none."""
        state = self._state
        most = pos + _SPAN_LIMIT
        newline = buf.find("\n", pos, most)
        end = newline if newline >= 0 else min(most, len(buf))
        for match in _TICKS.finditer(buf, pos, end):
            if len(match.group()) == state.ticks:
                if match.end() == len(buf) and not last:
                    return NEED_MORE
                state.enter(TEXT)
                found = state.closer.search(buf, pos, match.start()) if state.closer is not None else None
                if found and found.end() < match.start():  # a stray tick: the mark is not quoted
                    return self._emit(buf, pos, found.start())
                return self._emit(buf, pos, match.end())
        if len(buf) > most and newline < 0:
            state.enter(TEXT)
            return self._emit(buf, pos, most)
        if newline >= 0 or last:
            state.enter(TEXT)
            return pos
        return NEED_MORE

    def fence(self, buf: str, pos: int, last: bool) -> int:
        """Pass fenced text, up to a fence that is at least as long, or to the end of the reasoning."""
        state = self._state
        if buf[pos] in state.closer_gates and (step := self._at_closer(buf, pos, last)) != NO_MATCH:
            return step
        if state.line_start:
            end, match = match_at(closing_fence(state.fence), buf, pos, last)
            if end == NEED_MORE:
                return NEED_MORE
            if match:
                state.enter(TEXT)
                step = self._emit(buf, pos, end)
                state.line_start = False
                return step
        if buf[pos] == "<" and (step := self._at_stop(buf, pos, last)) != NO_MATCH:
            return step
        newline = buf.find("\n", pos)
        end = newline + 1 if newline >= 0 else len(buf)
        mark = buf.find("<", pos + 1, end)
        end = mark if mark >= 0 else end
        if state.closer is not None:
            found = _gate(self._gates, state.closer_gates).search(buf, pos + 1, end)
            end = found.start() if found and buf[found.start()] != "\n" else end
        self._emit(buf, pos, end)
        state.line_start = buf[end - 1] == "\n"  # behind more than an indentation no fence closes this one
        return end

    def _at_stop(self, buf: str, pos: int, last: bool) -> int:
        """Drop a stop token that ends the message inside a fence; anywhere else in it, it is quoted."""
        end, match = match_at(compiled(FINAL_STOPS), buf, pos, last)
        if match is None:
            return end
        if end < len(buf):
            return NO_MATCH
        return end if last else NEED_MORE

    def _emit(self, buf: str, pos: int, end: int) -> int:
        self._output.emit(buf[pos:end])
        return end

    # --- where something may begin ---

    def _at_beginning(self, buf: str, pos: int, last: bool) -> int:
        state = self._state
        if not state.shown and state.channel is Text and self._output.draft is None:
            step = self._at_start(buf, pos, last)
            if step != NO_MATCH:
                return step
        if state.line_start and buf[pos] in self._line_gates:
            step = self._at_line(buf, pos, last)
            if step != NO_MATCH:
                return step
        return self._at_gate(buf, pos, last) if buf[pos] in self._gates else NO_MATCH

    def _at_start(self, buf: str, pos: int, last: bool) -> int:
        """At the beginning of the message."""
        openers = self._openers
        if buf[pos] in openers.header_gates:
            end, opening = openers.headers.match_at(buf, pos, last)
            if opening or end == NEED_MORE:
                return self._begin(opening, buf, pos, end) if opening else NEED_MORE
        if buf[pos].isspace():
            found = _VISIBLE.search(buf, pos)
            end = max(pos + 1, (found.start() if found else len(buf)) - 1)  # with the last space something may begin
            return self._emit(buf, pos, end)
        end, opening = openers.first.match_at(buf, pos, last)
        if end == NEED_MORE:
            begun = buf[pos:]
            return NEED_MORE if self._sink.may_offer(begun) or openers.first_words.may_begin(begun) else NO_MATCH
        if opening is None:
            return NO_MATCH
        kind = opening.kind
        if isinstance(kind, Reasoning):
            return self._begin(opening, buf, pos, end)
        if isinstance(kind, Dialect) and self._blocks.accepts(opening.groups):
            self._output.open_draft(Draft(Text, self._sink.index, self._state.shown, kind))
            self._blocks.begin(kind, buf[pos:end], opening.groups)
            self._output.hold(buf[pos:end])
            return end
        return NO_MATCH

    def _at_line(self, buf: str, pos: int, last: bool) -> int:
        """At the beginning of a line."""
        openers = self._openers
        end, opening = openers.lines.match_at(buf, pos, last)
        if opening or end == NEED_MORE:
            step = self._begin(opening, buf, pos, end) if opening else NEED_MORE
            if step != NO_MATCH:
                return step
        if self._sink.made:
            end, opening = openers.echo_lines.match_at(buf, pos, last)
            if opening:
                self._state.enter(OVER)
            if end != NO_MATCH:
                return end
        return self._open_fence(buf, pos, last) if buf[pos] in " `~" else NO_MATCH

    def _at_gate(self, buf: str, pos: int, last: bool) -> int:
        """At a character that begins something, anywhere in a line."""
        if buf[pos] == "`":
            return self._open_span(buf, pos, last)
        if buf[pos] == "\n":
            return NO_MATCH
        head = buf[pos : pos + HEAD]
        if len(head) >= AHEAD and not self._openers.may_begin(head):
            return self._at_element(buf, pos, last)
        step = self._try_openers(buf, pos, last)
        self._mentioned = self._mentioned or (step == NO_MATCH and _MENTION.match(buf, pos) is not None)
        if step != NEED_MORE and self._openers.is_near(head):
            self.tried += 1
        return step

    def _try_openers(self, buf: str, pos: int, last: bool) -> int:
        openers = self._openers
        for table in (openers.marked, openers.rest):
            end, opening = table.match_at(buf, pos, last)
            step = self._begin(opening, buf, pos, end) if opening else end
            if step != NO_MATCH:
                return step
        step = self._at_element(buf, pos, last)
        if step == NO_MATCH and self._state.channel is Text:
            end, opening = openers.last.match_at(buf, pos, last)
            step = self._begin(opening, buf, pos, end) if opening else end
        return step if step != NO_MATCH else self._at_token(buf, pos, last)

    def _at_element(self, buf: str, pos: int, last: bool) -> int:
        """At the tag of a tool's own element, with a child that the tool declares or with none that it requires."""
        if self._elements is None or buf[pos] != "<":
            return NO_MATCH
        end, match = match_at(self._elements, buf, pos, last)
        if not match:
            return end
        schema, child = self._sink.schema(match["offered"]), match["child"] or _first_key(match["attributes"])
        fits = child in properties_of(schema) if child else not required_of(schema)
        return end if fits and self._blocks.begin(TOOL_ELEMENT, buf[pos:end], match.groupdict()) else NO_MATCH

    def _at_token(self, buf: str, pos: int, last: bool) -> int:
        """At a token that is never shown, or at an opener that the end of the message cuts."""
        if self._state.last_closer is not None:
            return NO_MATCH  # a message of harmony may quote them
        tokens = self._openers.tokens
        end, opening = tokens.match_at(buf, pos, last)
        if opening and self._has_closer(buf[pos:end]):
            return NO_MATCH
        if opening and not (last and self._is_cut(opening.kind, buf, pos) and not self._has_closer(buf[pos:])):
            self._pass_token(opening.kind)
            return end
        if end == NO_MATCH and self._state.line_start and not (self._mentioned and buf[pos + 1 : pos + 2] == "/"):
            end, _ = self._openers.shapes.match_at(buf, pos, last)
        if not opening and (end >= 0 or not last or not self._is_truncated(buf[pos:])):
            return end
        answered = self._state.channel is Text and self._output.draft is None
        if answered and is_truncated_call(buf[pos:], self._openers):
            self._sink.bad(buf[pos:], CUT)
        return len(buf)

    def _is_cut(self, kind: Kind, buf: str, pos: int) -> bool:
        """Return whether the message ends in the header, or in the block, that this token begins."""
        if kind == ITEM:
            return is_truncated_call(buf[pos:], self._openers)
        if kind != WRAPPER:
            return len(buf) - pos >= CUT_TOKEN and _CUT_HEADER.fullmatch(buf, pos, partial=True) is not None
        behind = buf[buf.index(">", pos) + 1 :].lstrip()
        return behind[:1] in ("", "<") and is_truncated_call(buf[pos:], self._openers)

    def _is_truncated(self, text: str) -> bool:
        enabled = self._blocks.enabled
        return enabled and is_truncated(text, self._sink.tools, self._openers) and not self._has_closer(text)

    def _has_closer(self, text: str) -> bool:
        """Return whether the reasoning ends in `text`, behind its beginning."""
        return self._state.closer is not None and self._state.closer.search(text, 1) is not None

    def _pass_token(self, kind: Kind) -> None:
        """Let a token that is never shown have its effect."""
        state = self._state
        if kind in (ECHO, FOREIGN) and self._sink.made:
            state.enter(OVER)
        elif kind == FOREIGN:
            state.open_channel(FOREIGN_SHUTS)
        elif kind == ANSWER:
            if state.hinted:
                state.close_channel()
            state.declared = True
        elif kind == ORPHAN and not state.declared:
            self._output.reclassify()
            state.close_channel()

    # --- beginnings ---

    def _begin(self, opening: Opening, buf: str, pos: int, end: int) -> int:
        state, kind = self._state, opening.kind
        if isinstance(kind, Dialect):
            return end if self._blocks.begin(kind, buf[pos:end], opening.groups) else NO_MATCH
        if isinstance(kind, Reasoning):
            again = state.empty and state.closer is compiled(kind.shuts)  # its opener, written twice
            if state.closer is not None and not state.hinted and not again:  # its own mark only ends open reasoning
                return NO_MATCH
            if state.shown and not state.line_start and not kind.last and (after := buf[end : end + 1]) in ("", " "):
                return NO_MATCH if after else NEED_MORE  # in the middle of a sentence the mark is only mentioned
            state.open_channel(kind.shuts, verbatim=kind.answer, last=kind.last)
        if isinstance(kind, str):
            self._pass_token(kind)
        return end

    def _open_span(self, buf: str, pos: int, last: bool) -> int:
        match = _TICKS.match(buf, pos, pos + _TICKS_LIMIT)
        end = match.end() if match else pos + 1
        if end == len(buf) and end < pos + _TICKS_LIMIT and not last:
            return NEED_MORE
        self._state.open_span(end - pos)
        return self._emit(buf, pos, end)

    def _open_fence(self, buf: str, pos: int, last: bool) -> int:
        state = self._state
        end, match = match_at(_FENCE, buf, pos, last)
        if not match:
            return end
        if state.indent + match.start("run") - pos > _FENCE_INDENT:
            return NO_MATCH
        if state.closer is not None and state.closer.search(match["info"]):
            return NO_MATCH  # the reasoning ends on this very line
        name, _, rest = match["info"].strip().partition(" ")
        if self.fences and state.channel is Text and name in self._sink.tools:
            given = info_string_arguments(rest, self._sink.schema(name))
            if given is not None:
                opening = buf[pos:end]
                self._blocks.open(FENCED, opening)
                reader = FenceCall(self._sink, name, opening, match["run"], given, alone=not state.shown)
                self._blocks.start(reader)
                return end
        state.open_fence(match["run"])
        return self._emit(buf, pos, end)

    # --- the end of reasoning ---

    def _at_closer(self, buf: str, pos: int, last: bool) -> int:
        closer = self._state.closer
        if closer is None:
            return NO_MATCH
        end, _ = match_at(closer, buf, pos, last)
        if end == NO_MATCH and last and (final := self._state.last_closer) is not None and len(buf) - pos >= CUT_TOKEN:
            end = len(buf) if final.fullmatch(buf, pos, partial=True) else NO_MATCH
        if end >= 0:
            draft = self._output.draft
            if draft is not None and draft.channel is Thought:
                self._output.release(draft)  # a call inside the reasoning was none
            self._state.close_channel()
        return end


@lru_cache(maxsize=1 << 14)
def _may_begin(
    openers: Openers, elements: regex.Pattern[str] | None, closer: regex.Pattern[str] | None, head: str
) -> bool:
    """Return whether something may begin with these AHEAD to HEAD characters, or the reasoning end."""
    ends = closer is not None and closer.match(head, partial=True) is not None
    tool = elements is not None and elements.match(head, partial=True) is not None
    return ends or tool or openers.may_begin(head)


def _first_key(attributes: str | None) -> str:
    return (attributes or "").partition("=")[0].strip()


@lru_cache(maxsize=64)
def _gate(gates: str, extra: frozenset[str]) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(gates + ''.join(sorted(extra)))}]")
