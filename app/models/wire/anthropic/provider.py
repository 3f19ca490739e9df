"""Provider for servers with Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import httpx2
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import ModelRequest
from app.models.http.answer_stream import AnswerStream
from app.models.http.exchange import RequestRefused
from app.models.http.prompt_too_long import is_too_long
from app.models.wire.anthropic.answer import MessagesAnswer
from app.models.wire.anthropic.blocks import Block, wire_tools
from app.models.wire.anthropic.history import EncodedHistory, Wire
from app.models.wire.anthropic.parameters import THINKING, message_fields, with_thinking
from app.models.wire.anthropic.reasoning import metadata_origin, reasoning_in
from app.models.wire.attachment_parts import Encoded, encoded_files
from app.models.wire.call_ids import TakesId, takes_plain, takes_short_ids
from app.models.wire.client_history import settled, with_opening
from app.models.wire.hosted_provider import BAD_REQUEST, HostedProvider, beside_loop
from app.models.wire.openai.history import added
from app.models.wire.parameters import EFFORT, FORMAT, limit_in
from app.models.wire.structured_output import is_structured
from tools.base.patterns import lazy_pattern

VERSION = "2023-06-01"  # the newest version accepts no temperature
HOTTEST = 1.0
TEMPERATURE = "temperature"  # the only optional field that a model may refuse
CLAUDE = lazy_pattern("claude", re.IGNORECASE)  # all of these support tools
WINDOW, ANSWER = 200_000, 32_000  # least window and answer length of these, in tokens
SHORT_ANSWER = 8192  # for other models of unknown length: the API requires a number
LONGEST_ANSWER = 64_000  # unless the request sets fewer
LEAST_ANSWER = 1024  # a smaller answer is not worth a request
# Refusal of prompt plus answer beyond the window.
SUM = lazy_pattern(r"(\d{1,12}) \+ (\d{1,12}) > (\d{1,12})")
# Refusal of max_tokens beyond the model's limit.
LONGEST = lazy_pattern(r"max_tokens: \d{1,12} > (\d{1,12})")
# At most four cache breakpoints stand behind the stable parts of a request.
# https://platform.claude.com/docs/en/build-with-claude/prompt-caching
EPHEMERAL = {"type": "ephemeral"}
TURNS = 2  # the last user turn, for the next request, and the one before, which the last request cached


class AnthropicMessages(HostedProvider):
    """A Provider. `base_url` ends before `/messages`; `close` closes the client.

    Reasoning is left to the server's default, which is on for most models.
    """

    list_query = "?limit=1000"  # the default is 20 per page

    @staticmethod
    def headers(key: str | None) -> Mapping[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    @property
    def url(self) -> str:
        return f"{self.base_url}/messages"

    @property
    def _origin(self) -> str:
        return metadata_origin(self.model, self.base_url)

    @property
    def _takes_id(self) -> TakesId:
        return takes_plain if CLAUDE.search(self.model) else takes_short_ids

    async def window(self) -> int | None:
        return await super().window() or (WINDOW if CLAUDE.search(self.model) else None)

    def added(self, message: Message) -> str:
        native = self.native_tools
        return added(message, native=native, clock=self._clock) + (
            reasoning_in(message, self._origin) if native else ""
        )

    async def _send(self, request: ModelRequest, *, native: bool) -> tuple[httpx2.Response, AnswerStream]:
        files = await encoded_files(request)
        with_reasoning = True
        room = max(LONGEST_ANSWER, limit_in(request.parameters) or 0)
        given = self._given(request)
        while True:  # terminates: each round leaves out one more thing
            write = partial(self._written, request, files.marks, native=native, with_reasoning=with_reasoning)
            written = await beside_loop(request, write)
            body = self._body(request, written, room, given)
            try:
                return await self._post(request, body, files), MessagesAnswer(self.url, self._origin, written.before)
            except RequestRefused as refusal:
                sent = {name: body[name] for name in (TEMPERATURE,) if name in body}
                if self._parameters.learn(refusal.status, refusal.text, sent):
                    continue
                if 0 < (longest := longest_answer(refusal)) < body["max_tokens"]:
                    self._abilities.show(self._about, "answer", longest, f"status {refusal.status}")
                    continue
                if LEAST_ANSWER <= (left := room_left(refusal)) < body["max_tokens"]:
                    room = left
                    continue
                if request.go_on is not None:  # a thinking model refuses that as well
                    raise self._refusal(refusal, request, native=native) from refusal
                if written.with_reasoning and may_be_reasoning(refusal):
                    with_reasoning = False
                elif given.get("thinking") and is_about_thinking(refusal):
                    given = {name: value for name, value in given.items() if name not in THINKING}
                    if not request.verbatim:
                        self._parameters.leave_out(EFFORT, request.parameters.get(EFFORT))
                else:
                    native = native and not CLAUDE.search(self.model)
                    raise self._refusal(refusal, request, native=native) from refusal

    def _given(self, request: ModelRequest) -> dict[str, Any]:
        """Return the parameters as this API has them; a client of its own says itself how the model thinks.

        An agent does without a choice of tools: another one than before discards what is cached of the messages.
        """
        given = dict(request.parameters)
        if not request.verbatim:
            given.pop("tool_choice", None)
        if request.verbatim or self._parameters.refuses(EFFORT, given.get(EFFORT)):
            return given
        return with_thinking(given)

    def _prompts_format(self, request: ModelRequest) -> bool:
        return is_structured(request.parameters.get(FORMAT))

    def _written(self, request: ModelRequest, files: Encoded, *, native: bool, with_reasoning: bool) -> EncodedHistory:
        tools = wire_tools(request.tools) if native else []
        wire = Wire(native, tools, self._origin, replays=with_reasoning, files=files, takes_id=self._takes_id)
        wire = replace(wire, goes_on=request.go_on is not None)
        if not request.verbatim:
            return replace(wire, clock=self._clock).write(request.whole())
        opening = self._relayed_opening(request, native=native)
        history = settled(with_opening(opening, request.messages), self._takes_id, self._origin)
        return replace(wire, verbatim=True).write(history)

    def _body(
        self, request: ModelRequest, written: EncodedHistory, room: int, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        thinks = not request.verbatim and bool(given.get("thinking"))  # which takes no other temperature than 1
        is_conversation = bool(written.tools) or len(written.messages) > 1
        fields = self._parameters.fields(self.model, None, None if thinks else self._temperature(request))
        body = message_fields(given, tools=bool(written.tools)) | {
            "model": self.model,
            "max_tokens": min(self._max_tokens(request), room),
            "system": marked(written.system),
            "tools": marked(written.tools),
            # A single side query is not worth caching.
            "messages": marked_turns(written.messages) if is_conversation else written.messages,
            "stream": True,
            TEMPERATURE: min(fields[TEMPERATURE], HOTTEST) if TEMPERATURE in fields else None,
        }
        return {name: value for name, value in body.items() if value is not None and value != []}

    def _max_tokens(self, request: ModelRequest) -> int:
        wanted = self._limit(request)
        longest = self._longest_answer()
        if wanted is None or (request.verbatim and not isinstance(self.ability("answer").value, int)):
            return wanted or longest  # a client may know its model better
        return min(longest, wanted)

    def _longest_answer(self) -> int:
        answer, window = (self.ability(name).value for name in ("answer", "window"))
        if isinstance(answer, int):
            return answer
        if CLAUDE.search(self.model):
            return ANSWER
        return min(SHORT_ANSWER, window // 4) if isinstance(window, int) else SHORT_ANSWER


def may_be_reasoning(refusal: RequestRefused) -> bool:
    """Return whether earlier reasoning may have been refused: signed with another key, or too old."""
    return refusal.status in BAD_REQUEST and not is_too_long(refusal.text)


def is_about_thinking(refusal: RequestRefused) -> bool:
    """Return whether a field about reasoning may have been refused, or reasoning missed that a client did not keep."""
    return refusal.status in BAD_REQUEST and any(name in refusal.text for name in (*THINKING, "effort"))


def longest_answer(refusal: RequestRefused) -> int:
    """Return the model's longest answer in tokens if the refusal names it; else 0."""
    found = LONGEST.search(refusal.text) if refusal.status in BAD_REQUEST else None
    return int(found[1]) if found else 0


def room_left(refusal: RequestRefused) -> int:
    """Return the tokens that the prompt leaves for an answer if the refusal names them; else 0."""
    found = SUM.search(refusal.text) if refusal.status in BAD_REQUEST else None
    return int(found[3]) - int(found[1]) if found else 0


def marked(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks with a breakpoint at the last one."""
    return [*blocks[:-1], blocks[-1] | {"cache_control": EPHEMERAL}] if blocks else []


def marked_turns(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with breakpoints at the last two user messages."""
    turns = [position for position, message in enumerate(messages) if message["role"] == "user"][-TURNS:]
    return [
        message | {"content": marked(message["content"])} if position in turns else message
        for position, message in enumerate(messages)
    ]
