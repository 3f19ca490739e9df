"""Base of providers behind HTTP, for all wire formats: detects and remembers the abilities of the model."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urljoin

import httpx2
from msgspec import Struct
from msgspec.structs import replace

from app.core.clock import Clock
from app.core.messages import Message
from app.core.provider import Ability, BaseProvider, CallForm, Finished, ModelRequest, Piece, ProviderFailed, TextChunk
from app.models.capabilities.abilities import LIMIT_S, AbilityCache, AbilityOverrides
from app.models.capabilities.model_list import first_model
from app.models.capabilities.prompt_prefill import opens_thinking
from app.models.capabilities.server_profiles import BY_NAME, PrefixForm, profile_of
from app.models.http import failures
from app.models.http.answer_stream import AnswerStream
from app.models.http.client import CompletionRequest, ModelClient, authorization
from app.models.http.exchange import RequestRefused, post, read_pieces
from app.models.http.json_body import PROMPT, EncodedJSON, encode, with_encoded_prompt
from app.models.http.prompt_too_long import is_too_long
from app.models.http.served_model import ServedModel
from app.models.wire.attachment_parts import EncodedFiles
from app.models.wire.kept_format import CUT, TextFormat, TextRecord, in_format
from app.models.wire.parameters import FORMAT, Parameters, is_about_others, limit_in, temperature_in
from app.models.wire.structured_output import instruction, is_structured
from app.models.wire.unfinished import CANNOT, PrefixRefused, Unfinished, unfinished, without_repetition
from parsing import CallOpened, Thought
from parsing.templates.derive import TemplateGrammar

ANY_MODEL = "auto"
SERVER_LOST = ("model_down", "model_cut")  # codes of failures after which the server may have been replaced
# With the other statuses, the message must mention tools (llama.cpp: 500, gateways: 404).
BAD_REQUEST = (400, 422)
OTHER_REFUSALS = (404, 500, 501)
MANY = 100  # messages and calls of a client, whose encoding takes milliseconds
T = TypeVar("T")
NO_JSON = EncodedJSON("")  # of a part that a prompt has not
BREAKPOINT = ',"cache_control":{"type":"ephemeral"}'  # of Anthropic's requests: it moves on with the conversation


class RequestDefaults(Struct, frozen=True):
    """Parameters of requests that set none. None leaves them to the server."""

    max_tokens: int | None = None
    temperature: float | None = None


async def beside_loop(request: ModelRequest, encode: Callable[[], T]) -> T:
    """Encode the messages of a request, in a thread where a client has sent many."""
    many = request.verbatim and sum(1 + len(one.calls) for one in request.messages) > MANY
    return await asyncio.to_thread(encode) if many else encode()


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

    @property
    def continues(self) -> bool:
        return self._prefix is not None

    @property
    def _prefix(self) -> PrefixForm | None:
        """The form in which the server goes on with a message; None if it cannot, or the model would think first."""
        kind = BY_NAME.get(str(self.ability("counting").value)) or profile_of(self.base_url)
        thinks = self.ability("reasoning").value or opens_thinking(self.prompt_suffix())
        return None if thinks or self.ability("prefix").value is False else kind.prefix

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

        With `go_on` its last message is to go on. Raises ToolsRefused, PrefixRefused and ProviderFailed.
        """

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Stream the answer, and record the abilities that it shows. Raises ProviderFailed."""
        await self.name_model()
        noticed: tuple[type[Piece], ...] = (TextChunk,)
        try:
            broken = None if request.go_on is None else unfinished(request)
            response, reader = await (self._open(request) if broken is None else self._resume(request, broken))
            self._abilities.answered()
            try:
                for notice in self._parameters.take_notices():
                    yield notice
                async with aclosing(self._read_rest(response, reader, request, broken)) as pieces:
                    async for piece in pieces:
                        if type(piece) not in noticed:  # each kind once: most tokens are a piece
                            noticed += (type(piece),)
                            self._notice(piece)
                        yield piece
            finally:
                await response.aclose()
        except ProviderFailed as failure:
            self._broke_off(failure, request)
            raise

    def _broke_off(self, failure: ProviderFailed, _request: ModelRequest) -> None:
        if failure.code in SERVER_LOST:
            self._abilities.doubt(self._about)

    def _read_rest(
        self, response: httpx2.Response, reader: AnswerStream, request: ModelRequest, broken: Unfinished | None
    ) -> AsyncGenerator[Piece, None]:
        """Read an answer that may repeat what was shown of the one that it goes on with.

        A server that only its port tells of may be another one, which begins anew behind a message of the model.
        """
        if broken is None:
            return self._read(response, reader, request)
        known = profile_of(self.base_url).hosts or self.ability("counting").value
        if known and (form := self._prefix) and broken.as_prefix(form) and not form.repeats:
            return self._read(response, reader, request)
        return without_repetition(self._read(response, reader, replace(request, take_text=None)), broken.text)

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
                if isinstance(piece, Finished) and piece.reason not in CUT and await wanted.is_ignored(record.text):
                    self._parameters.ignore_format(wanted.response_format)
                yield piece

    async def name_model(self) -> None:
        """Replace `auto` by the server's first model. Raises ProviderFailed if the server is down."""
        if self.model == ANY_MODEL:
            self.model = await first_model(self._client, self.base_url, self.headers(self.key))

    @asynccontextmanager
    async def direct(self) -> AsyncGenerator[ServedModel, None]:
        """The server and the model, for requests apart from runs, as long as they last. Raises ProviderFailed."""
        await self.name_model()
        yield self._about

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

    async def _resume(self, request: ModelRequest, broken: Unfinished) -> tuple[httpx2.Response, AnswerStream]:
        """Send a request to go on with the last reply: as a prefix, or else with the reminder."""
        refused = ProviderFailed("model_cut", CANNOT.format(model=self.model), retryable=False)
        if resumed := broken.as_prefix(self._prefix):
            try:
                return await self._open(resumed)
            except PrefixRefused as refusal:
                refused = refusal.failure
                self.show("prefix", False, f"status {refused.status} for a message to go on with")
        if not request.go_on:
            raise refused
        return await self._open(replace(request, go_on=None))

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
        body = with_encoded_prompt(body)
        if request.note_prompt:
            request.note_prompt(f"{self.base_url} {self.model}", prompt_parts(body, files.marks))
        completion = CompletionRequest(
            self._url_for(request),
            files.put_into(encode(body)),
            self.headers(key),
            key=key,
            inactivity_s=request.inactivity_s,
            traceparent=request.traceparent,
        )
        return await post(self._client, completion)

    def _form(self, request: ModelRequest) -> PrefixForm | None:
        """Return how this request, which may end with a message to go on with, asks for that."""
        return None if request.go_on is None else self._prefix

    def _url_for(self, request: ModelRequest) -> str:
        if (form := self._form(request)) and form.path:
            return self.url.replace(self.base_url, urljoin(self.base_url, form.path), 1)
        return self.url

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

    def _refusal(self, refusal: RequestRefused, request: ModelRequest, *, native: bool) -> Exception:
        """Return the exception for a refusal that no change of parameters can avoid."""
        may_be_prefix = request.go_on is not None and refusal.status in (*BAD_REQUEST, *OTHER_REFUSALS)
        if may_be_prefix and not is_too_long(refusal.text):
            return PrefixRefused(refusal.failure)
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


def prompt_parts(body: Mapping[str, Any], marks: Mapping[str, str]) -> list[str]:
    """Return the parts of a SentPrompt without what is not its own: breakpoints of caches, and the marks of files."""
    tools, system, messages = (body.get(name, NO_JSON) for name in PROMPT)
    opening, rest = messages.opening, messages[max(0, len(messages.opening) - 1) :]
    for sha256, mark in marks.items():
        rest = rest.replace(mark, sha256)
    return [part.replace(BREAKPOINT, "") if BREAKPOINT in part else part for part in (tools, system, opening, rest)]


class ToolsRefused(Exception):
    """The server rejects `tools`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status} for tools")


def refuses_tools(status: int, text: str) -> bool:
    """Return whether an error response is about the tools of the request."""
    if is_too_long(text) or failures.UNREADABLE_CALL in text or is_about_others(text, "tool"):
        return False
    return status in BAD_REQUEST or (status in OTHER_REFUSALS and "tool" in text.lower())
