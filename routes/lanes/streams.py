"""A run of a lane on its way to the client: streamed as the lane's frames, or collected into one answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, suppress
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from app.core.events import TERMINAL, ApprovalRequired
from app.runs.connections import NotAllowedAnyMore, OpenStream
from app.storage.runs import EventRow
from routes.lanes.answer import Answer
from routes.lanes.lane import Encoder
from routes.protocol.sse import Last, expire, pieces

Pages = AsyncGenerator[Sequence[EventRow], None]


class Left(Exception):
    """The client has left."""


async def lane_frames(
    pages: Pages, encoder: Encoder, attended: AbstractContextManager[None], parting: str = ""
) -> AsyncGenerator[bytes, None]:
    """The frames of a run's events, together where they are small, and the lane's `parting` if the run goes on.

    `attended` is entered meanwhile.
    """
    with attended:
        async with aclosing(pages):
            async for rows in pages:
                mark_last = partial(_mark_last, encoder, rows[-1])
                for piece in pieces(_frames(rows, encoder), mark_last):
                    yield piece
                if encoder.over or rows[-1].type in TERMINAL:
                    return
    if parting:
        yield Last(parting.encode())


def _mark_last(encoder: Encoder, row: EventRow, piece: bytes) -> bytes:
    return Last(piece) if encoder.over or row.type in TERMINAL else piece


def _frames(rows: Sequence[EventRow], encoder: Encoder) -> Iterator[str]:
    for row in rows:
        yield encoder.frames(row)
        if encoder.over:
            return


async def collected(pages: Pages, receive: Receive, place: OpenStream, *, asks: bool) -> Answer:
    """The whole answer; that so far, if the run waits for an approval and the client `asks` for those.

    Raises Left, or NotAllowedAnyMore if the place is closed.
    """
    answer = Answer()
    try:
        async with asyncio.timeout(None) as until, aclosing(pages):
            place.cut = partial(expire, until)
            place.check()
            leaving = asyncio.create_task(watch_leaving(receive, place.cut))
            try:
                await _collect(pages, answer, asks=asks)
            finally:
                leaving.cancel()
                with suppress(asyncio.CancelledError):
                    await leaving
    except TimeoutError:
        if not until.expired():
            raise
        if place.closed:
            raise NotAllowedAnyMore from None
        raise Left from None
    return answer


async def _collect(pages: Pages, answer: Answer, *, asks: bool) -> None:
    async for rows in pages:
        for row in rows:
            answer.add(row)
            if asks and row.type == ApprovalRequired.type:
                return
    if not (answer.reason or answer.failure):  # the run goes on, but not here
        answer.reason = "server_stopped"


async def watch_leaving(receive: Receive, end: Callable[[], None]) -> None:
    """Call `end` when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
    end()


async def until_left(request: Request, answer: Awaitable[Response]) -> Response:
    """The answer; it is cancelled once the client has left, and then nothing reads what is returned."""
    try:
        async with asyncio.timeout(None) as until:
            leaving = asyncio.create_task(watch_leaving(request.receive, partial(expire, until)))
            try:
                return await answer
            finally:
                leaving.cancel()
    except TimeoutError:
        if not until.expired():
            raise
        return Response(status_code=204)
