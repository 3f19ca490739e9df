"""The filter for the messages of one connection: repairs invalid parts, limits floods, then ends the connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, Self

from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from tools.mcp.connection.repair import repaired

# Unsolicited messages: rate and burst that pass, and dropped ones after which the connection ends.
PER_SECOND, BURST, TOO_MANY = 200.0, 2_000.0, 5_000
MOST_NOTES = 50  # on one result, which may be a list of thousands that are no tools


class Flooded(Exception):
    """The server sends too many unsolicited messages."""

    def __init__(self) -> None:
        super().__init__(
            f"it was disconnected: it sent too many unsolicited messages, more than {PER_SECOND:g} a second"
        )


class Traffic:
    """Pending requests, and a rate limit on unsolicited messages."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.junk = 0
        self.tasks: dict[str, asyncio.Event] = {}  # set when the server sends news of a task, by its id
        self.task_tools: Collection[str] = ()  # of 2025-11-25: called only as tasks
        self._note = note
        self._pending: dict[str, str] = {}
        self._left, self._at = BURST, time.monotonic()
        self._dropped = 0

    def record_sent(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            self._pending[str(message.id)] = message.method
            if message.method == "tools/call" and message.params and message.params.get("name") in self.task_tools:
                message.params["task"] = {}  # for which the SDK has no argument
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._pending.pop(str((message.params or {}).get("requestId")), None)

    def passes(self, message: JSONRPCMessage) -> bool:
        """Return whether the SDK gets a message. Raises Flooded."""
        match message:
            case JSONRPCResponse(id=id) if (method := self._pending.pop(str(id), None)) is not None:
                for note in repaired(method, message.result)[:MOST_NOTES]:
                    self._note(note)
                return True
            case JSONRPCError(id=id) if self._pending.pop(str(id), None) is not None:
                return True
            case JSONRPCNotification(params={"taskId": str(task)}) if task in self.tasks:
                self.tasks[task].set()
                return self.may_pass()
            case JSONRPCNotification() | JSONRPCRequest():
                return self.may_pass()
        self.may_pass()  # an answer to nothing
        return False

    def count_junk(self, line: bytes) -> None:
        """Count a line that is no message. Raises Flooded."""
        self.junk += 1
        if self.may_pass() and self.junk <= _SHOWN_JUNK:
            self._note(f"Not a message: {line[:200].decode('utf-8', 'replace')!r}")

    def may_pass(self) -> bool:
        """Return whether the limit admits one more unsolicited message. Raises Flooded."""
        now = time.monotonic()
        self._left, self._at = min(BURST, self._left + (now - self._at) * PER_SECOND), now
        if self._left >= 1:
            self._left -= 1
            if self._left >= BURST / 2:
                self._dropped = 0
            return True
        self._dropped += 1
        if self._dropped > TOO_MANY:
            raise Flooded
        return False

    def is_pending(self, id: str) -> bool:
        return id in self._pending

    def only_pending(self) -> str | None:
        """Return the only pending request; None when there are more, or none."""
        return next(iter(self._pending)) if len(self._pending) == 1 else None


_SHOWN_JUNK = 20


class Stream:
    """A stream of messages for the SDK, closed when its context is left."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


@asynccontextmanager
async def monitored(
    inner: Transport, traffic: Traffic, on_failure: Callable[[Exception], None]
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Open a transport, with its messages passing through `traffic`."""
    async with inner as (read, write):
        yield _Reader(read, traffic, on_failure), _Writer(write, traffic)


class _Stream(Stream):
    """The base of both directions."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Reader(_Stream):
    def __init__(self, inner: Any, traffic: Traffic, on_failure: Callable[[Exception], None]) -> None:
        super().__init__(inner)
        self._traffic = traffic
        self._on_failure = on_failure

    @property
    def last_context(self) -> Any:
        """The context of the last message, by which a server's request is matched to its call."""
        return getattr(self._inner, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            try:
                item: SessionMessage | Exception = await self._inner.__anext__()
            except StopAsyncIteration:
                self._on_failure(ConnectionError("the connection ended"))
                raise
            try:
                if isinstance(item, Exception) or self._traffic.passes(item.message):
                    return item
            except Flooded as flood:
                self._on_failure(flood)
                raise StopAsyncIteration from flood

    async def receive(self) -> SessionMessage | Exception:
        return await self.__anext__()


class _Writer(_Stream):
    def __init__(self, inner: Any, traffic: Traffic) -> None:
        super().__init__(inner)
        self._traffic = traffic

    async def send(self, item: SessionMessage, /) -> None:
        self._traffic.record_sent(item.message)
        await self._inner.send(item)
