"""The process's log: redacted where its records are made, so that no formatter can show a secret; and as JSON.

As JSON it is an object on each line, in ASCII, whatever a message holds.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from msgspec.structs import asdict

from app.core.log_context import log_context
from app.redaction.redactor import Redactor

ACCESS = "uvicorn.access"
ACCESS_FIELDS = ("client", "method", "path", "http_version", "status")
OWN = "dragoman"  # the logger of messages that are printed at every level
FLOORS = [__name__.rpartition("app.")[0] + floor for floor in ("routes", "app", "tools")]  # below OWN in a wheel
LEVELLED = (OWN, *FLOORS, "uvicorn")  # loggers that follow the setting below `warning`
TRACE = 5  # uvicorn's


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


class JsonFormatter(logging.Formatter):
    """Time (RFC 3339), level, logger, message, ids of request, run, session and principal, and a traceback.

    With the number of this worker, if it is one of several.
    """

    def __init__(self, worker: int = 0) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message_of(record),
        }
        fields |= {"worker": self._worker} if self._worker else {}
        fields |= {name: value for name, value in asdict(log_context()).items() if value}
        if record.name == ACCESS and isinstance(record.args, tuple) and len(record.args) == len(ACCESS_FIELDS):
            fields |= zip(ACCESS_FIELDS, record.args, strict=True)
        if trace := self._trace(record):
            fields["exception"] = trace
        if record.stack_info:
            fields["stack"] = record.stack_info
        return json.dumps(fields, default=str)

    def _trace(self, record: logging.LogRecord) -> str:
        if record.exc_text:  # of a record that was redacted
            return record.exc_text
        return self.formatException(record.exc_info) if record.exc_info else ""


def message_of(record: logging.LogRecord) -> str:
    """Return the message; of a record whose arguments do not fit it, the format: logging would print a traceback."""
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        return str(record.msg)


def log_as_json(level: str, worker: int = 0) -> None:
    """Write all that is logged in this process to stderr as JSON: warnings of Python and unforeseen errors, too."""
    _log_to_stderr(level, JsonFormatter(worker))
    logging.getLogger(OWN).setLevel(logging.INFO)
    logging.captureWarnings(True)
    sys.excepthook = _log_unforeseen
    threading.excepthook = _log_in_thread


def log_as_text(level: str, worker: int = 0) -> None:
    """Write messages to stderr, as Python does without any configuration, but from this level on."""
    _log_to_stderr(level, logging.Formatter(f"worker {worker}: %(message)s") if worker else None)


def _log_to_stderr(level: str, formatter: logging.Formatter | None) -> None:
    logging.addLevelName(TRACE, "TRACE")
    handler = logging.StreamHandler(sys.stderr)
    root = logging.getLogger()
    handler.setFormatter(formatter)
    root.handlers = [handler]
    lowest = logging.getLevelName(level.upper())
    root.setLevel(max(lowest, logging.WARNING))  # libraries log what messages and requests hold
    for name in LEVELLED:
        logging.getLogger(name).setLevel(lowest)


def _log_unforeseen(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger(OWN).critical("the process ends with an error", exc_info=(kind, error, trace))


def _log_in_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None:
        information = (failed.exc_type, failed.exc_value, failed.exc_traceback)
        logging.getLogger(OWN).error("a thread has ended with an error", exc_info=information)
