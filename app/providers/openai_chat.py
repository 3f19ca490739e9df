"""Any server that speaks OpenAI's chat completions, streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx2

from app.clock import Clock
from app.messages import Message
from app.provider import ModelRequest, Piece, Plain, ProviderFailed
from app.providers.abilities import LIMIT_S, Abilities, Endpoint
from app.providers.added import added
from app.providers.answer import Answer
from app.providers.attached import Encoded, encoded_files
from app.providers.echo import Back, echo_of
from app.providers.http import authorization
from app.providers.http_stream import Question, Refused, ask, pieces_of
from app.providers.models import first_model
from app.providers.seals import origin_of
from app.providers.too_long import is_too_long
from app.providers.wire import BRIDGED, encode, wire_messages, wire_tools

ANY_MODEL = "auto"
# Besides these, an answer that speaks of tools says that the server takes none (llama.cpp: 500, gateways: 404).
BAD_REQUEST = (400, 422)
OTHER_REFUSALS = (404, 500, 501)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a request asks for when it does not say. None leaves it to the server."""

    max_tokens: int | None = None
    temperature: float | None = None


class OpenAIChat(Plain):
    """A Provider. `base_url` ends before `/chat/completions`; `close` closes the client.

    A server that refuses tools is asked again without them, once, and from then on `native_tools` is False and
    `teach_fences` True. The model `auto` is replaced by the server's first one when it first answers. `bare_results`
    is for models too small to read past a frame: in text, only untrusted results get one. With a `clock`, the user's
    messages end with the time they were sent.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        base_url: str,
        model: str = ANY_MODEL,
        key: str | None = None,
        *,
        native_tools: bool = True,
        teach_fences: bool | None = None,
        defaults: Defaults | None = None,
        bare_results: bool = False,
        clock: Clock | None = None,
        abilities: Abilities | None = None,
    ) -> None:
        self.base_url = base_url
        self.model = model
        self.key = key
        self._native_tools = native_tools
        self.teach_fences = not native_tools if teach_fences is None else teach_fences
        self._client = client
        self._defaults = defaults or Defaults()
        self._bare = bare_results
        self._clock = clock
        self._abilities = abilities or Abilities()

    @property
    def native_tools(self) -> bool:
        return self._native_tools

    @property
    def url(self) -> str:
        return f"{self.base_url}/chat/completions"

    @property
    def _back(self) -> Back:
        return Back(origin_of(self.model, self.base_url), echo_of(self.model))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """The answer, as it comes. Raises ProviderFailed."""
        await self.name_model()
        native = self.native_tools and bool(request.tools)
        try:
            response = await self._open(request, native=native)
        except ToolsRefused:
            response = await self._open_taught(request)
        async with aclosing(pieces_of(response, Answer(self.url, self._back.origin), self.url)) as pieces:
            async for piece in pieces:
                yield piece

    async def name_model(self) -> None:
        """Replace `auto` by the server's first model. Raises ProviderFailed if the server is down."""
        if self.model == ANY_MODEL:
            self.model = await first_model(self._client, self.base_url, self.key)

    async def window(self) -> int | None:
        endpoint = await self._endpoint()
        return await self._abilities.window(endpoint) if endpoint else None

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        endpoint = await self._endpoint()
        return await self._abilities.count(endpoint, texts) if endpoint else None

    def added(self, message: Message) -> str:
        echoed = self._back.echoed(message) if message.reasoning else ""
        return added(message, native=self.native_tools, bare=self._bare, clock=self._clock) + echoed

    async def _endpoint(self) -> Endpoint | None:
        """What to ask of the model's abilities; None while nobody can tell its name."""
        try:
            async with asyncio.timeout(LIMIT_S):
                await self.name_model()
        except (TimeoutError, ProviderFailed):
            return None
        return Endpoint(self._client, self.base_url, self.model, self.key)

    async def close(self) -> None:
        await self._client.aclose()

    async def _open(self, request: ModelRequest, *, native: bool) -> httpx2.Response:
        """The response with its body still to be read, its status 200. Raises ToolsRefused and ProviderFailed."""
        files = await encoded_files(request)
        key, content = request.key or self.key, encode(self._body(request, files, native=native))
        question = Question(self.url, content, authorization(key), key, request.inactivity_s)
        try:
            return await ask(self._client, question)
        except Refused as refusal:
            if native and refuses_tools(refusal.status, refusal.said):
                raise ToolsRefused from refusal
            raise refusal.failure() from refusal

    async def _open_taught(self, request: ModelRequest) -> httpx2.Response:
        """Ask again without tools, with a prompt that teaches them. A server that still refuses had another reason."""
        before = self.native_tools, self.teach_fences
        self._native_tools, self.teach_fences = False, True
        try:
            return await self._open(request, native=False)
        except ProviderFailed:
            self._native_tools, self.teach_fences = before
            raise

    def _body(self, request: ModelRequest, files: Encoded, *, native: bool) -> dict[str, Any]:
        max_tokens = request.max_tokens if request.max_tokens is not None else self._defaults.max_tokens
        temperature = request.temperature if request.temperature is not None else self._defaults.temperature
        body = {
            "model": self.model,
            "messages": wire_messages(
                request.whole(),
                native=native,
                bare=self._bare,
                clock=self._clock,
                back=self._back,
                bridged=bool(BRIDGED.search(self.model)),
                files=files,
            ),
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": wire_tools(request.tools) if native else None,
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        return {name: value for name, value in body.items() if value is not None}


class ToolsRefused(Exception):
    """The server does not take `tools`."""


def refuses_tools(status: int, said: str) -> bool:
    if is_too_long(said):
        return False
    return status in BAD_REQUEST or (status in OTHER_REFUSALS and "tool" in said.lower())
