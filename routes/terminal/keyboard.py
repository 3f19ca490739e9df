"""The keys of a terminal: what was typed before the prompt was there, and pastes of any length.

The prompt shows a long paste as one word, and sends it whole.
"""

from __future__ import annotations

import fcntl
import re
import struct
import termios
from collections.abc import Callable

from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from routes.texts import text

END = "\x1b[201~"  # of a bracketed paste
ESCAPE_S = 0.1  # after a lone Esc: what follows later begins no sequence
ESCAPE = Keys.F24  # the lone Esc, so that it needs no second wait for keys such as Alt-Enter
MOST_LINES, MOST_CHARACTERS = 8, 1_000  # of a paste that is shown as it is


def unread(fd: int) -> int:
    """The bytes that wait at a terminal: whole lines, while it still edits them itself."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0])
    except OSError:
        return 0


class Keyboard(Vt100Parser):
    """A parser of keys. Its base searches all that was pasted with each kilobyte, which takes minutes for 10 MB.

    The first `early` bytes were typed while the terminal wrote a line feed for Enter, which the prompt would take for
    Ctrl-J.
    """

    def __init__(self, feed_key_callback: Callable[[KeyPress], None], early: int = 0) -> None:
        super().__init__(feed_key_callback)
        self._early = early
        self._pasted: list[str] = []
        self._end = ""  # the last characters, which may begin the end mark

    def feed(self, data: str) -> None:
        if self._early:
            early, data = data[: self._early], data[self._early :]
            self._early = max(0, self._early - len(early.encode("utf-8", "surrogateescape")))
            data = early.replace("\n", "\r") + data
        if not self._in_bracketed_paste:
            super().feed(data)
            return
        at = (self._end + data).find(END)
        self._pasted.append(data)
        if at < 0:
            self._end = (self._end + data)[1 - len(END) :]
            return
        pasted, _, rest = "".join(self._pasted).partition(END)
        self._pasted, self._end, self._in_bracketed_paste = [], "", False
        self.feed_key_callback(KeyPress(Keys.BracketedPaste, pasted))
        self.feed(rest)

    def flush(self) -> None:
        """Take what has come as it is: a lone Esc is the key, a sequence that was cut off is none."""
        keys, take = list[KeyPress](), self.feed_key_callback
        self.feed_key_callback = keys.append
        super().flush()
        self.feed_key_callback = take
        alone = all(one.key is Keys.Escape for one in keys)
        for one in keys:
            take(KeyPress(ESCAPE, "") if alone else one)


class Pastes:
    """The pastes of one message."""

    def __init__(self) -> None:
        self._whole: dict[str, str] = {}

    def shown(self, pasted: str) -> str:
        """The paste as the prompt shows it: itself, or a word for it."""
        pasted = pasted.replace("\r\n", "\n").replace("\r", "\n")
        lines = pasted.count("\n") + 1
        if lines <= MOST_LINES and len(pasted) <= MOST_CHARACTERS:
            return pasted
        word = f"[{text('terminal.pasted', count=lines)}]"
        number = 1
        while word in self._whole and self._whole[word] != pasted:
            number += 1
            word = f"[{text('terminal.pasted', count=lines)} #{number}]"
        self._whole[word] = pasted
        return word

    def whole(self, message: str) -> str:
        """The message with its pastes in place of their words."""
        if not self._whole:
            return message
        words = "|".join(map(re.escape, sorted(self._whole, key=len, reverse=True)))
        return re.sub(words, lambda found: self._whole[found[0]], message)

    def forget(self) -> None:
        self._whole.clear()
