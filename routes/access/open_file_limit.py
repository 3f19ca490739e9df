"""The limit of open files: a word in the log when it is reached.

The event loop says nothing then: it resets new connections (uvloop), or takes no more for a while (asyncio). So the
server tries to open a file now and then, which is sure, and takes some microseconds.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
from collections.abc import Callable

LOOK_S = 0.5
SCARCE = (errno.EMFILE, errno.ENFILE)  # of this process, of the whole machine
REACHED = (
    "the limit of open files is reached (%s): new connections are reset, and files cannot be opened. "
    "Close connections, or raise it (ulimit -Hn, LimitNOFILE= in systemd)"
)
logger = logging.getLogger(__name__)


class OpenFileLimit:
    """Logs each episode once, its begin and its end. `open_file` is called and its descriptor closed again."""

    def __init__(self, open_file: Callable[[], int] = lambda: os.open(os.devnull, os.O_RDONLY)) -> None:
        self._open_file = open_file
        self._is_reached = False

    async def watch_forever(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        try:
            os.close(self._open_file())
        except OSError as error:
            if error.errno in SCARCE and not self._is_reached:
                self._is_reached = True
                soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                logger.error(REACHED, f"{soft:,} in this process" if error.errno == errno.EMFILE else "of the machine")
            return
        if self._is_reached:
            self._is_reached = False
            logger.warning("open files are below their limit again")
