"""A question to a model server and its streamed answer: what all wire formats share, every fault a ProviderFailed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

import httpx2

from app.core.provider import Piece, ProviderFailed
from app.models.http import failures
from app.models.http.client import CLOSED
from app.models.http.retry_after import retry_after_s

DRAIN_S = 0.05
MAX_COMPLAINT_BYTES = 64 * 1024


class Reader(Protocol):
    """Makes pieces of the body of a 200 answer, sans-IO."""

    @property
    def done(self) -> bool:
        """Nothing more will come."""
        ...

    @property
    def whole(self) -> bool:
        """The model has said why it stopped: what may still come is usage."""
        ...

    def feed(self, data: bytes) -> Iterator[Piece]:
        """The pieces that these bytes complete. Raises ProviderFailed."""
        ...

    def close(self) -> Iterable[Piece]:
        """The pieces that were held until the end. Raises ProviderFailed if the answer is not whole."""
        ...


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What is POSTed. `key` is what no complaint may repeat; `inactivity_s` how long the server may be silent, if not
    as long as the client allows."""

    url: str
    content: bytes
    headers: Mapping[str, str] = field(repr=False)
    key: str | None = field(default=None, repr=False)
    inactivity_s: float | None = None


class RequestRefused(Exception):
    """The server answered with another status than 200. `said` is the beginning of its answer, without the key."""

    def __init__(self, url: str, status: int, said: str, retry_after_s: float | None) -> None:
        super().__init__(status)
        self.url = url
        self.status = status
        self.said = said
        self.retry_after_s = retry_after_s

    def failure(self) -> ProviderFailed:
        return failures.bad_status(self.url, self.status, self.said, self.retry_after_s)


async def post(client: httpx2.AsyncClient, question: CompletionRequest) -> httpx2.Response:
    """The response with its body still to be read, its status 200. Raises Refused and ProviderFailed."""
    headers = {"content-type": "application/json", "accept": "text/event-stream", **question.headers}
    asked = client.build_request("POST", question.url, content=question.content, headers=headers)
    if question.inactivity_s is not None:
        asked.extensions["timeout"]["read"] = question.inactivity_s
    try:
        response = await send_with_retry(client, asked)
        if response.status_code == 200:
            return response
        said = await error_text(response, question.key)
    except httpx2.HTTPError as error:
        raise failure_of(error, question.url) from error
    raise RequestRefused(question.url, response.status_code, said, retry_after_s(response.headers, time.time()))


async def send_with_retry(client: httpx2.AsyncClient, asked: httpx2.Request) -> httpx2.Response:
    """Send it, and once more if the connection had been closed: servers end those that were idle without a word."""
    try:
        return await client.send(asked, stream=True)
    except CLOSED:
        return await client.send(asked, stream=True)


async def error_text(response: httpx2.Response, key: str | None) -> str:
    """What a refusal says, its first 64 KiB at most, without the key if the server repeats it."""
    said = b""
    try:
        async with aclosing(response.aiter_bytes()) as blocks:
            async for block in blocks:
                said += block
                if len(said) >= MAX_COMPLAINT_BYTES:
                    break
    finally:
        await response.aclose()
    text = said.decode("utf-8", "replace")
    return text.replace(key, "***") if key else text


async def read_pieces(response: httpx2.Response, reader: Reader, url: str) -> AsyncGenerator[Piece, None]:
    """What the reader makes of the body. Raises ProviderFailed."""
    async with aclosing(response.aiter_bytes()) as blocks:
        try:
            async for block in blocks:
                for piece in reader.feed(block):
                    yield piece
                if reader.done:
                    await drain(blocks)
                    break
        except httpx2.HTTPError as error:
            if not reader.whole:
                raise failure_of(error, url, begun=True) from error
    for piece in reader.close():
        yield piece


async def drain(blocks: AsyncIterator[bytes]) -> None:
    """Read to the end, which follows the last event at once, so that the connection can be used again."""
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in blocks:
                pass
    except (TimeoutError, httpx2.HTTPError):
        return  # the answer is whole; only the connection is not worth keeping


def failure_of(error: httpx2.HTTPError, url: str, *, begun: bool = False) -> ProviderFailed:
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.UnsupportedProtocol():
            return failures.unreachable(url, str(error))
        case httpx2.TimeoutException():
            return failures.silent(url, error.request.extensions["timeout"]["read"])
        case _:
            when = "in the middle" if begun else "before it began"
            return failures.interrupted(url, f"the connection was lost {when} ({error or type(error).__name__})")
