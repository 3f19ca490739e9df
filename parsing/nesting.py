"""The end of bracketed text: strings and brackets followed from piece to piece, each character looked at once."""

from __future__ import annotations

import re
from functools import lru_cache

_PAIRS = {"}": "{", "]": "[", ")": "("}
_CLOSERS = {opener: closer for closer, opener in _PAIRS.items()}
_SPACE = re.compile(r"\s*")
# The text in a string, up to the quote that may close it or to a backslash at the end of the buffer.
_INSIDE = {quote: re.compile(rf"[^{quote}\\]*+(?:\\.[^{quote}\\]*+)*+", re.DOTALL).match for quote in "\"'"}
_ODD = frozenset("<`✿;[")  # no value has these outside its strings
_STRUCTURE = frozenset("\"'{}[](),:")
_WORD_LIMIT = 200

MORE = "more"  # `hit`: what follows must be seen together with what comes next


class Nesting:
    """Follows one value from its opening bracket on.

    `advance` stops after each mark at a depth of at most `watch`: a bracket, a comma, a colon, a closed string (`hit`
    is then '"'), and behind an extra delimiter that opens a string. It stops in front of a character that no value has
    outside its strings, and in front of text that it must see whole (`hit` is MORE). `hit` is empty at the end of the
    buffer. `word` is the last string or bare word at a watched depth. `marks` are further
    characters that no value has outside its strings: closers begin with them.
    """

    def __init__(
        self,
        watch: int,
        *,
        quotes: str = "\"'",
        strings: tuple[str, ...] = (),
        marks: frozenset[str] = frozenset(),
    ) -> None:
        self.watch = watch
        self.depth = 0
        self.hit = ""
        self.foreign = False  # `hit` stands in front of the position, not behind it
        self.word = ""
        self.at_key = False
        self.unsettled = ""  # the quote that may have closed a string: what follows it decides
        self._quotes = quotes
        self._strings = strings
        self._odd, self._shallow, self._deep = _runs(marks)
        self._stack: list[str] = []
        self._open = {"{": 0, "[": 0, "(": 0}
        self._quote = ""
        self._escaped = False
        self._filled = False  # a value has just ended
        self.doubtful = False  # a quote was taken for a part of its string: it may have been another one
        self.ends_in_text = False  # nothing but closing brackets stands behind the last string
        self._seen = 0  # unescaped quotes
        # Where the last string was closed: its quote, and whether it was a key; how many of the brackets that were open
        # there still are, and the others, the innermost first. To copy them at each string would take quadratic time.
        self._closed: tuple[str, bool] | None = None
        self._kept = 0
        self._popped: list[str] = []

    @property
    def stop(self) -> str:
        """The one character that can matter here, but for a backslash at the end of a piece. Empty: all can."""
        return "" if not self._quote or self._escaped or self._captures() else self._quote[0]

    @property
    def delimiter(self) -> str:
        """The extra string delimiter that closes the open string. Empty outside of such strings."""
        return self._quote if self._quote in self._strings else ""

    @property
    def closers(self) -> str:
        """The brackets that close what is open, the last one first."""
        return "".join(_CLOSERS[opener] for opener in reversed(self._stack))

    @property
    def in_string(self) -> bool:
        """Inside a string of JSON: its quote has not been seen again."""
        return self._quote == '"'

    def advance(self, buf: str, pos: int) -> int:
        self.hit = ""
        self.foreign = False
        size = len(buf)
        while pos < size and not self.hit:
            if self._quote:
                pos = self._inside(buf, pos)
            elif self.unsettled:
                pos = self._settle(buf, pos)
            else:
                pos = self._outside(buf, pos)
        return pos

    def pass_head(self) -> None:
        """Stand in an object behind a key and its colon; a key and a string before them were plain as well."""
        self._push("{")
        self._close('"', key=False)  # a key goes on nowhere
        self._seen += 6
        self.at_key = self._filled = False

    def settle(self, closed: bool) -> None:
        """Decide about the last quote: it closed its string, or was a part of it."""
        if self.unsettled and not closed:
            self._quote = self.unsettled
            self.doubtful = True
        self.unsettled = ""

    @property
    def balanced(self) -> bool:
        """Return whether the quotes come in pairs, as those of strings and of the code in them do."""
        return self._seen % 2 == 0

    def forget(self) -> None:
        """Begin another value: the strings of this one are decided."""
        self.doubtful = self.ends_in_text = False
        self._closed = None

    def reopen(self) -> bool:
        """Take the quote that closed the last string, and all since, for a part of its text. Return whether it can."""
        if self._closed is None:
            return False
        self._quote, self.at_key = self._closed
        self._closed = None
        self._stack[self._kept :] = reversed(self._popped)
        self._open = {bracket: self._stack.count(bracket) for bracket in self._open}
        self.depth = len(self._stack)
        self.doubtful = True
        return True

    def _close(self, quote: str, *, key: bool) -> None:
        """Remember where a string was closed."""
        self._closed = (quote, key)
        self._kept = len(self._stack)
        self._popped.clear()

    def _captures(self) -> bool:
        return self.depth <= self.watch and len(self.word) < _WORD_LIMIT

    def _keep(self, buf: str, start: int, end: int) -> None:
        if self.depth <= self.watch and len(self.word) < _WORD_LIMIT:
            self.word += buf[start : min(end, start + _WORD_LIMIT - len(self.word))]

    def _inside(self, buf: str, pos: int) -> int:
        run = _INSIDE.get(self._quote)
        if run is None:
            return self._delimited(buf, pos)
        match = run(buf, pos + 1 if self._escaped else pos)
        end = match.end() if match else pos
        self._escaped = end < len(buf) and buf[end] == "\\"
        if self.depth <= self.watch:
            self._keep(buf, pos, end + 1 if self._escaped else end)
        if self._escaped:
            return end + 1
        if end < len(buf):
            self._seen += 1
            self.unsettled, self._quote = self._quote, ""
            return end + 1
        return end

    def _delimited(self, buf: str, pos: int) -> int:
        end = buf.find(self._quote, pos)
        if end >= 0:
            end += len(self._quote)
            self._quote = ""
            return end
        kept = held(buf, pos, self._quote)
        self.hit = MORE if kept < len(buf) else ""
        return kept

    def _settle(self, buf: str, pos: int) -> int:
        """A quote closes its string only before what may follow a string there."""
        after, char = pos, buf[pos]
        if char.isspace():
            match = _SPACE.match(buf, pos)
            after = match.end() if match else pos
            if after == len(buf):
                return after
            char = buf[after]
        deep = self.depth > self.watch  # where keys and values are not distinguished
        ends = ",:=}])" if deep else ":=" if self.at_key else ",}])"
        if char in ends and (char not in _PAIRS or self._open[_PAIRS[char]]):
            if char not in ":=":  # a key goes on nowhere
                self._close(self.unsettled, key=self.at_key)
            self.ends_in_text = char in _PAIRS
            self.unsettled = ""
            self.hit = '"' if self.depth <= self.watch else ""
        elif char in self._odd:
            self.foreign = True
            self.hit = char
        else:
            self.settle(closed=False)
        return after

    def _outside(self, buf: str, pos: int) -> int:
        shallow = self.depth <= self.watch
        match = (self._shallow if shallow else self._deep).match(buf, pos)
        end = match.end() if match else pos
        if end > pos:
            if shallow:
                self._keep(buf, pos, end)
            if run := buf[pos:end].rstrip():
                self._filled = run[-1] not in ",:="
        if end == len(buf):
            return end
        char = buf[end]
        if (char == "[" and self._filled) or (char in _PAIRS and not self._open[_PAIRS[char]]):
            self.foreign = True  # no value goes on like this: a closer, perhaps
            self.hit = char
            return end
        if self._strings and char not in _STRUCTURE and char not in self._quotes:
            return self._string_token(buf, end)
        self._filled = char in _PAIRS or char in "\"'"
        if char in self._quotes:
            self._quote, self.word = char, ""
            self._seen += 1
        elif char in self._open:
            self._push(char)
        elif char in _PAIRS:
            self._pop(char)
        elif char in ",:":
            self.ends_in_text = False
            self.at_key = char == "," and self._stack[-1:] == ["{"]
            self.hit = char if shallow else ""
            self.word = "" if char == "," else self.word
        elif char in "\"'":
            return end + 1
        else:
            self.foreign = True
            self.hit = char
            return end
        return end + 1

    def _string_token(self, buf: str, pos: int) -> int:
        for token in self._strings:
            if buf.startswith(token, pos):
                self._quote = "" if self._filled else token  # it closes a bare text: its opener was forgotten
                self._filled = False
                self.hit = self._quote
                return pos + len(token)
            if token.startswith(buf[pos:]):
                self.hit = MORE
                return pos
        self.foreign = True
        self.hit = buf[pos]
        return pos

    def _push(self, char: str) -> None:
        self._stack.append(char)
        self._open[char] += 1
        self.depth += 1
        self.at_key = char == "{"
        self.word = ""
        self.hit = char if self.depth <= self.watch + 1 else ""

    def _pop(self, char: str) -> None:
        opener = _PAIRS[char]
        while True:  # closers that were forgotten in between are proven by this one
            popped = self._stack.pop()
            if len(self._stack) < self._kept:
                self._kept -= 1
                self._popped.append(popped)
            self._open[popped] -= 1
            self.depth -= 1
            if popped == opener:
                break
        self.at_key = False
        self.hit = char if self.depth <= self.watch else ""


@lru_cache(maxsize=64)
def _runs(marks: frozenset[str]) -> tuple[frozenset[str], re.Pattern[str], re.Pattern[str]]:
    """The odd characters, and the runs without any mark where keys and values are distinguished, and elsewhere."""
    odd = _ODD | {each for each in marks if not each.isspace() and each not in "\"'{}[](),:="}
    within = "\"'{}[]()" + "".join(sorted(odd))
    return odd, re.compile(f"[^{re.escape(within + ',:')}]*"), re.compile(f"[^{re.escape(within)}]*")


def held(buf: str, pos: int, token: str) -> int:
    """The start of the longest end of `buf` that may be the beginning of `token`."""
    for start in range(max(pos, len(buf) - len(token) + 1), len(buf)):
        if token.startswith(buf[start:]):
            return start
    return len(buf)
