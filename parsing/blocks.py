"""The open block: its calls, and the closers behind them."""

from __future__ import annotations

from functools import lru_cache

import regex

from parsing.dialects import Dialect
from parsing.drafts import Draft, Output
from parsing.events import Text, Thought
from parsing.matching import CLOSER, NEED_MORE, NO_MATCH, Groups, compiled, first_characters, groups_at, match_at
from parsing.readers.json_calls import JsonCalls
from parsing.sink import TOO_LONG, Excerpts, Reader, Sink
from parsing.state import AFTER, CALL, OVER, TEXT, State

CALL_LIMIT = 16  # a call may be so many times as long as undecided text
PATIENCE = 64  # characters that wait for one that may matter
MARKS = frozenset("{}[]()<>`\n")  # such characters of a call of which nothing is shown yet
LEASE = 4096  # characters that pass without a look at the limits
# What a string of JSON may go on with, up to the next part of its object: no line ends in it.
_REST_OF_STRING = compiled(r"(?:[^\"\\\x00-\x1f]|\\[\"\\/bfnrtu]){0,3600}+\"(?=\s{0,100}[,:}\]])")

WRAPPED_WORDS = 1000  # characters in an open wrapper that wait for its next call


class Blocks:
    """Reads calls, one block after the other: the modes CALL and AFTER. Without `enabled` no call begins."""

    def __init__(
        self, sink: Sink, state: State, output: Output, excerpts: Excerpts, limit: int, *, enabled: bool
    ) -> None:
        self.enabled = enabled
        self._sink = sink
        self._state = state
        self._output = output
        self._excerpts = excerpts
        self._limit = limit
        self._reader: Reader | None = None  # of the open call
        self._row: Dialect | None = None
        self._size = 0  # characters of the open call
        self._after = _after("")
        self._wrapper: regex.Pattern[str] | None = None  # what goes on, or closes, the wrapper round the last call
        self._trail = ""  # closers behind the last call, while a wrapper is open
        # The last buffer that the end of the reasoning was looked for in, for which closer, and where it is.
        self._searched = ""
        self._key: tuple[regex.Pattern[str] | None, bool] = (None, False)
        self._found = (0, NO_MATCH)

    # --- a call begins ---

    def accepts(self, groups: Groups) -> bool:
        """Return whether calls are read, and an opener that needs the name of a tool has one."""
        offered = groups.get("offered")
        return self.enabled and (offered is None or self._sink.offers(offered))

    def begin(self, row: Dialect, opening: str, groups: Groups) -> bool:
        """Begin a call of this row, if it may be one here."""
        if not self.accepts(groups):
            return False
        output, state = self._output, self._state
        if state.closer is not None and state.closer.search(opening):
            return False  # the reasoning ends in it
        if output.draft is not None and output.draft.row not in (None, row):
            output.release(output.draft)
        if state.channel is Thought and output.draft is None:
            output.open_draft(Draft(Thought, self._sink.index, state.shown))
            state.channel = Text
            output.hold(opening)
        self.open(row, opening)
        if groups.get("wrap"):
            self._wrapper = _next_in(row)
        elif self._wrapper is not None and self._wrapper is not _next_in(row):
            self._wrapper = None
        self.start(row.body(self._sink, groups))
        return True

    def open(self, row: Dialect, opening: str) -> None:
        """Open a block of this row: the events of its reader belong to it from now on."""
        self._row = row
        self._sink.dialect = row.name
        self._sink.pseudo = row.pseudo
        self._sink.closer = _closer(row.shuts)
        self._trail = ""
        self._excerpts.open(self._sink.index, opening)

    def start(self, reader: Reader) -> None:
        """Let `reader` read the call that has been opened."""
        self._size = 0
        self._reader = reader
        if reader.done:
            self._end()
        else:
            self._state.enter(CALL)

    # --- a call is read ---

    @property
    def is_fresh(self) -> bool:
        """Of the open call, nothing has been read or shown yet: words of it may wait for the next bracket or line."""
        return not self._size and self._output.draft is None and self._reader is not None and not self._reader.streams

    def read(self, buf: str, pos: int, last: bool) -> int:
        """Let the reader take all it can; in reasoning, up to where that ends."""
        draft = self._output.draft
        if draft is None or draft.channel is not Thought:
            return self._read(buf, pos, last)
        at, end = self._closer_in(buf, pos, last)
        step = self._read_draft(draft, buf if at == len(buf) else buf[:at], pos, last and at == len(buf))
        if step != NEED_MORE or end < 0 or self._output.draft is not draft:
            return step
        return self._meet_closer(draft, buf, pos, at, last)

    def _closer_in(self, buf: str, pos: int, last: bool) -> tuple[int, int]:
        """Find the end of the reasoning: once in each buffer, however many calls there are in it."""
        key = (self._state.closer, last)
        if buf is not self._searched or key != self._key or pos > self._found[0]:
            self._searched, self._key = buf, key
            self._found = self._state.find_closer(buf, pos, last)
        return self._found

    def _meet_closer(self, draft: Draft, buf: str, pos: int, at: int, last: bool) -> int:
        """End the call with the reasoning; or, if that is quoted in a string, read on and decide later."""
        reader = self._reader
        if isinstance(reader, JsonCalls) and reader.in_string and self._output.doubts:
            end, match = match_at(_REST_OF_STRING, buf, at, last)
            if end == NEED_MORE:
                return NEED_MORE
            if match:
                reader.strict = True
                draft.doubt = draft.size if draft.doubt is None else draft.doubt
                return self._read_draft(draft, buf[:end], pos, last=False)
        draft.raw.append(buf[pos:at])
        self._output.release(draft)
        return at

    def _read_draft(self, draft: Draft, buf: str, pos: int, last: bool) -> int:
        """Read on; where the reasoning may have ended in the call, decide it as soon as that is known."""
        reader = self._reader
        step = self._read(buf, pos, last)
        if draft.doubt is not None and self._output.draft is draft and isinstance(reader, JsonCalls):
            if not reader.exact:
                draft.raw.append(buf[pos : max(step, pos)])
                self._output.release(draft)
            elif reader.done:
                draft.doubt = None
        return step

    def _read(self, buf: str, pos: int, last: bool) -> int:
        """Let the reader take all it can, up to the limit."""
        reader, draft = self._reader, self._output.draft
        assert reader is not None
        if not last and self.is_fresh and len(buf) - pos < PATIENCE and MARKS.isdisjoint(buf[pos + 1 :]):
            return NEED_MORE
        room = self._limit - draft.size if draft is not None else CALL_LIMIT * self._limit - self._size
        full = len(buf) - pos > room
        step = reader.read(buf[: pos + room], pos, last=False) if full else reader.read(buf, pos, last)
        self._size += step - pos
        if self._excerpts.room:
            self._excerpts.keep(buf[pos:step])
        if draft is not None and draft.row and (reader.refused or self._sink.disqualified):
            draft.raw.append(buf[pos:step])
            self._output.release(draft)
        elif reader.done:
            self._end()
            self._state.begin_line()
        elif full:
            self._refuse(buf[pos:step])
        elif step == pos:
            return NEED_MORE
        return step

    def _end(self) -> None:
        """Go on behind the call: closers and further calls may still belong to its block."""
        self._state.enter(AFTER)
        self._excerpts.close(self._sink.index)
        self._reader = None
        self._after = _after(self._row.shuts, self._row.wrapper) if self._row else _after("")

    def _refuse(self, piece: str) -> None:
        """Show a draft that is too long, or refuse a call that is and read no more of the message."""
        draft = self._output.draft
        if draft is not None:
            draft.raw.append(piece)
            self._output.release(draft)
            return
        self._sink.bad("", TOO_LONG)
        self._excerpts.close(self._sink.index)
        self._state.enter(OVER)

    def cut(self) -> bool:
        """End the message. Return whether no call is left half read."""
        if self._state.mode is not CALL or self._reader is None:
            return True
        self._reader.cut()
        self._excerpts.close(self._sink.index)
        return self._reader.done

    def drop(self, buf: str, pos: int, last: bool) -> int:
        """Drop what follows the end of the message, up to the end of the reasoning that it stands in."""
        draft = self._output.draft
        if draft is None or draft.channel is not Thought:
            return len(buf)
        at, end = self._closer_in(buf, pos, last)
        if at - pos > (room := self._limit - draft.size + 1):
            return pos + room  # with that the draft is too long
        if end >= 0:
            self._state.enter(TEXT)
        return at if at > pos or end >= 0 else NEED_MORE

    # --- pieces that the open call takes whole ---

    def read_piece(self, text: str) -> int:
        """Read the usual piece inside a call, all of which is the reader's. Return how much was read."""
        reader = self._reader
        if reader is None or self._size + len(text) >= self._limit:
            return 0
        step = reader.read(text, 0, last=False)
        self._size += step
        if self._excerpts.room:
            self._excerpts.keep(text[:step])
        if reader.done:
            self._end()
            self._state.begin_line()
        return step

    def shortcut(self) -> tuple[str, int, bool]:
        """Return the one character that can matter in the next piece, how much text without it may pass before the
        limits are looked at again, and whether it is shown.
        """
        reader, draft = self._reader, self._output.draft
        assert reader is not None
        if draft is None:
            shown = reader.streams and not self._sink.muted
            limit = self._limit if shown else self._limit // 2
            return reader.stop, min(limit - self._size, LEASE), shown
        if draft.row is None:  # in reasoning each piece may end that
            return "", 0, False
        return reader.stop, min(self._limit // 2 - self._size, self._limit - draft.size, LEASE), False

    def take(self, text: str) -> None:
        """Let the open call have text that has passed, as it holds nothing that matters."""
        assert self._reader is not None
        self._size += len(text)
        if self._excerpts.room:
            self._excerpts.keep(text)
        self._reader.take(text)

    # --- after a call ---

    def follow(self, buf: str, pos: int, last: bool) -> int:
        """Drop closers, or begin the block's next call; else the block has ended. In reasoning, up to its end."""
        draft = self._output.draft
        if draft is None or draft.channel is not Thought:
            return self._follow(buf, pos, last)
        at, end = self._closer_in(buf, pos, last)
        return self._follow(buf, pos, last) if at in (pos, len(buf)) else self._follow(buf[:at], pos, last or end >= 0)

    def _follow(self, buf: str, pos: int, last: bool) -> int:
        row = self._row
        if (end := self._at_closer(buf, pos, last)) != NO_MATCH:
            return end
        if row is not None and row.more:
            end, groups = groups_at(compiled(row.more), buf, pos, last)
            if groups is not None and self.begin(row, buf[pos:end], groups):
                return end
            if end == NEED_MORE:
                return NEED_MORE
        end, groups = groups_at(self._after, buf, pos, last)
        if groups is not None:
            if groups.get("shut") is not None:
                self._after = _after("", row.wrapper if row else "")
            self._excerpts.close_behind(self._sink.index - 1, buf[pos:end])
            self._leave(buf[pos:end])
            return end
        if end == NEED_MORE:
            return NEED_MORE
        if last and not buf[pos:].isspace() and self._after.match(buf, pos, partial=True):
            return len(buf)  # the message ends inside a closer
        if self._wrapper is not None and (end := self._skip_words(self._wrapper, buf, pos, last)) != NO_MATCH:
            return end
        self._state.enter(TEXT)
        if self._output.draft is not None and self._output.draft.row:
            self._output.draft.closed = True
        return pos

    def _leave(self, closer: str) -> None:
        """Go behind a closer, which may be the wrapper's."""
        if self._wrapper is None:
            return
        self._trail += closer
        if (match := self._wrapper.match(closer.lstrip())) and match["end"] is not None:
            self._wrapper = None

    def _skip_words(self, following: regex.Pattern[str], buf: str, pos: int, last: bool) -> int:
        """Pass words in an open wrapper, up to its next call or its closer; NO_MATCH if neither comes soon."""
        draft = self._output.draft
        if draft is None or draft.channel is Text:
            marks = _marks(following)
            reach = min(len(buf), pos + WRAPPED_WORDS)
            for at in range(pos, reach):
                if buf[at] not in marks:
                    continue
                end, match = match_at(following, buf, at, last)
                if end == NEED_MORE:
                    return NEED_MORE
                if match and at == pos:
                    return NO_MATCH
                if match:
                    self._excerpts.extend(self._sink.index - 1, self._trail + buf[pos:at])
                    self._trail = ""
                    return at
            if reach - pos < WRAPPED_WORDS and not last:
                return NEED_MORE
        self._wrapper = None
        return NO_MATCH

    def _at_closer(self, buf: str, pos: int, last: bool) -> int:
        """At the end of the reasoning that the call stands in, which may look like a closer of the call."""
        draft, closer = self._output.draft, self._state.closer
        if draft is None or draft.channel is not Thought or closer is None:
            return NO_MATCH
        end, _ = match_at(compiled(rf"\s{{0,200}}(?:{closer.pattern})"), buf, pos, last)
        if end < 0:
            return end
        self._state.enter(TEXT)
        return pos


@lru_cache(maxsize=256)
def _next_in(row: Dialect) -> regex.Pattern[str] | None:
    """The closer (`end`) of this row's wrapper, or its next call."""
    return compiled(rf"(?P<end>{row.wrapper})|(?:{row.more or row.opens})") if row.wrapper else None


@lru_cache(maxsize=256)
def _marks(pattern: regex.Pattern[str]) -> frozenset[str]:
    return frozenset(each for each in first_characters(pattern.pattern) if not each.isspace())


@lru_cache(maxsize=256)
def _closer(shuts: str) -> regex.Pattern[str]:
    return compiled(rf"(?:{shuts})|(?:{CLOSER})" if shuts else CLOSER)


@lru_cache(maxsize=256)
def _after(shuts: str, wrapper: str = "") -> regex.Pattern[str]:
    """Closers, and brackets too many: dropped after a call."""
    common = rf"(?:{CLOSER})|\s{{0,200}}(?:{wrapper})|\}}" if wrapper else rf"(?:{CLOSER})|\}}"
    return compiled(rf"(?P<shut>{shuts})|{common}" if shuts else common)
