"""Requests to MCP servers, as an observer of the host sees them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from msgspec import Struct

from tools.tool import Context


class Operation(Struct, frozen=True):
    """A request to a server. `target` is the name of a tool, empty for other methods; `context` is the call's.

    `url` is empty for a server that is a process.
    """

    server: str
    url: str
    protocol: str
    method: str
    target: str
    context: Context


class OperationEnd(Struct):
    """The end of an operation: `error` is `tool_error` or a code of JSON-RPC; None after a success.

    Any other exception passes through the context manager.
    """

    error: str | None = None
    status_code: int | None = None


ObserveOperation = Callable[[Operation], AbstractContextManager[OperationEnd]]
"""Surrounds an operation, in a task of its own. On leaving, the end says what became of it."""
