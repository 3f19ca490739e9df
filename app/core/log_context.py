"""The request and the run that code works for, for the log. Tasks inherit them from those that start them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from re import ASCII
from secrets import token_hex
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tools.base.patterns import lazy_pattern

REQUEST_ID = lazy_pattern(r"[\w.:-]{1,64}", ASCII)


class LogContext(Struct, frozen=True):
    """Ids of what a record is about; empty where there is none."""

    request: str = ""
    run: str = ""
    session: str = ""
    principal: str = ""


NO_CONTEXT = LogContext()
_context: ContextVar[LogContext] = ContextVar("log_context", default=NO_CONTEXT)


def log_context() -> LogContext:
    """Return the context of the code that runs now."""
    return _context.get()


def enter_request(given: str | None) -> None:
    """Work for a request from now on, with the id that a proxy has given it, if it has a usable one."""
    _context.set(LogContext(given if given and REQUEST_ID.fullmatch(given) else f"req_{token_hex(8)}"))


def enter_principal(name: str) -> None:
    """Add the principal of the request."""
    _context.set(replace(_context.get(), principal=name))


def task_of_run(work: Coroutine[Any, Any, None], run: str, session: str, principal: str) -> asyncio.Task[None]:
    """Start a task that works for a run."""
    context = copy_context()
    context.run(_context.set, replace(_context.get(), run=run, session=session, principal=principal))
    return asyncio.create_task(work, name=run, context=context)
