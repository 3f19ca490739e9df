"""The lines that a server prints about itself: for a person, or as records where the log is JSON."""

from __future__ import annotations

import logging
import sys

from msgspec import Struct

from app.redaction.logs import OWN

_log = logging.getLogger(OWN)


class Announcements(Struct, frozen=True):
    """`as_records`: all of it goes to the log."""

    as_records: bool = False

    def state(self, text: str) -> None:
        """Print a fact that is always of interest."""
        if self.as_records:
            _log.info(text)
        else:
            print(text, flush=True)

    def advise(self, text: str) -> None:
        """Print advice for a person at a terminal. It may hold the local token, so it is no record."""
        if not self.as_records:
            print(text, flush=True)

    def warn(self, text: str) -> None:
        if self.as_records:
            _log.warning(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def fail(self, text: str) -> None:
        """Print why the server cannot start."""
        if self.as_records:
            _log.critical(text)
        else:
            print(f"dragoman: {text}", file=sys.stderr)
