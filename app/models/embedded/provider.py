"""Provider of the embedded model: starts it on first use, and retries once on a restarted child."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

from msgspec.structs import replace

from app.core.endpoint_spec import ToolGrammar
from app.core.messages import Message
from app.core.provider import Ability, BaseProvider, CallForm, ModelRequest, Piece, ProviderFailed
from app.models.capabilities.abilities import LIMIT_S, AbilityCache, AbilityOverrides
from app.models.embedded.supervisor import EmbeddedModel
from app.models.http.client import ModelClient
from app.models.http.served_model import ServedModel
from app.models.wire.hosted_provider import SERVER_LOST, RequestDefaults
from app.models.wire.openai.history import added
from app.models.wire.openai.provider import BareChat

# A small model loses the thread at higher temperatures, and repeats itself without a token limit.
DEFAULTS = RequestDefaults(max_tokens=1024, temperature=0.0)


class EmbeddedProvider(BaseProvider):
    """Provider of an EmbeddedModel, started on first use; `close` closes the client and the model."""

    call_form = CallForm.FENCED

    def __init__(
        self,
        client: ModelClient,
        server: EmbeddedModel,
        *,
        temperature: float | None = None,
        tool_grammar: ToolGrammar = "auto",
    ) -> None:
        self.model = server.weights.name
        self._client = client
        self._server = server
        self._abilities = AbilityCache()
        self._overrides = AbilityOverrides("fenced", tool_grammar=tool_grammar)
        self._chat: BareChat | None = None  # of the child that runs now
        self._defaults = DEFAULTS if temperature is None else replace(DEFAULTS, temperature=temperature)

    @property
    def continues(self) -> bool:
        return (url := self._server.url) is not None and self._chat_at(url).continues

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Stream the answer; retry once if the child died before the first token. Raises ProviderFailed."""
        url = await self._server.start()
        answer = stream_or_retry(url, lambda at: self._chat_at(at).stream(request), self._server.successor)
        async with aclosing(answer) as pieces:
            async for piece in pieces:
                yield piece

    @asynccontextmanager
    async def direct(self) -> AsyncGenerator[ServedModel, None]:
        """The server and the model, for requests apart from runs. Raises ProviderFailed."""
        yield ServedModel(self._client, await self._server.start(), self.model, self._server.key)

    async def window(self) -> int | None:
        chat = await self._ready()
        return await chat.window() if chat else None

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        chat = await self._ready()
        return await chat.count_tokens(texts) if chat else None

    def added(self, message: Message) -> str:
        return added(message, bare=True)

    def abilities(self) -> Sequence[Ability]:
        """Return the abilities that the server reports; tools are taught in the prompt in any case."""
        url = self._server.url
        return self._abilities.rows(ServedModel(self._client, url, self.model, self._server.key)) if url else ()

    async def close(self) -> None:
        await self._client.aclose()
        await self._server.close()

    async def _ready(self) -> BareChat | None:
        try:
            async with asyncio.timeout(LIMIT_S):
                return self._chat_at(await self._server.start())
        except (TimeoutError, ProviderFailed):
            return None

    def _chat_at(self, url: str) -> BareChat:
        if self._chat is None or (self._chat.base_url, self._chat.key) != (url, self._server.key):
            self._chat = BareChat(
                self._client,
                url,
                self.model,
                self._server.key,
                overrides=self._overrides,
                defaults=self._defaults,
                abilities=self._abilities,
            )
        return self._chat


async def stream_or_retry(
    url: str,
    stream: Callable[[str], AsyncGenerator[Piece, None]],
    successor: Callable[[str], Awaitable[str | None]],
) -> AsyncGenerator[Piece, None]:
    """Stream from the process at `url`; retry once on its successor if it died before the first piece.

    Raises ProviderFailed.
    """
    started = False
    try:
        async with aclosing(stream(url)) as pieces:
            async for piece in pieces:
                started = True
                yield piece
        return
    except ProviderFailed as failure:
        if started or failure.code not in SERVER_LOST:
            raise
        replaced = await successor(url)
        if replaced is None:
            raise
    async with aclosing(stream(replaced)) as pieces:
        async for piece in pieces:
            yield piece
