"""The one scanner: text in, events out, whatever the slicing. It knows no dialect; the tables do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import regex

from parsing.arguments import properties_of, required_of
from parsing.dialects import WHOLE, Dialect
from parsing.events import BadCall, Call, Parsed, ParseEvent, Text, Thought
from parsing.framing import ANSWERS, REASONING, Reasoning
from parsing.lexis import CLOSER, NONE, WAIT, compiled, look
from parsing.openers import ECHO, Table, echo_lines, first, lines, marked, rest, tokens, tool_elements
from parsing.readers.bodies import tool_element
from parsing.readers.fence_calls import FenceCall
from parsing.sink import TOO_LONG, Reader, Sink, never

LIMIT = 1 << 20
_GATES = "<[]`\n✿◁"
_PROSE = frozenset(_GATES).isdisjoint
_LINE_FIRST = frozenset("fF-> A*`~T[acOot")
_FENCE = compiled(r" {0,3}(?P<run>`{3,40}|~{3,40})(?P<info>[^\n`]{0,400})\n")
_TICKS = re.compile("`+")
_SPACES = re.compile(r"\s*")
_PARTIAL = re.compile(r"<[^a-zA-Z\s/]|</?[\w.:-]*[_:]|<[\w]{4}|\[[A-Z]*_|\]<|✿|◁")
_ELEMENT = Dialect("tool_name_tag", "adhoc_tag", "Cline, Roo, Kilo prompts", "", tool_element)
_FENCED = Dialect("fence_tool_tag", "fenced", "taught by our own prompt", "", tool_element)
_ANY_CLOSER = "|".join(each.shuts for each in REASONING if "(?=" not in each.shuts)
_SPAN_LIMIT = 4096


@dataclass
class Draft:
    """Events that are not certain yet, and the text that is shown instead if they turn out wrong."""

    voice: type[Text] | type[Thought]
    index: int
    raw: list[str] = field(default_factory=list)
    size: int = 0
    row: Dialect | None = None
    closed: bool = False  # a weak form has ended: only what shows nothing may follow


class Parser:
    """Reads one reply. `tools` maps each offered tool to the JSON Schema of its parameters.

    `fences`: a fence whose tag is a tool is a call (the prompt taught it). `starts_in_thought` and `prompt_suffix`
    (what the prompt ended with) are hints. `limit`: the characters that an undecided candidate may hold; a call may be
    sixteen times as long.
    """

    def __init__(
        self,
        tools: Mapping[str, Mapping[str, Any]],
        *,
        fences: bool = True,
        starts_in_thought: bool = False,
        prompt_suffix: str = "",
        limit: int = LIMIT,
    ) -> None:
        self._sink = Sink(tools)
        self._fences = fences
        self._limit = limit
        self._elements = tool_elements(tuple(tools))
        self._out: list[ParseEvent] = []
        self._held = ""
        self._voice: type[Text] | type[Thought] = Text
        self._closer: regex.Pattern[str] | None = None
        self._closer_first = ""
        self._quotes = False  # an answer in which markup is text
        self._reader: Reader | None = None
        self._row = _ELEMENT
        self._after: regex.Pattern[str] | None = None
        self._size = 0
        self._bol = True
        self._shown = False
        self._fence = ""
        self._ticks = 0
        self._draft: Draft | None = None
        self._over = False
        self._phantom = 0
        self._closed = False
        self._quiet: Callable[[str], bool] = never
        self._pass: Callable[[str], list[ParseEvent]] = self._say_piece
        self._begin(starts_in_thought, prompt_suffix)

    def _begin(self, starts_in_thought: bool, prompt_suffix: str) -> None:
        suffix = prompt_suffix.rstrip()
        if suffix.endswith((">>>", "<|recipient|>", "<|im_start|>assistant")):
            self._held = suffix[max(suffix.rfind(each) for each in (">>>", "<|recipient|>", "<|im_start|>assistant")) :]
            self._phantom = len(self._held)
        if starts_in_thought or re.search(r"<(?:\w+:)?(?:longcat_|ifm\|)?think[\w:]*>$|\[THINK\]$|◁think▷$", suffix):
            self._think(_ANY_CLOSER, "<[◁")

    def feed(self, text: str) -> list[ParseEvent]:
        """The events of the next piece of the reply. Never raises."""
        if self._quiet(text):
            return self._pass(text)
        return self._scan(text, last=False)

    def close(self) -> list[ParseEvent]:
        """The events that only the end of the reply decides."""
        if self._closed:
            return []
        self._closed = True
        events = self._scan("", last=True)
        self._end()
        return events + self._taken()

    # --- pieces that cannot matter ---

    def _say_piece(self, text: str) -> list[ParseEvent]:
        return [self._voice(text)] if text else []

    def _read_piece(self, text: str) -> list[ParseEvent]:
        self._size += len(text)
        if self._reader is None or not text or self._size > self._room():
            return self._scan(text, last=False)
        self._reader.passed(text)
        if self._draft is not None:
            self._hold(text)
            return []
        return self._sink.taken()

    def _settle(self) -> None:
        """Choose how the next piece is looked at."""
        reader = self._reader
        self._quiet, self._pass = never, self._say_piece
        if self._held or self._over:
            return
        if reader is not None:
            self._quiet, self._pass = reader.quiet, self._read_piece
        elif self._draft is None and self._after is None and not self._bol and not self._ticks and not self._fence:
            if self._shown and (self._closer is None or not set(self._closer_first) - set(_GATES)):
                self._quiet = _PROSE
        elif self._fence and not self._bol and self._closer is None and self._draft is None:
            self._quiet = _LINE

    # --- the scan ---

    def _scan(self, text: str, *, last: bool) -> list[ParseEvent]:
        buf = self._held + text if self._held else text
        self._held = ""
        pos = 0
        while pos < len(buf):
            draft = self._draft
            step = self._step(buf, pos, last)
            if step == WAIT:
                break
            if draft is not None and draft is self._draft and step > pos:
                self._hold(buf[pos:step])
            pos = step
        self._held = buf[pos:]
        self._settle()
        return self._taken()

    def _taken(self) -> list[ParseEvent]:
        if self._draft is not None:
            events, self._out = self._out, []
            return events
        return self._sink.taken() if not self._out else self._flushed()

    def _flushed(self) -> list[ParseEvent]:
        events, self._out = self._out + self._sink.taken(), []
        return events

    def _step(self, buf: str, pos: int, last: bool) -> int:
        if self._over:
            return len(buf)
        if self._reader is not None:
            return self._read(self._reader, buf, pos, last)
        if self._after is not None:
            return self._follow(self._after, buf, pos, last)
        return self._text(buf, pos, last)

    def _room(self) -> int:
        return self._limit if self._draft is not None else 16 * self._limit

    def _read(self, reader: Reader, buf: str, pos: int, last: bool) -> int:
        step = reader.read(buf, pos, last)
        self._size += step - pos
        if self._draft is not None and self._draft.row and (reader.refused or self._spoilt()):
            self._release_after(buf, pos, step)
            return step
        if reader.done:
            self._reader = None
            self._after = _after(self._row.shuts)
            self._bol = True
        elif self._size > self._room():
            self._refuse()
            return step
        elif step == pos:
            return WAIT
        return step

    def _refuse(self) -> None:
        """The call is longer than anything that is read: say so, and let the rest go unread."""
        if self._draft is not None:
            self._release(self._draft)
            return
        self._reader = None
        self._sink.bad("", TOO_LONG)
        self._over = True

    def _follow(self, after: regex.Pattern[str], buf: str, pos: int, last: bool) -> int:
        """After a call: closers that are dropped, or the block's next call; else the block has ended."""
        waits = False
        if self._row.more:
            end, match = look(compiled(self._row.more), buf, pos, last)
            if match and self._begins(self._row, match):
                return end
            waits = end == WAIT
        end, match = look(after, buf, pos, last)
        if match:
            if match.groupdict().get("shut") is not None:
                self._after = _after("")
            return end
        if waits or end == WAIT:
            return WAIT
        self._after = None
        if self._draft is not None and self._draft.row:
            self._draft.closed = True
        return pos

    # --- text ---

    def _text(self, buf: str, pos: int, last: bool) -> int:
        if self._closer is not None and buf[pos] in self._closer_first:
            end, _ = look(self._closer, buf, pos, last)
            if end >= 0:
                self._end_thought()
                return end
            if end == WAIT:
                return WAIT
        if self._fence:
            return self._in_fence(buf, pos, last)
        if self._ticks:
            return self._in_span(buf, pos, last)
        if not self._quotes:
            if (
                not self._shown
                and self._voice is Text
                and self._draft is None
                and (step := self._at_start(buf, pos, last)) != NONE
            ):
                return step
            if self._bol and (step := self._at_line(buf, pos, last)) != NONE:
                return step
            if buf[pos] in _GATES and (step := self._at_gate(buf, pos, last)) != NONE:
                return step
        return self._run(buf, pos)

    def _run(self, buf: str, pos: int) -> int:
        """Show text up to the next character that may begin something."""
        match = self._gate().search(buf, pos + 1)
        end = match.start() if match else len(buf)
        newline = buf.find("\n", pos, end)
        end = newline + 1 if newline >= 0 else end
        return self._say(buf[pos:end], end)

    def _gate(self) -> re.Pattern[str]:
        return _gate(self._closer_first)

    def _say(self, text: str, end: int) -> int:
        """Show (or think) text. `end` is where it ends, for the caller."""
        bare = not text.strip()
        draft = self._draft
        if draft is not None and draft.row and not bare:
            self._release(draft)
        if self._phantom:
            text, self._phantom = text[self._phantom :], max(0, self._phantom - len(text))
        if text:
            self._sink.events.append(self._voice(text))
            self._shown = self._shown or (not bare and self._voice is Text)
            self._bol = text[-1] == "\n" or (self._bol and bare)
        return end

    def _at_start(self, buf: str, pos: int, last: bool) -> int:
        """What begins at the beginning of the message. NONE: nothing does."""
        if buf[pos] in " t":
            end, match = look(marked().pattern, buf, pos, last)
            if match:
                return self._begin_kind(marked(), match, buf, pos)
            if end == WAIT:
                return WAIT
        if buf[pos].isspace():
            return NONE
        end, match = look(first().pattern, buf, pos, last)
        if end == WAIT:
            return WAIT if self._may_name(buf[pos:]) else NONE
        if match:
            kind = first().kind(match)
            if isinstance(kind, Reasoning):
                return self._begin_kind(first(), match, buf, pos)
            if isinstance(kind, Dialect) and (self._offers(match) or "offered" not in kind.opens):
                return self._weak(kind, match, buf, pos)
        return NONE

    def _may_name(self, text: str) -> bool:
        """Whether a first word may still become a tool's name, or a word that begins something."""
        return not text.replace("_", "a").isalnum() or any(
            name.startswith(text) for name in (*self._sink.tools, *_FIRST_WORDS)
        )

    def _offers(self, match: regex.Match[str]) -> bool:
        offered = match.groupdict().get("offered")
        return offered is None or self._sink.offers(offered)

    def _weak(self, row: Dialect, match: regex.Match[str], buf: str, pos: int) -> int:
        """Hold a form without a marker: it is a call only if the whole message is."""
        self._out += self._sink.taken()
        self._draft = Draft(Text, self._sink.index, row=row)
        self._begins(row, match)
        if match.end() > pos:
            self._hold(buf[pos : match.end()])
        return match.end()

    def _at_line(self, buf: str, pos: int, last: bool) -> int:
        char = buf[pos]
        if char not in _LINE_FIRST:
            return NONE
        end, match = look(lines().pattern, buf, pos, last)
        if (
            match
            and (kind := lines().kind(match))
            and isinstance(kind, Dialect)
            and self._begins(kind, match, buf, pos)
        ):
            return match.end()
        if end == WAIT:
            return WAIT
        if self._sink.index:
            end, match = look(echo_lines().pattern, buf, pos, last)
            if match:
                self._over = True
                return end
            if end == WAIT:
                return WAIT
        return self._open_fence(buf, pos, last) if char in " `~" else NONE

    def _open_fence(self, buf: str, pos: int, last: bool) -> int:
        end, match = look(_FENCE, buf, pos, last)
        if end == WAIT:
            return WAIT
        if not match:
            return NONE
        info = match["info"].strip()
        if self._fences and self._voice is Text and info in self._sink.tools:
            self._sink.dialect = _FENCED.name
            self._start(_FENCED, FenceCall(self._sink, info, buf[pos:end], match["run"], alone=not self._shown))
            return end
        self._fence = match["run"]
        return self._say(buf[pos:end], end)

    def _in_fence(self, buf: str, pos: int, last: bool) -> int:
        if self._bol:
            run = self._fence
            shut = compiled(rf" {{0,3}}{re.escape(run[0])}{{{len(run)},100}}[ \t]{{0,100}}(?=\r?\n)")
            end, match = look(shut, buf, pos, last)
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
            found = re.compile(f"[{re.escape(self._closer_first)}]").search(buf, pos + 1, end)
            end = found.start() if found else end
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
                return self._say(buf[pos : match.end()], match.end())
        if newline >= 0 or last:
            self._ticks = 0
            return pos
        if len(buf) - pos > _SPAN_LIMIT:
            self._ticks = 0
            return self._say(buf[pos:], len(buf))
        return WAIT

    def _at_gate(self, buf: str, pos: int, last: bool) -> int:
        char = buf[pos]
        if char == "`":
            return self._open_span(buf, pos, last)
        if char == "\n":
            return NONE
        for table in (marked(), rest()):
            end, match = look(table.pattern, buf, pos, last)
            if match and (step := self._begin_kind(table, match, buf, pos)) != NONE:
                return step
            if end == WAIT:
                return WAIT
        if self._elements is not None and char == "<":
            end, match = look(self._elements, buf, pos, last)
            if match and self._fits_element(match) and self._begins(_ELEMENT, match, buf, pos):
                return end
            if end == WAIT:
                return WAIT
        end, match = look(tokens().pattern, buf, pos, last)
        if match:
            self._over = tokens().kind(match) == ECHO and self._sink.index > 0
            return end
        if last and len(buf) - pos >= 3 and _PARTIAL.match(buf, pos) and self._cut_short(buf, pos):
            return len(buf)
        return WAIT if end == WAIT else NONE

    def _cut_short(self, buf: str, pos: int) -> bool:
        """Whether the message ends inside a token that can be nothing else."""
        return any(table.pattern.match(buf, pos, partial=True) for table in (marked(), tokens()))

    def _fits_element(self, match: regex.Match[str]) -> bool:
        schema = self._sink.schema(match["offered"])
        child = match["child"]
        return child in properties_of(schema) if child else not required_of(schema)

    def _open_span(self, buf: str, pos: int, last: bool) -> int:
        match = _TICKS.match(buf, pos)
        end = match.end() if match else pos + 1
        if end == len(buf) and not last:
            return WAIT
        self._ticks = end - pos
        return self._say(buf[pos:end], end)

    # --- what begins ---

    def _begin_kind(self, table: Table, match: regex.Match[str], buf: str = "", pos: int = 0) -> int:
        kind = table.kind(match)
        if isinstance(kind, Dialect):
            return match.end() if self._begins(kind, match, buf, pos) else NONE
        if isinstance(kind, Reasoning):
            self._think(kind.shuts, kind.first, answer=kind in ANSWERS)
        return match.end()

    def _think(self, closer: str, first_characters: str, *, answer: bool = False) -> None:
        self._voice = Text if answer else Thought
        self._quotes = answer
        self._closer = compiled(closer)
        self._closer_first = first_characters

    def _end_thought(self) -> None:
        draft = self._draft
        if draft is not None and draft.voice is Thought:
            self._release(draft)
        self._voice = Text
        self._quotes = False
        self._closer = None
        self._closer_first = ""
        self._fence = ""
        self._ticks = 0
        self._bol = True

    def _begins(self, row: Dialect, match: regex.Match[str], buf: str = "", pos: int = 0) -> bool:
        """Begin a call of this row, if it may be one here."""
        if not self._offers(match):
            return False
        draft = self._draft
        if draft is not None and draft.row not in (None, row):
            self._release(draft)
        if self._voice is Thought and self._draft is None:
            self._out += self._sink.taken()
            self._draft = Draft(Thought, self._sink.index)
            self._voice = Text
            self._hold(buf[pos : match.end()])
        self._sink.dialect = row.name
        self._sink.closer = _closer(row.shuts)
        self._start(row, row.body(self._sink, match.groupdict()))
        return True

    def _start(self, row: Dialect, reader: Reader) -> None:
        self._row = row
        self._size = 0
        self._after = None
        self._reader = reader
        self._phantom = 0
        if reader.done:
            self._reader = None
            self._after = _after(row.shuts)

    # --- drafts ---

    def _hold(self, text: str) -> None:
        draft = self._draft
        if draft is None:
            return
        draft.raw.append(text)
        draft.size += len(text)
        if draft.size > self._limit:
            self._release(draft)

    def _spoilt(self) -> bool:
        """Whether a weak form has shown itself to be no call."""
        return any(
            isinstance(event, BadCall) or (isinstance(event, Call) and event.name not in self._sink.tools)
            for event in self._sink.events
        )

    def _release_after(self, buf: str, pos: int, step: int) -> None:
        draft = self._draft
        if draft is not None:
            draft.raw.append(buf[pos:step])
            self._release(draft)

    def _release(self, draft: Draft) -> None:
        """It was text (or thought) after all: everything held is said, nothing of it is a call."""
        self._draft = None
        self._reader = None
        self._after = None
        self._sink.events.clear()
        self._sink.index = draft.index
        self._sink.is_open = False
        raw = "".join(draft.raw)
        if raw:
            self._out.append(draft.voice(raw))
            self._shown = self._shown or (draft.voice is Text and bool(raw.strip()))
            self._bol = raw.endswith("\n")
        if draft.row in WHOLE and raw.startswith("```") and not draft.closed:
            self._fence = "```"
        if draft.voice is Thought:
            self._voice = Thought if self._closer is not None else Text

    def _end(self) -> None:
        """The message is over."""
        draft, reader = self._draft, self._reader
        held, self._held = self._held, ""
        if reader is not None:
            reader.cut()
            self._reader = None
        if (
            draft is not None
            and draft.row
            and ((reader is not None and not reader.done) or self._spoilt() or not self._calls())
        ):
            draft.raw.append(held)
            self._release(draft)
            return
        self._draft = None
        if held and not (len(held) >= 3 and _PARTIAL.match(held)) and reader is None and not self._over:
            self._say(held, 0)

    def _calls(self) -> bool:
        return any(isinstance(event, Call) for event in self._sink.events)


