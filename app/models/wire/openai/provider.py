"""Provider for servers with OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property, partial
from typing import Any

import httpx2
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import CallForm, ModelRequest, ProviderFailed, ProviderNotice
from app.models.capabilities.server_profiles import profile_of
from app.models.http.answer_stream import AnswerStream
from app.models.http.exchange import RequestRefused
from app.models.http.json_body import EncodedJSON, encoded
from app.models.http.prompt_too_long import is_too_long
from app.models.wire.attachment_parts import Encoded, encoded_files
from app.models.wire.call_ids import takes_for
from app.models.wire.grammars.tool_grammar import (
    NAME,
    NO_GRAMMAR,
    GrammarTrial,
    is_about_grammar,
    strict_tools,
    taught_calls,
)
from app.models.wire.hosted_provider import HostedProvider, beside_loop
from app.models.wire.opaque_metadata import origin_of
from app.models.wire.openai.answer import ChatAnswer
from app.models.wire.openai.history import (
    BRIDGED,
    OpeningCache,
    WireMessage,
    added,
    encoded_tools,
    wire_messages,
    wire_tools,
)
from app.models.wire.openai.reasoning_replay import (
    REFUSED,
    TEMPLATE_RULES,
    ReplayPolicy,
    missing_in,
    replay_rule,
)
from app.models.wire.openai.template_limits import limits_in, within_limits
from app.models.wire.openai.verbatim import verbatim_messages
from app.models.wire.parameters import limit_in, without_limit
from app.models.wire.tool_choice import ABOUT_TOOLS, NONE, tool_choice
from tools.tool import Tool


class OpenAIChat(HostedProvider):
    """A Provider. `base_url` ends before `/chat/completions`; `close` closes the client.

    With `bare_results` only untrusted text results get delimiters.
    """

    bare_results = False
    _learned: frozenset[StrEnum] = frozenset()  # what its refusals say of histories
    _grammar_way = 0  # the first that is not refused
    _takes_grammars: bool | None = None  # None until it has accepted one, or refused one

    @cached_property
    def _openings(self) -> OpeningCache:
        return OpeningCache(bare=self.bare_results)

    @property
    def url(self) -> str:
        return f"{self.base_url}/chat/completions"

    @property
    def _replay(self) -> ReplayPolicy:
        rule = replay_rule(self.model) or TEMPLATE_RULES.get(str(self.ability("replay").value))
        return ReplayPolicy(origin_of(self.model, self.base_url), rule, self._learned)

    def added(self, message: Message) -> str:
        replayed = self._replay.replayed_reasoning(message) if message.reasoning else ""
        native = message.role == "tool" and self.native_tools  # not needed for other roles
        return added(message, native=native, bare=self.bare_results, clock=self._clock) + replayed

    async def _send(self, request: ModelRequest, *, native: bool) -> tuple[httpx2.Response, AnswerStream]:
        files = await encoded_files(request)
        grammar = self._grammar_for(request, native=native)
        while True:  # terminates: each round drops one more parameter, or adds what was missing
            body = await beside_loop(request, partial(self._body, request, files.marks, native=native))
            if grammar.ways:
                body |= grammar.fields
            try:
                response = await self._post(request, body, files)
                if grammar.ways:
                    self._learn_of_grammars(grammar)
                return response, ChatAnswer(self.url, self._replay.origin)
            except RequestRefused as refusal:
                if self._parameters.learn(refusal.status, refusal.text, body, agent=not request.verbatim):
                    continue
                if is_too_long(refusal.text) and limit_in(request.parameters) is not None:
                    request = replace(request, parameters=without_limit(request.parameters))
                    continue
                if self._learn_of_histories(refusal, body["messages"], verbatim=request.verbatim):
                    continue
                if not grammar.refuse(refusal.status, refusal.text):
                    raise self._refusal(refusal, request, native=native) from refusal

    def _grammar_for(self, request: ModelRequest, *, native: bool) -> GrammarTrial:
        """Return the ways to have the server enforce the form of calls; none where it cannot, or does it anyway.

        Nor for the rest of an answer: it begins in the middle of a line.
        """
        if (native and self._overrides.tool_grammar != "on") or not request.tools or self._form(request):
            return NO_GRAMMAR
        engine = self.ability(NAME).value
        if native:
            ways = strict_tools(engine, wire_tools(self._given(request, native=True)[1]))
        else:
            form = self.call_form
            ways = taught_calls(engine, form, request.tools, request.parameters, self.prompt_suffix())
        if not ways or self._parameters.refuses(NAME, ways):
            return NO_GRAMMAR
        return GrammarTrial(ways, self._grammar_way)

    def _learn_of_grammars(self, grammar: GrammarTrial) -> None:
        """Remember which way was accepted. If none was, these tools go without; after other tools before, all do."""
        if grammar.fields:
            self._grammar_way, self._takes_grammars = grammar.at, True
        else:
            self._parameters.leave_out(NAME, grammar.ways)
            if self._takes_grammars is False:
                self.show(NAME, False, "refused")
            self._takes_grammars = self._takes_grammars or False

    def _broke_off(self, failure: ProviderFailed, request: ModelRequest) -> None:
        """Go without a grammar that has broken its answer (https://github.com/ggml-org/llama.cpp/issues/12597)."""
        if is_about_grammar(failure.message):
            grammar = self._grammar_for(replace(request, go_on=None), native=self.native_tools)
            if grammar.fields:
                self._parameters.leave_out(NAME, grammar.ways)
        super()._broke_off(failure, request)

    def _learn_of_histories(self, refusal: RequestRefused, messages: str, *, verbatim: bool) -> bool:
        """Return whether messages will be sent in another way from now on."""
        before = self._learned
        status, text = refusal.status, refusal.text
        unwanted = self._replay.unwanted_in(status, text, messages) - before
        if unwanted:
            self._parameters.note(ProviderNotice("parameter", REFUSED))
        limits = limits_in(status, text) if verbatim else frozenset[StrEnum]()
        self._learned = before | (unwanted or missing_in(status, text)) | limits
        return self._learned != before

    def _body(self, request: ModelRequest, files: Encoded, *, native: bool) -> dict[str, Any]:
        messages = self._relayed if request.verbatim else self._messages
        body = {"model": self.model, "messages": messages(request, files, native=native), "stream": True}
        given, tools = self._given(request, native=native)
        offered: dict[str, Any] = {"tools": encoded_tools(tools)} if native else {}
        if form := self._form(request):
            offered.update(form.body)
        limit = self._limit(request)
        temperature = self._temperature(request)
        return body | offered | self._parameters.fields(self.model, limit, temperature, given)

    def _messages(self, request: ModelRequest, files: Encoded, *, native: bool) -> EncodedJSON:
        opening = self._openings.wired(request.opening())
        bridged = bool(BRIDGED.search(self.model))
        takes_id = takes_for(mistral=bridged, openai=profile_of(self.base_url).any_order)
        messages = wire_messages(
            request.messages,
            native=native,
            bare=self.bare_results,
            clock=self._clock,
            replay=self._replay,
            bridged=bridged,
            files=files,
            before=opening.wired,
            takes_id=takes_id,
        )
        return opening.with_rest(self._marked(messages, request))

    def _relayed(self, request: ModelRequest, files: Encoded, *, native: bool) -> EncodedJSON:
        fenced = {tool.name: tool.parameters for tool in request.tools} if self.call_form is CallForm.FENCED else None
        messages = verbatim_messages(
            self._relayed_opening(request, native=native),
            request.messages,
            native=native or (not request.tools and self.native_tools),
            as_sent=profile_of(self.base_url).any_order,
            mistral=bool(BRIDGED.search(self.model)),
            replay=replace(self._replay, relayed=self.leaves_calls),
            files=files,
            fenced=fenced,
        )
        return encoded(self._marked(within_limits(messages, self._learned), request))

    def _marked(self, messages: list[WireMessage], request: ModelRequest) -> list[WireMessage]:
        """Return the messages, the last of which is marked if it is to go on."""
        form = self._form(request)
        return [*messages[:-1], {**messages[-1], **form.message}] if form and form.message else messages

    def _given(self, request: ModelRequest, *, native: bool) -> tuple[Mapping[str, Any], Sequence[Tool]]:
        """Return the client's parameters and tools as this server takes them.

        Local servers take `tool_choice` as a word alone: of a tool by its name they are offered only that one.
        """
        given = request.parameters
        choice = tool_choice(request.parameters)
        hides = choice.mode == NONE and not request.verbatim and profile_of(self.base_url).hides_tools
        if not native or hides:
            return {name: value for name, value in given.items() if name not in ABOUT_TOOLS}, request.tools
        if not choice.names or not self.leaves_calls:
            return given, request.tools
        return {**given, "tool_choice": choice.mode}, choice.offered(request.tools)


class BareChat(OpenAIChat):
    """The same for small models: with delimiters they write worse commands, and copy the codes into answers."""

    bare_results = True
