"""The port: a socket that is taken before anything else is started."""

from __future__ import annotations

import os
import socket
from errno import EADDRINUSE

from app.config.settings import Settings

# The kernel would hold up to 4 MB for each reader that has stalled; the log is the buffer.
SEND_BUFFER = 256 * 1024


class CannotServe(Exception):
    """The server cannot start as configured. The message says what to do."""


def listen(settings: Settings) -> socket.socket:
    """The listening socket. Raises CannotServe."""
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        return listener
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        hint = ": is another dragoman running? Choose another port with --port, or --port 0 for a free one."
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise CannotServe(f"Cannot listen on {where} ({reason}){hint if error.errno == EADDRINUSE else '.'}") from error
