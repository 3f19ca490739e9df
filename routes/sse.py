"""A run's log as Server-Sent Events: `id:` is the sequence number, `event:` the type, `data:` the JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from sse_starlette import EventSourceResponse, ServerSentEvent

from app.runs import Runs
from app.store import EventRow, RunRow

PING_S = 15
HEADERS = {"Cache-Control": "no-cache, no-transform"}


def frame(row: EventRow) -> str:
    return f"id: {row.seq}\nevent: {row.type}\ndata: {row.data}\n\n"


async def frames(runs: Runs, run: str, after: int) -> AsyncGenerator[bytes, None]:
    """What is there at once leaves at once, as one piece."""
    async with aclosing(runs.watch(run, after)) as pages:
        async for rows in pages:
            yield "".join(map(frame, rows)).encode()


def event_stream(runs: Runs, row: RunRow, after: int = 0) -> EventSourceResponse:
    """The response only reads the log: a client that leaves does not stop the run."""
    return EventSourceResponse(
        frames(runs, row.id, after),
        headers=HEADERS | {"X-Run-Id": row.id, "X-Session-Id": row.session},
        ping=PING_S,
        ping_message_factory=lambda: ServerSentEvent(comment="ping", sep="\n"),
    )
