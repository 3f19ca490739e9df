"""Send a completion request and stream its answer: shared by all wire formats; every error becomes ProviderFailed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from math import isfinite

import httpx2

from app.core.provider import Piece, ProviderFailed, TakeText, TextChunk
from app.core.time_slice import CHARACTERS, HEAVY, TimeSlice, in_heavy_thread, parts
from app.models.http import failures
from app.models.http.answer_stream import AnswerStream
from app.models.http.client import CompletionRequest, ModelClient, retried
from app.models.http.transport.lean import LeanResponse
from parsing import CallDelta, Thought

DRAIN_S = 0.05
MAX_ERROR_BYTES = 64 * 1024


class RequestRefused(Exception):
    """The server answered with a status other than 200. `text` is the start of its answer, with the key redacted."""

    def __init__(self, status: int, text: str, failure: ProviderFailed) -> None:
        super().__init__(status)
        self.status = status
        self.text = text
        self.failure = failure


async def post(client: ModelClient, request: CompletionRequest) -> httpx2.Response:
    """Return a response with status 200 and an unread body. Raises RequestRefused and ProviderFailed."""
    try:
        response = await retried(partial(client.send_completion, request))
        if response.status_code == 200:
            return response
        text = await error_text(response, request.key)
    except httpx2.HTTPError as error:
        raise failure_of(error, request.url) from error
    status = response.status_code
    failure = failures.bad_status(request.url, status, text, retry_after_s(response.headers, time.time()))
    raise RequestRefused(status, text, failure)


async def error_text(response: httpx2.Response, key: str | None) -> str:
    """Return at most 64 KiB of an error response, with the key redacted."""
    data = b""
    try:
        async with aclosing(response.aiter_bytes()) as blocks:
            async for block in blocks:
                data += block
                if len(data) >= MAX_ERROR_BYTES:
                    break
    finally:
        await response.aclose()
    text = data.decode("utf-8", "replace")
    return text.replace(key, "***") if key else text


async def read_pieces(
    response: httpx2.Response, reader: AnswerStream, take_text: TakeText | None = None
) -> AsyncGenerator[Piece, None]:
    """Yield the pieces that the reader decodes from the body, except for text that was taken. Raises ProviderFailed.

    However much has arrived, other tasks get their turns while it is read and handled.
    """
    if take_text and isinstance(response, LeanResponse):
        response.tap(partial(reader.offer, take_text))
    time_slice = TimeSlice()
    async with aclosing(response.aiter_bytes()) as blocks:
        try:
            async for block in blocks:
                for part in parts(block):
                    for piece in small(reader.feed(part)):
                        yield piece
                        await time_slice.pause_if_over()
                    await time_slice.pause_if_over()
                if reader.done:
                    if not (isinstance(response, LeanResponse) and response.received):
                        await drain(blocks)
                    break
        except httpx2.HTTPError as error:
            if not reader.whole:
                raise failure_of(error, reader.url, started=True) from error
    is_heavy = reader.size > HEAVY  # the arguments of native calls are decoded
    for piece in small(await in_heavy_thread(reader.close) if is_heavy else reader.close()):
        yield piece
        await time_slice.pause_if_over()


def small(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the pieces, long texts in several: handling one does not give up the event loop."""
    for piece in pieces:
        if not isinstance(piece, TextChunk | Thought | CallDelta) or len(piece.text) <= CHARACTERS:
            yield piece
            continue
        for at in range(0, len(piece.text), CHARACTERS):
            text = piece.text[at : at + CHARACTERS]
            yield CallDelta(piece.index, text) if isinstance(piece, CallDelta) else type(piece)(text)


async def drain(blocks: AsyncIterator[bytes]) -> None:
    """Read to the end, which usually follows the last event at once, so that the connection can be reused."""
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in blocks:
                pass
    except (TimeoutError, httpx2.HTTPError):
        return  # the answer is complete; only the connection is not reused


def failure_of(error: httpx2.HTTPError, url: str, *, started: bool = False) -> ProviderFailed:
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.UnsupportedProtocol():
            return failures.unreachable(url, str(error))
        case httpx2.TimeoutException():
            return failures.silent(url, error.request.extensions["timeout"]["read"])
        case _:
            when = "in the middle" if started else "before it began"
            return failures.interrupted(url, f"the connection was lost {when} ({error or type(error).__name__})")


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds from `now` (Unix time); None without a valid header.

    Milliseconds come first: servers that send them also send the seconds, rounded up.
    """
    if milliseconds := _number(headers.get("retry-after-ms")):
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    return _until(value, now) if value and seconds is None else seconds


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if isfinite(value) and value >= 0 else None


def _until(date: str, now: float) -> float | None:
    """Return the seconds until an HTTP date; 0 if it has passed."""
    try:
        at = parsedate_to_datetime(date)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)  # of the zone -0000
        return max(0.0, at.timestamp() - now)
    except (ValueError, OverflowError, OSError):
        return None
