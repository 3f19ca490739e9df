"""The first process of a bubblewrap box, held by a handle from before the command begins.

When it ends, the kernel ends everything inside, however that has hidden; so it is what is killed at the end of a
command. bubblewrap's own `--die-with-parent` is a setting of that process, which code inside might undo.
Imported by every job's supervisor, so that it stays light.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
from collections.abc import Sequence
from contextlib import suppress

TERM_S = 2.0  # between TERM and KILL: a handler of one second finishes its work

_PID = re.compile(rb'"child-pid": (\d+)\D')


class BoxInit:
    """bubblewrap reports its first process on one pipe, and waits on another before it starts the command."""

    def __init__(self) -> None:
        self.messages, info = os.pipe()
        wait, self._release = os.pipe()
        self._info_end, self._block_end = map(moved, (info, wait))
        os.set_blocking(self.messages, False)
        self.handle: int | None = None
        self._received = b""

    @property
    def fds(self) -> tuple[int, int]:
        """bubblewrap's ends; `words` name them."""
        return self._info_end, self._block_end

    def words(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the words of a bubblewrap that gets its ends by `pass_fds`."""
        return (argv[0], "--info-fd", str(self._info_end), "--block-fd", str(self._block_end), *argv[1:])

    def inherited(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the words of a bubblewrap that inherits its ends."""
        for end in self.fds:
            os.set_inheritable(end, True)
        return self.words(argv)

    def started(self) -> None:
        """Close bubblewrap's ends, which it has inherited."""
        for end in self.fds:
            os.close(end)
        self._info_end = self._block_end = -1

    def receive(self) -> bool:
        """Read `messages`; release the command once the first process is held. True once that is settled."""
        with suppress(BlockingIOError):
            block = os.read(self.messages, 4096)
            self._received += block
            if found := _PID.search(self._received):
                # Both processes wait, so the process id cannot have been reused.
                with suppress(ProcessLookupError):
                    self.handle = os.pidfd_open(int(found[1]))
                with suppress(BrokenPipeError):
                    os.write(self._release, b"1")
                return True
            return not block
        return False

    def kill(self) -> None:
        """Kill the first process; harmless when it has ended."""
        if self.handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)

    def gone(self, seconds: float = 0.0) -> bool:
        """Wait until nothing runs inside, at most so long; return whether it does. False when there was no handle."""
        return self.handle is not None and bool(select.select([self.handle], [], [], seconds)[0])

    def close(self) -> None:
        """Close all descriptors."""
        for end in (self.messages, self._info_end, self._block_end, self._release, self.handle):
            if end is not None and end >= 0:
                os.close(end)
        self.messages = self._info_end = self._block_end = self._release = -1
        self.handle = None


def moved(end: int) -> int:
    """Move a descriptor away from the numbers under which a command, or what starts it, gets its files."""
    moved = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 64)
    os.close(end)
    return moved
