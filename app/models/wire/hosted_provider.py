"""Base of providers behind HTTP, for all wire formats: detects and remembers the abilities of the model."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import httpx2
from msgspec import Struct

from app.core.clock import Clock
from app.core.messages import Message
from app.core.provider import Ability, BaseProvider, CallForm, Finished, ModelRequest, Piece, ProviderFailed, TextChunk
from app.models.capabilities.abilities import LIMIT_S, AbilityCache, AbilityOverrides
from app.models.capabilities.model_list import first_model
from app.models.capabilities.server_profiles import profile_of
from app.models.http import failures
from app.models.http.answer_stream import AnswerStream
from app.models.http.client import CompletionRequest, ModelClient, authorization
from app.models.http.exchange import RequestRefused, post, read_pieces
from app.models.http.json_body import encode
from app.models.http.prompt_too_long import is_too_long
from app.models.http.served_model import ServedModel
from app.models.wire.attachment_parts import EncodedFiles
from app.models.wire.kept_format import CUT, TextFormat, TextRecord, in_format
from app.models.wire.parameters import FORMAT, Parameters, is_about_others, limit_in, temperature_in
from app.models.wire.structured_output import instruction, is_structured
from parsing import CallOpened, Thought
from parsing.templates.derive import TemplateGrammar

ANY_MODEL = "auto"
SERVER_LOST = ("model_down", "model_cut")  # codes of failures after which the server may have been replaced
# With the other statuses, the message must mention tools (llama.cpp: 500, gateways: 404).
BAD_REQUEST = (400, 422)
OTHER_REFUSALS = (404, 500, 501)


class RequestDefaults(Struct, frozen=True):
    """Parameters of requests that set none. None leaves them to the server."""

    max_tokens: int | None = None
    temperature: float | None = None


class HostedProvider(BaseProvider, ABC):
    """Base of a Provider for one model of one server. `close` closes the client.

    Abilities that `overrides` leave open are probed, and what answers show is recorded: if a server refuses tools, the
    request is retried once without them, and from then on the prompt teaches them. The model `auto` is replaced by the
    server's first model at the first request. `list_query` requests the complete list of models. With a `clock`, user
    messages end with the time they were sent.
    """

    list_query = ""

    def __init__(
        self,
        client: ModelClient,
        base_url: str,
        model: str = ANY_MODEL,
        key: str | None = None,
        *,
        overrides: AbilityOverrides | None = None,
        defaults: RequestDefaults | None = None,
        clock: Clock | None = None,
        abilities: AbilityCache | None = None,
    ) -> None:
        self.base_url = base_url
        self.model = model
        self.key = key
        self._client = client
        self._overrides = overrides or AbilityOverrides()
        self._defaults = defaults or RequestDefaults()
        self._clock = clock
        self._abilities = abilities or AbilityCache()
        self._named: ServedModel | None = None  # with the model name at the time
        self._found: dict[str, Ability] = {}  # a cache of abilities, valid for this `_basis`
        self._basis = (model, 0)
        self._parameters = Parameters(profile_of(base_url))

    @property
    def native_tools(self) -> bool:
        return self.ability("tools").value is not False

    @property
    def call_form(self) -> CallForm:
        if self.ability("tools").value is True:
            return CallForm.NATIVE
        return CallForm(str(self.ability("call_form").value or CallForm.TAGGED))

    @property
    def calls_natively(self) -> bool:
        return self._overrides.tool_calls == "native"

    @property
    def leaves_calls(self) -> bool:
        """True by the server's address, or because it counts tokens as only these servers do."""
        return profile_of(self.base_url).leaves_calls or self.ability("counting").value is not None

    @staticmethod
    def headers(key: str | None) -> Mapping[str, str]:
        """Return the headers that authorise a request."""
        return authorization(key)

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL of requests."""

    @abstractmethod
    async def _send(self, request: ModelRequest, *, native: bool) -> tuple[httpx2.Response, AnswerStream]:
        """Send the request; return a response with status 200 and an unread body, and the decoder for it.

        Raises ToolsRefused and ProviderFailed.
        """

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Stream the answer, and record the abilities that it shows. Raises ProviderFailed."""
        await self.name_model()
        noticed: tuple[type[Piece], ...] = (TextChunk,)
        try:
            response, reader = await self._open(request)
            self._abilities.answered()
            try:
                for notice in self._parameters.take_notices():
                    yield notice
                async with aclosing(self._read(response, reader, request)) as pieces:
                    async for piece in pieces:
                        if type(piece) not in noticed:  # each kind once: most tokens are a piece
                            noticed += (type(piece),)
                            self._notice(piece)
                        yield piece
            finally:
                await response.aclose()
        except ProviderFailed as failure:
            if failure.code in SERVER_LOST:
                self._abilities.doubt(self._about)
            raise

    def _read(
        self, response: httpx2.Response, reader: AnswerStream, request: ModelRequest
    ) -> AsyncGenerator[Piece, None]:
        wanted = request.parameters.get(FORMAT)
        if wanted is None or not (request.verbatim and is_structured(wanted)):
            return read_pieces(response, reader, request.take_text)
        schemas = {tool.name: tool.parameters for tool in request.tools}
        fences = self.call_form is CallForm.FENCED
        text_format = TextFormat(wanted, schemas, self.prompt_suffix(), fences)
        if self._prompts_format(request):
            return in_format(read_pieces(response, reader), text_format)
        return self._watch_format(response, reader, request, text_format)

    async def _watch_format(
        self, response: httpx2.Response, reader: AnswerStream, request: ModelRequest, wanted: TextFormat
    ) -> AsyncGenerator[Piece, None]:
        """Yield the pieces, and remember a server that has taken the format and not kept to it."""
        record = TextRecord()
        take_text = record.taking(request.take_text)
        async with aclosing(read_pieces(response, reader, take_text)) as pieces:
            async for piece in pieces:
                record.add(piece)
                if isinstance(piece, Finished) and piece.reason not in CUT and wanted.is_ignored(record.text):
                    self._parameters.ignore_format(wanted.response_format)
                yield piece

    async def name_model(self) -> None:
        """Replace `auto` by the server's first model. Raises ProviderFailed if the server is down."""
        if self.model == ANY_MODEL:
            self.model = await first_model(self._client, self.base_url, self.headers(self.key))

    async def window(self) -> int | None:
        """Return the configured window, else the reported one. Probes in any case, which finds other abilities, too."""
        resolved = await self._resolved_model()
        reported = await self._abilities.window(resolved) if resolved else None
        return self._overrides.window or reported

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        resolved = await self._resolved_model()
        return await self._abilities.count(resolved, texts) if resolved else None

    def prompt_suffix(self) -> str:
        return str(self.ability("prompt_suffix").value or "")

    def grammar(self) -> TemplateGrammar | None:
        return self._abilities.grammar(self._about)

    def ability(self, name: str) -> Ability:
        """Return an ability as known by now."""
        basis = self.model, self._abilities.changes
        if basis != self._basis:
            self._found = {}
            self._basis = basis
        known = self._found.get(name)
        if known is None:
            known = self._abilities.find(self._about, name, self._overrides)
            if known.source != "answer":  # which expires
                self._found[name] = known
        return known

    def abilities(self) -> Sequence[Ability]:
        return self._abilities.rows(self._about, self._overrides)

    def show(self, name: str, value: bool | str, detail: str) -> None:
        """Record an ability that an answer has shown; `detail` says how."""
        self._abilities.show(self._about, name, value, detail)

    async def close(self) -> None:
        await self._client.aclose()

    async def _open(self, request: ModelRequest) -> tuple[httpx2.Response, AnswerStream]:
        """Send the request; if its tools are refused, retry without them, with a prompt that teaches them.

        If that is refused too, tools were not the reason.
        """
        try:
            return await self._send(request, native=self.native_tools and bool(request.tools))
        except ToolsRefused as refused:
            refusal = str(refused)
        known = self.ability("tools")
        accepted = False
        self.show("tools", False, refusal)
        try:
            response = await self._send(request, native=False)
            accepted = True
        finally:
            if not accepted:
                self._abilities.unshow(self._about, "tools")
                if known.source == "answer" and known.value:
                    self.show("tools", True, known.detail)
        return response

    async def _post(self, request: ModelRequest, body: Mapping[str, Any], files: EncodedFiles) -> httpx2.Response:
        """Return a response with status 200 and an unread body. Raises RequestRefused and ProviderFailed."""
        key = request.key or self.key
        completion = CompletionRequest(
            self.url,
            files.put_into(encode(body)),
            self.headers(key),
            key=key,
            inactivity_s=request.inactivity_s,
            traceparent=request.traceparent,
        )
        return await post(self._client, completion)

    def _relayed_opening(self, request: ModelRequest, *, native: bool) -> list[Message]:
        """Return what a client's messages lack, and its model needs: tools to teach, a format to keep to."""
        opening = [] if native else [*request.opening()]
        if self._prompts_format(request):
            opening.append(Message("system", instruction(request.parameters[FORMAT])))
        return opening

    def _prompts_format(self, request: ModelRequest) -> bool:
        """Return whether the prompt has to ask for the client's `response_format`, because the server does not."""
        wanted = request.parameters.get(FORMAT)
        return (
            request.verbatim
            and is_structured(wanted)
            and self._parameters.accepted_format(request.parameters) != wanted
        )

    def _limit(self, request: ModelRequest) -> int | None:
        """Return the smallest of the token limits of the request, of its client, and of the configuration."""
        limits = (request.max_tokens, limit_in(request.parameters), self._defaults.max_tokens)
        return min((limit for limit in limits if limit is not None), default=None)

    def _temperature(self, request: ModelRequest) -> float | None:
        given = temperature_in(request.parameters)
        wanted = (request.temperature, given, self._defaults.temperature)
        return next((temperature for temperature in wanted if temperature is not None), None)

    def _refusal(self, refusal: RequestRefused, *, native: bool) -> Exception:
        """Return the exception for a refusal that no change of parameters can avoid."""
        if native and self._overrides.tool_calls == "auto" and refuses_tools(refusal.status, refusal.text):
            return ToolsRefused(refusal.status)
        return refusal.failure

    def _notice(self, piece: Piece) -> None:
        match piece:
            case CallOpened() if (known := self.ability("tools")).source == "answer" or not known.value:
                self.show("tools", True, "a native call")  # again: this renews its validity
            case Thought() if self.ability("prompt_suffix").value:
                self.show("prompt_suffix", "", "reasoning arrives separately")

    @property
    def _about(self) -> ServedModel:
        if self._named is None or self._named.model != self.model:
            headers = self.headers(self.key)
            self._named = ServedModel(
                self._client, self.base_url, self.model, headers=headers, list_query=self.list_query
            )
        return self._named

    async def _resolved_model(self) -> ServedModel | None:
        """Return the reference for probes; None while the name of the model is unknown."""
        if self.model == ANY_MODEL:
            try:
                async with asyncio.timeout(LIMIT_S):
                    await self.name_model()
            except (TimeoutError, ProviderFailed):
                return None
        return self._about


class ToolsRefused(Exception):
    """The server rejects `tools`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status} for tools")


def refuses_tools(status: int, text: str) -> bool:
    """Return whether an error response is about the tools of the request."""
    if is_too_long(text) or failures.UNREADABLE_CALL in text or is_about_others(text, "tool"):
        return False
    return status in BAD_REQUEST or (status in OTHER_REFUSALS and "tool" in text.lower())
