"""The stdio transport: one line is one message, and an invalid line is skipped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from tools.base.patterns import lazy_pattern
from tools.base.texts import without_surrogates
from tools.mcp.call_context import current_call
from tools.mcp.connection.child import Child
from tools.mcp.connection.lines import MAX_LINE, Oversized, answered_id
from tools.mcp.connection.server_log import ServerLog
from tools.mcp.connection.traffic import Flooded, Stream, Traffic
from tools.mcp.model import ServerConfig
from tools.process.process_tree import run_shielded

_BURST = 16  # messages at a time, before others have their turn
_ENDS = 4_096
_SURROGATE = lazy_pattern(rb"\\u[dD][89a-fA-F]")


class Stdio:
    """A transport for the SDK's client: entering starts the process, leaving ends it and all its children."""

    def __init__(self, config: ServerConfig, traffic: Traffic, log: ServerLog, on_close: Callable[[str], None]) -> None:
        self.child = Child(log, on_close)
        self._config = config
        self._traffic = traffic
        self._log = log

    async def __aenter__(self) -> tuple[_Inbox, _Outbox]:
        self._log.begin()
        try:
            await self.child.start(self._config)
        except BaseException:
            await run_shielded(self.child.end())
            raise
        return _Inbox(self.child, self._traffic), _Outbox(self.child)

    async def __aexit__(self, *_: object) -> None:
        # A scope that was cancelled cancels again and again; shielded, it waits for the process once.
        with anyio.CancelScope(shield=True):
            await run_shielded(self.child.end())


class _Inbox(Stream):
    """The messages that the server writes."""

    def __init__(self, child: Child, traffic: Traffic) -> None:
        self._child = child
        self._traffic = traffic
        self._taken = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while True:
            self._taken += 1
            if self._taken % _BURST == 0:
                await asyncio.sleep(0)
            line = self._child.take()
            if line is None:
                if self._child.closed:
                    raise StopAsyncIteration
                await self._child.woken.wait()
                continue
            try:
                message = self._message(line)
                if message is not None:
                    return SessionMessage(message)
            except Flooded as flood:
                self._child.end_of_lines(str(flood))
                raise StopAsyncIteration from flood

    async def receive(self) -> SessionMessage:
        try:
            return await self.__anext__()
        except StopAsyncIteration as error:
            raise anyio.EndOfStream from error

    def _message(self, line: bytes | Oversized) -> JSONRPCMessage | None:
        if isinstance(line, Oversized):
            why = f"its answer has {line.size:,} bytes, and at most {MAX_LINE:,} are read: ask for less"
            return self._failed(line.head, line.tail, why)
        if not line.strip():
            return None
        try:
            read = _read(line)
            if _SURROGATE.search(line):
                read = without_surrogates(read)
            return jsonrpc_message_adapter.validate_python(read, by_name=False)
        except (ValueError, RecursionError, ValidationError):
            return self._failed(line[:_ENDS], line[-_ENDS:], "its answer could not be read")

    def _failed(self, head: bytes, tail: bytes, why: str) -> JSONRPCError | None:
        """Return an error in place of an invalid response, if its request is known."""
        id = answered_id(head, tail)
        if id is None or not self._traffic.is_pending(id):
            looks_like_one = b'"result"' in head or b'"result"' in tail
            id = self._traffic.only_pending() if looks_like_one else None
        if id is None:
            self._traffic.count_junk(head)
            return None
        return JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=INTERNAL_ERROR, message=why))

    async def aclose(self) -> None:
        self._child.end_of_lines("the reader was closed")


def _read(line: bytes) -> Any:
    try:
        return json.loads(line)
    except UnicodeDecodeError:
        return json.loads(line.decode("utf-8", "replace"))


class _Outbox(Stream):
    """The messages to the server. Sending never waits, so a server that does not read blocks nothing."""

    def __init__(self, child: Child) -> None:
        self._child = child

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        call = current_call.get()
        try:
            self._child.write(line.encode() + b"\n")
        except BrokenPipeError as error:
            if call:
                call.unsent = not call.sent
            raise anyio.BrokenResourceError from error
        if call:
            call.sent = True

    async def aclose(self) -> None:
        """Do nothing: leaving the transport ends the process."""
