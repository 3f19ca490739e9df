"""A model behind HTTP, whatever its wire format: what nobody has stated of it is found out and remembered."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import httpx2

from app.core.clock import Clock
from app.core.provider import Ability, BaseProvider, ModelRequest, Piece, ProviderFailed, TextChunk
from app.models.capabilities.abilities import LIMIT_S, AbilityCache, AbilityOverrides
from app.models.capabilities.model_list import first_model
from app.models.capabilities.server_profiles import profile_of
from app.models.http import failures
from app.models.http.client import authorization
from app.models.http.exchange import Reader, RequestRefused, read_pieces
from app.models.http.prompt_too_long import is_too_long
from app.models.http.served_model import ServedModel
from app.models.wire.parameters import Parameters, is_about_others
from parsing import CallOpened, Thought

ANY_MODEL = "auto"
SERVER_LOST = ("model_down", "model_cut")  # how a request fails whose server is gone
# Besides these, an answer that speaks of tools says that the server takes none (llama.cpp: 500, gateways: 404).
BAD_REQUEST = (400, 422)
OTHER_REFUSALS = (404, 500, 501)


@dataclass(frozen=True, slots=True)
class RequestDefaults:
    """What a request asks for when it does not say. None leaves it to the server."""

    max_tokens: int | None = None
    temperature: float | None = None


class HostedProvider(BaseProvider, ABC):
    """The part of a Provider that knows its model and its server. `close` closes the client.

    What nobody has `stated` of the model is found out, and what its answers show is remembered: a server that refuses
    tools is asked again without them, once, and from then on they are taught in the prompt. The model `auto` is
    replaced by the server's first one when it first answers. `list_query` asks for all of the server's list of models.
    With a `clock`, the user's messages end with the time they were sent.
    """

    list_query = ""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        base_url: str,
        model: str = ANY_MODEL,
        key: str | None = None,
        *,
        stated: AbilityOverrides | None = None,
        defaults: RequestDefaults | None = None,
        clock: Clock | None = None,
        abilities: AbilityCache | None = None,
    ) -> None:
        self.base_url = base_url
        self.model = model
        self.key = key
        self._client = client
        self._stated = stated or AbilityOverrides()
        self._defaults = defaults or RequestDefaults()
        self._clock = clock
        self._abilities = abilities or AbilityCache()
        self._named: ServedModel | None = None  # by the name that the model had
        self._parameters = Parameters(profile_of(base_url))

    @property
    def native_tools(self) -> bool:
        return self.ability("tools").value is not False

    @property
    def teach_fences(self) -> bool:
        return self.ability("tools").value is not True

    @property
    def calls_natively(self) -> bool:
        return self._stated.tool_calls == "native"

    @property
    def leaves_calls(self) -> bool:
        """By its address, or because it counts tokens as only these servers do, wherever they are."""
        return profile_of(self.base_url).leaves_calls or self.ability("counting").value is not None

    @staticmethod
    def headers(key: str | None) -> Mapping[str, str]:
        """What the server knows its users by."""
        return authorization(key)

    @property
    @abstractmethod
    def url(self) -> str:
        """Where requests are sent to."""

    @abstractmethod
    async def _ask(self, request: ModelRequest, *, native: bool) -> tuple[httpx2.Response, Reader]:
        """The response with its body still to be read, its status 200, and what reads it.

        Raises ToolsRefused and ProviderFailed.
        """

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """The answer, as it comes, and remembered what it shows of the model. Raises ProviderFailed."""
        await self.name_model()
        noticed: set[type[Piece]] = {TextChunk}
        try:
            response, reader = await self._open(request)
            try:
                for told in self._parameters.news():
                    yield told
                async with aclosing(read_pieces(response, reader, self.url)) as pieces:
                    async for piece in pieces:
                        if type(piece) not in noticed:  # each kind once: there may be one for each token
                            noticed.add(type(piece))
                            self._notice(piece)
                        yield piece
            finally:
                await response.aclose()
        except ProviderFailed as failure:
            if failure.code in SERVER_LOST:
                self._abilities.doubt(self._about)
            raise

    async def name_model(self) -> None:
        """Replace `auto` by the server's first model. Raises ProviderFailed if the server is down."""
        if self.model == ANY_MODEL:
            self.model = await first_model(self._client, self.base_url, headers=self.headers(self.key))

    async def window(self) -> int | None:
        """What was stated, else what the server says, which is asked in any case: it tells more than that."""
        endpoint = await self._endpoint()
        said = await self._abilities.window(endpoint) if endpoint else None
        return self._stated.window or said

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        endpoint = await self._endpoint()
        return await self._abilities.count(endpoint, texts) if endpoint else None

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

    async def close(self) -> None:
        await self._client.aclose()

    async def _open(self, request: ModelRequest) -> tuple[httpx2.Response, Reader]:
        try:
            return await self._ask(request, native=self.native_tools and bool(request.tools))
        except ToolsRefused as refusal:
            return await self._ask_taught(request, refusal)

    async def _ask_taught(self, request: ModelRequest, refusal: ToolsRefused) -> tuple[httpx2.Response, Reader]:
        """Ask again without tools, with a prompt that teaches them. A server that still refuses had another reason."""
        known, taken = self.ability("tools"), False
        self.show("tools", False, str(refusal))
        try:
            asked = await self._ask(request, native=False)
            taken = True
        finally:
            if not taken:
                self._abilities.unshow(self._about, "tools")
                if known.source == "answer" and known.value:
                    self.show("tools", True, known.detail)
        return asked

    def _refusal(self, refusal: RequestRefused, *, native: bool) -> Exception:
        """What a refusal means that nothing could be left out for."""
        if native and self._stated.tool_calls == "auto" and refuses_tools(refusal.status, refusal.text):
            return ToolsRefused(refusal.status)
        return refusal.failure()

    def _notice(self, piece: Piece) -> None:
        match piece:
            case CallOpened() if (known := self.ability("tools")).source == "answer" or not known.value:
                self.show("tools", True, "a native call")  # again: it is not forgotten while it goes on
            case Thought() if self.ability("prompt_suffix").value:
                self.show("prompt_suffix", "", "thoughts come apart")

    @property
    def _about(self) -> ServedModel:
        if self._named is None or self._named.model != self.model:
            headers = self.headers(self.key)
            self._named = ServedModel(
                self._client, self.base_url, self.model, headers=headers, list_query=self.list_query
            )
        return self._named

    async def _endpoint(self) -> ServedModel | None:
        """What to ask of the model's abilities; None while nobody can tell its name."""
        try:
            async with asyncio.timeout(LIMIT_S):
                await self.name_model()
        except (TimeoutError, ProviderFailed):
            return None
        return self._about


class ToolsRefused(Exception):
    """The server does not take `tools`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status} for tools")


def refuses_tools(status: int, said: str) -> bool:
    if is_too_long(said) or failures.UNREADABLE_CALL in said or is_about_others(said, "tool"):
        return False
    return status in BAD_REQUEST or (status in OTHER_REFUSALS and "tool" in said.lower())
