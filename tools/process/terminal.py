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

# A pager or an editor would wait for keys that are never pressed.
ENVIRONMENT: Mapping[str, str] = {"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "SYSTEMD_PAGER": "cat"}
# In a session of its own with the terminal as its controlling one: then keys such as Ctrl-C are signals. It becomes the
# command, unless it leads a session already.
SESSION = ("setsid", "--ctty", "--wait")
_IUTF8 = 0o40000


class Terminal:
    """The server's end, `master`, and the command's. The caller that starts the command closes both."""

    def __init__(self, window: Window) -> None:
        self.master, self.slave = os.openpty()
        modes = termios.tcgetattr(self.slave)
        modes[0] |= _IUTF8  # backspace takes a whole character
        termios.tcsetattr(self.slave, termios.TCSANOW, modes)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", window.height, window.width, 0, 0))
        os.set_blocking(self.master, False)

    def write(self, data: bytes) -> int:
        """Type something; return how much of it the terminal took, which is nothing once the command has ended."""
        if self.master < 0:
            return 0
        with suppress(BlockingIOError):
            return os.write(self.master, data)
        return 0

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
