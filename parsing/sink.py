"""The sink of the readers: numbered events, under the names that the tools really have."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from io import StringIO
from typing import Any

from parsing.events import Arguments, BadCall, Call, CallDelta, CallOpened, ParseEvent, Text
from parsing.fitting import read_arguments
from parsing.matching import CLOSER, compiled

Tools = Mapping[str, Mapping[str, Any]]
RAW_LIMIT = 4096
PIECES = 1024  # of a block that are kept as they came: a piece of a few characters takes ten times their memory
_FIRST_WORD = re.compile(r"\w[^\s<>\"'=(){}\[\],;]*")
_TOKEN = re.compile(r"\s*<[|｜][^<>\n]{0,60}[|｜]>")
_PREFIXES = ("functions.", "default_api.", "functions:", "tools.")


def offered_name(written: str, tools: Tools) -> str:
    """Return the name as it is, or without a prefix, a doubling or tokens if only that is offered."""
    if written in tools:
        return written
    if token := _TOKEN.search(written):  # the words behind it are a header's
        written = written[: token.start()] or _TOKEN.sub("", written)
    name = written.strip().strip("\"'`").strip()
    if name in tools:
        return name
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    half, dot, rest = name.partition(".")
    return half if dot and half == rest else name


class Sink:
    """Collects the events of one reply. A call's index is used up when it ends, well or badly."""

    __slots__ = (
        "closer", "dialect", "disqualified", "events", "index", "is_cut", "is_open", "made", "muted", "pseudo",
        "stop_cut", "tools", "whole",
    )  # fmt: skip

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.events: list[ParseEvent] = []
        self.index = 0
        self.made = 0  # calls, and rejected ones, that have not turned out to be drafts
        self.is_open = False
        self.dialect = ""
        self.whole = False  # only a whole message of offered calls will do, so nothing is shown as it comes
        self.disqualified = False  # and something else has been seen
        self.pseudo: tuple[str, ...] = ()  # names in the open block that are no tools
        self.is_cut = False  # the message was cut: what only its end would complete is not whole
        self.stop_cut = False  # the closer of the last call was the engine's stop string: it is missing
        self.muted = False  # the open call is of one
        self.closer = compiled(CLOSER)  # the patterns that may end the open block

    def offers(self, written: str) -> bool:
        return offered_name(written, self.tools) in self.tools

    def may_offer(self, text: str) -> bool:
        """Return whether a message that begins with `text` may still begin with an offered name."""
        match = _FIRST_WORD.match(text)
        if match is None or any(map(match.group().__contains__, self.tools)):
            return True
        if match.end() < len(text):
            return False
        begun = next((match.group().removeprefix(each) for each in _PREFIXES if text.startswith(each)), match.group())
        return any(name.startswith(begun) for name in (*self.tools, *_PREFIXES))

    def schema(self, written: str) -> Mapping[str, Any]:
        return self.tools.get(offered_name(written, self.tools), {})

    def open(self, written: str) -> None:
        """A call of this tool has surely begun."""
        if written in self.pseudo and not self.offers(written):
            self.muted = True
        elif not self.is_open:
            self.is_open = True
            self.events.append(CallOpened(self.index, offered_name(written, self.tools)))

    def delta(self, text: str) -> None:
        """A further piece of the open call's arguments."""
        if text and not self.whole and not self.muted:
            self.events.append(CallDelta(self.index, text))

    def is_whole(self, at_end: bool) -> bool:
        """Return whether a call that the end of the message leaves without a closer is whole.

        `at_end`: its form needs none, but then the message must not have been cut.
        """
        return self.stop_cut or (at_end and not self.is_cut)

    def call(self, written: str, arguments: Arguments) -> None:
        if not written.strip():
            self.bad("", NO_NAME)
            return
        self.open(written)
        if self.muted:
            self.muted = False
            self.events += [Text(each) for each in arguments.values() if isinstance(each, str) and each]
            return
        self.disqualified = self.disqualified or (self.whole and not self.offers(written))
        name = offered_name(written, self.tools)
        fitted, repairs = read_arguments(arguments, self.tools.get(name, {}))
        self.events.append(Call(self.index, name, fitted, self.dialect, repairs))
        self._next()

    def bad(self, raw: str, reason: str) -> None:
        self.muted = False
        self.events.append(BadCall(self.index, raw[:RAW_LIMIT], reason))
        self.disqualified = self.whole
        self._next()

    def _next(self) -> None:
        self.index += 1
        self.made += 1
        self.is_open = False

    def rewind(self, index: int) -> None:
        """Forget the events since the call with this index."""
        self.events.clear()
        self.made -= self.index - index
        self.index = index
        self.is_open = self.whole = self.disqualified = False

    def taken(self) -> list[ParseEvent]:
        """The events since the last time."""
        events, self.events = self.events, []
        return events


