"""A pseudo-terminal of one command: its own, so that its input reaches no other terminal.

A command is never given the terminal that the server was started in. TIOCSTI and the like reach only the input of the
command itself.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios
from collections.abc import Mapping
from contextlib import suppress

from tools.base.screen import Window

# What a program does of its own accord on a terminal, and not on a pipe: page, prompt for passwords of other machines,
# ask before it goes on. The model reads the same in both; a person still answers what a program asks in any case.
_ENVIRONMENT: Mapping[str, str] = {
    **dict.fromkeys(("PAGER", "GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER"), "cat"),
    "LESS": "-EX +G",  # of a program that starts it by its path: the last page, and no wait for a key
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "npm_config_yes": "true",
}
# Into a pipe, pagers print all and wait for no key. Bash takes functions from variables of such names, which other
# shells do not pass on: they are set last.
_FUNCTIONS = (f'BASH_FUNC_{pager}%%=() {{  command {pager} "$@" | command cat\n}}' for pager in ("less", "more"))
# In a session of its own with the terminal as its controlling one: then keys such as Ctrl-C are signals. It becomes the
# command, unless it leads a session already.
SESSION = ("setsid", "--ctty", "--wait", "env", *_FUNCTIONS)
_IUTF8 = 0o40000


def environment_in(window: Window | None) -> dict[str, str]:
    """The variables of a command: in a terminal those for it, else a size for what formats tables.

    In a terminal a size in the environment would hide that the terminal is resized (ncurses reads that first).
    """
    size = Window()
    return dict(_ENVIRONMENT) if window else {"COLUMNS": str(size.width), "LINES": str(size.height)}


def _set_size(end: int, window: Window) -> None:
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", window.height, window.width, 0, 0))


class Terminal:
    """The server's end, `master`, and the command's. The caller that starts the command closes both."""

    def __init__(self, window: Window) -> None:
        self.master, self.slave = os.openpty()
        modes = termios.tcgetattr(self.slave)
        modes[0] |= _IUTF8  # backspace takes a whole character
        termios.tcsetattr(self.slave, termios.TCSANOW, modes)
        _set_size(self.slave, window)
        os.set_blocking(self.master, False)

    def resize(self, window: Window) -> None:
        """Give it another size; the programs in it are signalled. Nothing happens once the command has ended."""
        if self.master >= 0:
            _set_size(self.master, window)

    def write(self, data: bytes) -> int:
        """Type something; return how much of it the terminal took, which is nothing once the command has ended."""
        if self.master < 0:
            return 0
        with suppress(BlockingIOError):
            return os.write(self.master, data)
        return 0

    @property
    def hides_input(self) -> bool:
        """True while the program in it reads a line without showing it, as programs read passwords."""
        modes = termios.tcgetattr(self.master)[3] if self.master >= 0 else 0
        return modes & (termios.ICANON | termios.ECHO) == termios.ICANON

    def read(self, size: int) -> bytes:
        """Read what was printed; nothing once no process has the terminal. Raises BlockingIOError."""
        try:
            return os.read(self.master, size)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""

    def close(self) -> None:
        """Take no more input: the server's end is being closed."""
        self.master = -1
