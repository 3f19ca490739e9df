"""uvicorn's flow control of a connection, in a third of its memory."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http import flow_control


class FlowControl(flow_control.FlowControl):
    """The event is made when the client reads too slowly: each connection would have one, of 700 bytes."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False

    async def drain(self) -> None:
        if self.write_paused:
            await self._is_writable_event.wait()

    def pause_writing(self) -> None:
        if not self.write_paused:
            self.write_paused = True
            self._is_writable_event = asyncio.Event()

    def resume_writing(self) -> None:
        if self.write_paused:
            self.write_paused = False
            self._is_writable_event.set()
