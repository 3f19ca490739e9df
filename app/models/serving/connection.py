"""Connection of an endpoint to its served model, which runs while it is needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager

import httpx2

from app.core.clock import Clock
from app.core.endpoint_spec import SERVED, EndpointSpec
from app.core.provider import ModelRequest, Piece, Provider, ProviderFailed
from app.models.capabilities.abilities import LIMIT_S, overrides_of
from app.models.embedded.provider import stream_or_retry
from app.models.http.client import INACTIVITY_S, ModelClient, TransportKind, model_client
from app.models.http.served_model import ServedModel
from app.models.serving.pool import Member, ModelPool
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.openai.provider import OpenAIChat

# The address of a server that does not run; port 9 is for discarding.
ASLEEP = "http://127.0.0.1:9/v1"
SILENT = "model_silent"  # code of the failure of a server that sends nothing

logger = logging.getLogger(__name__)


class ServedChat(OpenAIChat):
    """Provider of a served model: starts it for a request, and retries once on a restarted process."""

    def __init__(self, client: ModelClient, member: Member, spec: EndpointSpec, clock: Clock | None) -> None:
        super().__init__(
            client,
            ASLEEP,
            member.model,
            overrides=overrides_of(spec),
            defaults=RequestDefaults(None, spec.temperature),
            clock=clock,
        )
        self._member = member

    @property
    def leaves_calls(self) -> bool:
        return True  # as every llama.cpp does, whatever its port

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        async with self._member.use() as url:
            answer = stream_or_retry(url, lambda at: self._stream_from(at, request), self._member.successor)
            try:
                async with aclosing(answer) as pieces:
                    async for piece in pieces:
                        yield piece
            except ProviderFailed as failure:
                if failure.code == SILENT:
                    await self._end_hung()
                raise

    async def _end_hung(self) -> None:
        """Kill a process that lives and answers nothing, not even for its health; it is replaced."""
        process = self._member.process
        url = self._member.url
        if not process or not url:
            return
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._client.get(f"{url.removesuffix('/v1')}/health")
        except (TimeoutError, httpx2.HTTPError):
            logger.warning("model %s is restarted: its process hangs", self._member.name)
            process.kill(url)

    def _stream_from(self, url: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        self._point_to(url)
        return super().stream(request)

    @asynccontextmanager
    async def direct(self) -> AsyncGenerator[ServedModel, None]:
        async with self._member.use() as url:
            self._point_to(url)
            yield self._about

    async def window(self) -> int | None:
        """Return the context of the row. Starts the server, if that takes no longer than a probe, for its abilities."""
        try:
            async with asyncio.timeout(LIMIT_S), self._member.use() as url:
                self._point_to(url)
                return await super().window()
        except (TimeoutError, ProviderFailed):
            return self._overrides.window

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        if (url := self._member.url) is None:
            return None
        self._point_to(url)
        return await super().count_tokens(texts)

    def _point_to(self, url: str) -> None:
        """Send requests to the process of now, whose port and key are its own."""
        process = self._member.process
        key = process.key if process else None
        if (url, key) != (self.base_url, self.key):
            self.base_url, self.key = url, key
            self._named = None
            self._found = {}


class ServedConnection:
    """The one model of an endpoint, from the file of its row."""

    where = ", served from its file"

    def __init__(self, pool: ModelPool, spec: EndpointSpec, clock: Clock | None, transport: TransportKind) -> None:
        name = spec.url.removeprefix(SERVED)
        client = model_client(ASLEEP, inactivity_s=spec.inactivity_s or INACTIVITY_S, transport=transport)
        self.member = pool.member(name, spec.default_model or name)
        self.only = (self.member.model,)
        self._pool = pool
        self._provider = ServedChat(client, self.member, spec, clock)
        self.member.begin(only_at_start=True)

    @property
    def awake(self) -> bool:
        return self.member.url is not None

    def provider(self, _model: str | None) -> Provider:
        return self._provider

    async def start(self) -> None:
        """Start now if the row says so, else only look whether there is a row. Raises ProviderFailed."""
        if (await self._pool.row(self.member.name)).at_start:
            async with self.member.use():
                return

    async def models(self, _key: str | None) -> list[str]:
        return list(self.only)

    async def close(self) -> None:
        await self.member.close()
        await self._provider.close()
