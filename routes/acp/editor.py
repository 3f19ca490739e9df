"""The editor at the other end of standard input and output: frames, one JSON-RPC message a line, and nothing else."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from acp import RequestError, schema
from acp.connection import Connection, MethodHandler

from routes.acp.updates import Json

LONGEST = 64 * 1024 * 1024  # bytes of a frame: pictures of a prompt are in it
TOO_LONG = {"code": -32603, "message": "The answer is too long."}


class Editor:
    """The transport of the library's `Connection`, whose own ends at a frame that is no object."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.capabilities = schema.ClientCapabilities()
        self._reader = reader
        self._writer = writer
        self._asked: dict[asyncio.Task[Any] | None, int] = {}  # ids of requests, by the tasks that wait for them
        self._failed: list[Json] = []  # answers in place of one that was too long

    async def serve(self, handler: MethodHandler) -> None:
        """Answer requests until the editor leaves."""
        self._connection = Connection(handler, self, listening=False)
        try:
            await self._connection.main_loop()
        finally:
            await self._connection.close()

    def show(self, session: str, *updates: Json) -> None:
        for update in updates:
            self._put({"method": "session/update", "params": {"sessionId": session, "update": update}})

    async def request(self, method: str, **params: Any) -> Json:
        """The editor's answer. If the caller is cancelled, the request is. Raises RequestError, ConnectionError."""
        task = asyncio.current_task()
        try:
            answer = await self._connection.send_request(method, params)
        except asyncio.CancelledError:
            self._put({"method": "$/cancel_request", "params": {"requestId": self._asked.get(task)}})
            raise
        finally:
            self._asked.pop(task, None)
        return answer if isinstance(answer, dict) else {}

    def _put(self, message: Json) -> None:
        """ASCII: a lone surrogate of a model is valid JSON so."""
        frame = json.dumps({"jsonrpc": "2.0"} | message, separators=(",", ":"), default=str)
        self._writer.write(frame.encode() + b"\n")

    async def drain(self) -> None:
        """Wait until the editor reads. The library's protocol would cancel all that wait with one of them."""
        if self._writer.transport.get_write_buffer_size():
            await asyncio.shield(self._writer.drain())

    async def send(self, message: Json) -> None:
        if "method" in message and "id" in message:
            self._asked[asyncio.current_task()] = message["id"]
        self._put(message)
        await self.drain()

    async def receive(self) -> Json | None:
        """The next message that is one; others are answered with an error. None at the end."""
        while not self._failed:
            try:
                if not (line := await self._reader.readline()):
                    return None
            except ValueError:
                self._failed += [{"id": one, "error": TOO_LONG} for one in self._asked.values()]
                line = b""
            error = RequestError.parse_error()
            with suppress(ValueError, RecursionError):
                match json.loads(line):
                    case ({"method": str()} | {"id": int(), "result": _} | {"id": int(), "error": _}) as message:
                        return dict(message)
                error = RequestError.invalid_request()
            await self.send({"id": None, "error": error.to_error_obj()})
        return self._failed.pop()

    async def close(self) -> None:
        self._writer.close()