class Excerpts:
    """The beginning of each block as it was written, by the index of each of its calls.

    `closers` has the marks behind a block that only end it, by the index of its last call.
    """

    __slots__ = ("_block", "_first", "_most", "_pieces", "by_index", "closers", "room")

    def __init__(self, most: int) -> None:
        self._most = most  # characters of each
        self.by_index: dict[int, str] = {}
        self.closers: dict[int, list[str]] = {}  # in pieces: a text can have any number
        self.room = 0  # characters of the open block that are still kept
        self._block = StringIO()  # as far as it has been joined
        self._pieces: list[str] = []  # of it, behind that
        self._first = 0  # index of its first call

    def open(self, index: int, opening: str) -> None:
        """Keep the text from here on, whatever it turns out to be."""
        self._first = index
        self._clear()
        self.room = self._most
        self.keep(opening)

    def keep(self, text: str) -> None:
        self._pieces.append(text[: self.room])
        self.room = max(0, self.room - len(text))
        if len(self._pieces) >= PIECES:
            self._block.write("".join(self._pieces))
            self._pieces.clear()

    def close(self, index: int) -> None:
        """File the block under its calls: `index` is that of the next one."""
        raw = self._block.getvalue() + "".join(self._pieces)
        self.by_index |= dict.fromkeys(range(self._first, index), raw)
        self._clear()

    def _clear(self) -> None:
        self._block = StringIO()
        self._pieces.clear()

    def extend(self, index: int, text: str) -> None:
        """Keep what stands behind a call as well."""
        kept = self.by_index.get(index, "")
        self.closers.pop(index, None)
        self.by_index[index] = (kept + text)[: self._most]

    def close_behind(self, index: int, closer: str) -> None:
        """Keep a mark that stands behind a block."""
        self.closers.setdefault(index, []).append(closer)

    def drop(self, first: int, end: int) -> None:
        """Forget the calls from `first` to `end`."""
        for index in range(first, end):  # not all there are: drafts are as many as a text likes
            self.by_index.pop(index, None)
            self.closers.pop(index, None)


class Reader(ABC):
    """Reads one block, from the end of its opener on.

    `read` takes all it can of `buf` from `pos` and returns where it stopped: at the end, or at text that it must see
    together with what comes next. It is fed again from there. `done`: the block ends where `read` stopped.
    `stop` is the one character that can matter at present: a piece without it, and without a backslash at its end,
    may be given to `take` whole, and is shown as it comes if the reader `streams`. An empty `stop` is in every piece.
    `cut`: the message ended inside the block.
    """

    def __init__(self, sink: Sink) -> None:
        self.done = False
        self.refused = False
        self.streams = False
        self.stop = ""
        self._sink = sink
        self._parts: list[str] = []
        self.take = self._parts.append

    @abstractmethod
    def read(self, buf: str, pos: int, last: bool) -> int: ...

    @abstractmethod
    def cut(self) -> None: ...

    def _show(self, text: str) -> None:
        """Take a piece of the arguments that is shown as it comes."""
        if text:
            self._parts.append(text)
            self._sink.delta(text)


NO_NAME = "This call names no tool, so it was not run. Send it again with the tool's name."
CUT = "The message ended inside this call, so it was not run. Send the whole call again, shorter if need be."
TOO_LONG = "This call is too long to be read, so it was not run. Split the work into several smaller calls."
