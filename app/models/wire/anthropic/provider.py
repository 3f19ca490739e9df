"""Any server that speaks Anthropic's Messages API, streamed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx2

from app.core.messages import Message
from app.core.provider import ModelRequest
from app.models.http.exchange import CompletionRequest, Reader, RequestRefused, post
from app.models.http.json_body import encode
from app.models.http.prompt_too_long import is_too_long
from app.models.wire.anthropic.answer import MessagesAnswer
from app.models.wire.anthropic.blocks import wire_tools
from app.models.wire.anthropic.caching import marked, marked_turns
from app.models.wire.anthropic.history import Wire, Written
from app.models.wire.anthropic.reasoning import seal_origin, thoughts_in
from app.models.wire.attachment_parts import Encoded, encoded_files
from app.models.wire.hosted_provider import BAD_REQUEST, HostedProvider
from app.models.wire.request_extras import added

VERSION = "2023-06-01"  # the newest version takes no temperature from anybody
HOTTEST = 1.0
TEMPERATURE = "temperature"  # the only field that a model may refuse and can be asked without
CLAUDE = re.compile("claude", re.IGNORECASE)  # all of which take tools
WINDOW, ANSWER = 200_000, 32_000  # tokens that all of these can read, and write, at least
SHORT_ANSWER = 8192  # of other models, where nobody says how many: the API wants a number
LONGEST_ANSWER = 64_000  # where nobody wants fewer
LEAST_ANSWER = 1024  # for less it is not worth asking
# How much the prompt, and how much the answer may take of the window, where that is too much.
SUM = re.compile(r"(\d{1,12}) \+ (\d{1,12}) > (\d{1,12})")
# What was asked for, and the longest answer that the model gives, where that is less.
LONGEST = re.compile(r"max_tokens: \d{1,12} > (\d{1,12})")


class AnthropicMessages(HostedProvider):
    """A Provider. `base_url` ends before `/messages`; `close` closes the client.

    Whether a model thinks is left to its server: most do without being told to.
    """

    list_query = "?limit=1000"  # else there are twenty on a page

    @staticmethod
    def headers(key: str | None) -> Mapping[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    @property
    def url(self) -> str:
        return f"{self.base_url}/messages"

    @property
    def _origin(self) -> str:
        return seal_origin(self.model, self.base_url)

    async def window(self) -> int | None:
        return await super().window() or (WINDOW if CLAUDE.search(self.model) else None)

    def added(self, message: Message) -> str:
        native = self.native_tools
        return added(message, native=native, clock=self._clock) + (thoughts_in(message, self._origin) if native else "")

    async def _ask(self, request: ModelRequest, *, native: bool) -> tuple[httpx2.Response, Reader]:
        files, key = await encoded_files(request), request.key or self.key
        thoughtful, room = True, LONGEST_ANSWER
        while True:  # each further round leaves out more, and there is not much
            written = self._written(request, files.marks, native=native, thoughtful=thoughtful)
            body = self._body(request, written, room)
            content = files.put_into(encode(body))
            question = CompletionRequest(self.url, content, self.headers(key), key, request.inactivity_s)
            try:
                return await post(self._client, question), MessagesAnswer(self.url, self._origin, written.before)
            except RequestRefused as refusal:
                if self._parameters.learn(refusal.status, refusal.text, body.keys() & {TEMPERATURE}):
                    continue
                if 0 < (longest := longest_answer(refusal)) < body["max_tokens"]:
                    self._abilities.show(self._about, "answer", longest, f"status {refusal.status}")
                    continue
                if LEAST_ANSWER <= (left := room_left(refusal)) < body["max_tokens"]:
                    room = left
                    continue
                if not (written.thoughtful and may_be_thoughts(refusal)):
                    raise self._refusal(refusal, native=native and not CLAUDE.search(self.model)) from refusal
                thoughtful = False

    def _written(self, request: ModelRequest, files: Encoded, *, native: bool, thoughtful: bool) -> Written:
        tools = wire_tools(request.tools) if native else []
        return Wire(native, tools, self._origin if thoughtful else "", self._clock, files).write(request.whole())

    def _body(self, request: ModelRequest, written: Written, room: int) -> dict[str, Any]:
        temperature = request.temperature if request.temperature is not None else self._defaults.temperature
        fields = self._parameters.fields(self.model, None, temperature)
        body = {
            "model": self.model,
            "max_tokens": min(self._max_tokens(request), room),
            "system": marked(written.system),
            "tools": marked(written.tools),
            # What is asked once, beside a conversation, is not worth keeping.
            "messages": marked_turns(written.messages) if written.goes_on else written.messages,
            "stream": True,
            TEMPERATURE: min(fields[TEMPERATURE], HOTTEST) if TEMPERATURE in fields else None,
        }
        return {name: value for name, value in body.items() if value is not None and value != []}

    def _max_tokens(self, request: ModelRequest) -> int:
        wanted = [most for most in (request.max_tokens, self._defaults.max_tokens) if most is not None]
        return min(self._longest_answer(), *wanted) if wanted else self._longest_answer()

    def _longest_answer(self) -> int:
        said, window = (self.ability(name).value for name in ("answer", "window"))
        if isinstance(said, int):
            return said
        if CLAUDE.search(self.model):
            return ANSWER
        return min(SHORT_ANSWER, window // 4) if isinstance(window, int) else SHORT_ANSWER


def may_be_thoughts(refusal: RequestRefused) -> bool:
    """Whether the thoughts of earlier replies may be what was refused: signed with another key, or too old."""
    return refusal.status in BAD_REQUEST and not is_too_long(refusal.text)


def longest_answer(refusal: RequestRefused) -> int:
    """Tokens of the model's longest answer, where the server says so in refusing a longer one."""
    found = LONGEST.search(refusal.text) if refusal.status in BAD_REQUEST else None
    return int(found[1]) if found else 0


def room_left(refusal: RequestRefused) -> int:
    """Tokens of the window that the prompt leaves for an answer, where the server says so in refusing both together."""
    found = SUM.search(refusal.text) if refusal.status in BAD_REQUEST else None
    return int(found[3]) - int(found[1]) if found else 0
