"""Redaction of the process's log, whatever handler and formatter print it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.redaction.redactor import Redactor


@contextmanager
def redacted_logs(redactor: Redactor) -> Iterator[None]:
    """Redact the message, arguments and traceback of every record.

    The record class does it: a filter would have to be installed on each present and future handler.
    """

    class RedactedRecord(logging.LogRecord):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if isinstance(self.args, tuple):  # a formatter may print them one by one
                self.args = tuple(redactor.redact(arg) if isinstance(arg, str) else arg for arg in self.args)
            if self.exc_info:
                trace = logging.Formatter().formatException(self.exc_info)
                if not redactor.is_plain(trace):
                    self.exc_text, self.exc_info = redactor.redact(trace), None

        def getMessage(self) -> str:
            return redactor.redact(super().getMessage())

    usual = logging.getLogRecordFactory()
    logging.setLogRecordFactory(RedactedRecord)
    try:
        yield
    finally:
        logging.setLogRecordFactory(usual)
