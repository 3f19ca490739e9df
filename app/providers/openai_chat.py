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
from app.provider import Ability, ModelRequest, Piece, Plain, ProviderFailed, Said
from app.providers.abilities import LIMIT_S, Abilities, Stated
from app.providers.added import added
from app.providers.answer import Answer
from app.providers.attached import Encoded, encoded_files
from app.providers.echo import Back, echo_of
from app.providers.http import authorization
from app.providers.http_stream import Question, Refused, ask, pieces_of
from app.providers.models import first_model
from app.providers.parameters import Parameters
from app.providers.profiles import profile_of
from app.providers.seals import origin_of
from app.providers.served import Endpoint
from app.providers.too_long import is_too_long
from app.providers.wire import BRIDGED, encode, wire_messages, wire_tools
from parsing import CallOpened, Thought

ANY_MODEL = "auto"
LOST = ("model_down", "model_cut")  # how a request fails whose server is gone
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

    What nobody has `stated` of the model is found out, and what its answers show is remembered: a server that refuses
    tools is asked again without them, once, and from then on they are taught in the prompt. The model `auto` is
    replaced by the server's first one when it first answers. `bare_results` is for models too small to read past a
    frame: in text, only untrusted results get one. With a `clock`, the user's messages end with the time they were
    sent.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        base_url: str,
        model: str = ANY_MODEL,
        key: str | None = None,
        *,
        stated: Stated | None = None,
        defaults: Defaults | None = None,
        bare_results: bool = False,
        clock: Clock | None = None,
        abilities: Abilities | None = None,
    ) -> None:
        self.base_url = base_url
        self.model = model
        self.key = key
        self._stated = stated or Stated()
        self._client = client
        self._defaults = defaults or Defaults()
        self._bare = bare_results
        self._clock = clock
        self._abilities = abilities or Abilities()
        self._parameters = Parameters(profile_of(base_url))

    @property
    def native_tools(self) -> bool:
        return self.ability("tools").value is not False

    @property
    def teach_fences(self) -> bool:
        return self.ability("tools").value is not True

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
            try:
                response = await self._open(request, native=native)
            except ToolsRefused as refusal:
                response = await self._open_taught(request, refusal)
            for told in self._parameters.news():
                yield told
            async with aclosing(pieces_of(response, Answer(self.url, self._back.origin), self.url)) as pieces:
                async for piece in pieces:
                    if type(piece) is not Said:
                        self._notice(piece)
                    yield piece
        except ProviderFailed as failure:
            if failure.code in LOST:
                self._abilities.doubt(self._about)
            raise

    def _notice(self, piece: Piece) -> None:
        """What an answer shows of the model."""
        match piece:
            case CallOpened() if self.ability("tools").value is not True:
                self.show("tools", True, "a native call")
            case Thought() if self.ability("prompt_suffix").value:
                self.show("prompt_suffix", "", "thoughts come apart")

    async def name_model(self) -> None:
        """Replace `auto` by the server's first model. Raises ProviderFailed if the server is down."""
        if self.model == ANY_MODEL:
            self.model = await first_model(self._client, self.base_url, self.key)

    async def window(self) -> int | None:
        """What was stated, else what the server says, which is asked in any case: it tells more than that."""
        endpoint = await self._endpoint()
        said = await self._abilities.window(endpoint) if endpoint else None
        return self._stated.window or said

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        endpoint = await self._endpoint()
        return await self._abilities.count(endpoint, texts) if endpoint else None

    def added(self, message: Message) -> str:
        echoed = self._back.echoed(message) if message.reasoning else ""
        return added(message, native=self.native_tools, bare=self._bare, clock=self._clock) + echoed

    def prompt_suffix(self) -> str:
        return str(self.ability("prompt_suffix").value or "")

    def ability(self, name: str) -> Ability:
        """As far as it is known by now."""
        return self._abilities.find(self._about, name, self._stated)

    def abilities(self) -> Sequence[Ability]:
        return self._abilities.rows(self._about, self._stated)

    def show(self, name: str, value: bool | str, detail: str) -> None:
        """An answer has shown it; `detail` says how."""
        self._abilities.show(self._about, name, value, detail)

    @property
    def _about(self) -> Endpoint:
        return Endpoint(self._client, self.base_url, self.model, self.key)

    async def _endpoint(self) -> Endpoint | None:
        """What to ask of the model's abilities; None while nobody can tell its name."""
        try:
            async with asyncio.timeout(LIMIT_S):
                await self.name_model()
        except (TimeoutError, ProviderFailed):
            return None
        return self._about

    async def close(self) -> None:
        await self._client.aclose()

    async def _open(self, request: ModelRequest, *, native: bool) -> httpx2.Response:
        """The response with its body still to be read, its status 200. Raises ToolsRefused and ProviderFailed."""
        files, key = await encoded_files(request), request.key or self.key
        while True:  # each further round leaves out a parameter for good, and there are few
            body = self._body(request, files, native=native)
            question = Question(self.url, encode(body), authorization(key), key, request.inactivity_s)
            try:
                return await ask(self._client, question)
            except Refused as refusal:
                if self._parameters.learn(refusal.status, refusal.said, body):
                    continue
                if native and self._stated.tool_calls == "auto" and refuses_tools(refusal.status, refusal.said):
                    raise ToolsRefused(refusal.status) from refusal
                raise refusal.failure() from refusal

    async def _open_taught(self, request: ModelRequest, refusal: ToolsRefused) -> httpx2.Response:
        """Ask again without tools, with a prompt that teaches them. A server that still refuses had another reason."""
        self.show("tools", False, str(refusal))
        taken = False
        try:
            response = await self._open(request, native=False)
            taken = True
        finally:
            if not taken:
                self._abilities.unshow(self._about, "tools")
        return response

    def _body(self, request: ModelRequest, files: Encoded, *, native: bool) -> dict[str, Any]:
        limits = [limit for limit in (request.max_tokens, self._defaults.max_tokens) if limit is not None]
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
        }
        tools = {"tools": wire_tools(request.tools)} if native else {}
        return body | tools | self._parameters.fields(self.model, min(limits, default=None), temperature)


class ToolsRefused(Exception):
    """The server does not take `tools`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status} for tools")


def refuses_tools(status: int, said: str) -> bool:
    if is_too_long(said):
        return False
    return status in BAD_REQUEST or (status in OTHER_REFUSALS and "tool" in said.lower())
