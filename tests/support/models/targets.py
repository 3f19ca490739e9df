"""Targets of scripted models, asked without any time going by."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from app.core.messages import Message
from app.core.provider import FallbackUsed, ModelRequest, Piece, Provider, ProviderFailed, ProviderNotice, TextChunk
from app.models.endpoints.failover import ModelRoute
from app.models.endpoints.model_handle import ModelHandle
from app.models.endpoints.retry_policy import Backoff
from app.models.endpoints.server_state import ServerState
from app.models.scripted import Raise, Reply, Scripted
from app.models.tokens.counter import TokenCounter

ASKED = ModelRequest([Message("user", "Hello")])
LIMIT_S = 30
WALL = 1_767_000_000.0  # Unix time at which a clock is at 0


@dataclass(slots=True)
class Time:
    """A clock that only waiting moves; `waits` are those that were asked for, `chance` is what all jitter is."""

    now: float = 1000.0
    chance: float = 1.0
    waits: list[float] = field(default_factory=list)

    @property
    def backoff(self) -> Backoff:
        return Backoff(lambda: self.now, self.sleep, lambda: self.chance, lambda: WALL + self.now)

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self.waits.append(round(seconds, 3))
        self.now += seconds
        await asyncio.sleep(0)

    def server(self, name: str, keys: Sequence[str] = (), max_requests: int | None = None) -> ServerState:
        return ServerState(name, keys, max_requests, now=lambda: self.now, clock=lambda: self.now)

    def handle(self, provider: Provider, server: ServerState | None = None, window: int | None = None) -> ModelHandle:
        server = server or self.server("local")
        return ModelHandle(server.name, provider, TokenCounter(provider, window), server=server)

    def route(self, *handles: ModelHandle, principal: str = "ann") -> ModelRoute:
        return ModelRoute(handles, principal, self.backoff)


def fails(
    status: int | None = None,
    code: str = "model_failed",
    *,
    retryable: bool = True,
    retry_after_s: float | None = None,
) -> Reply:
    """The model's server fails at once."""
    said = f"It failed with {status or code}."
    failure = ProviderFailed(code, said, retryable=retryable, status=status, retry_after_s=retry_after_s)
    return [Raise(failure)]


def model(*replies: Reply, name: str = "m") -> Scripted:
    return Scripted(replies, name)


async def heard(route: ModelRoute, request: ModelRequest = ASKED) -> list[Piece]:
    async with asyncio.timeout(LIMIT_S), aclosing(route.stream(request)) as pieces:
        return [piece async for piece in pieces]


def said(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextChunk))


def told(pieces: Sequence[Piece]) -> list[str]:
    """The codes of the notices, and whom was switched to, in order."""
    return [
        piece.code if isinstance(piece, ProviderNotice) else piece.answered_by
        for piece in pieces
        if isinstance(piece, ProviderNotice | FallbackUsed)
    ]