_FIRST_WORDS = ("Here", "Thought", "analysis", "Call")
_LINE = frozenset("\n").isdisjoint


def _closer(shuts: str) -> regex.Pattern[str]:
    return compiled(rf"(?:{shuts})|(?:{CLOSER.pattern})") if shuts else CLOSER


def _after(shuts: str) -> regex.Pattern[str]:
    closer = CLOSER.pattern
    return compiled(rf"(?P<shut>{shuts})|(?:{closer})|\}}{{1,4}}\]?" if shuts else rf"(?:{closer})|\}}{{1,4}}\]?")


def _gate(extra: str) -> re.Pattern[str]:
    found = _GATE_CACHE.get(extra)
    if found is None:
        found = _GATE_CACHE[extra] = re.compile(f"[{re.escape(_GATES + extra)}]")
    return found


_GATE_CACHE: dict[str, re.Pattern[str]] = {}


def parse(
    text: str,
    tools: Mapping[str, Mapping[str, Any]],
    *,
    fences: bool = True,
    starts_in_thought: bool = False,
    prompt_suffix: str = "",
) -> Parsed:
    """The whole of a reply at once."""
    parser = Parser(tools, fences=fences, starts_in_thought=starts_in_thought, prompt_suffix=prompt_suffix)
    return gather([*parser.feed(text), *parser.close()])


def gather(events: list[ParseEvent]) -> Parsed:
    """The sum of a reply's events."""
    return Parsed(
        content="".join(event for event in events if isinstance(event, Text)),
        reasoning="".join(event for event in events if isinstance(event, Thought)),
        calls=[event for event in events if isinstance(event, Call)],
        rejected=[event for event in events if isinstance(event, BadCall)],
    )
