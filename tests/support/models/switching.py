"""Model servers that die in the middle of an answer, and others that go on with it; none of them is on a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2

from app.models.capabilities.abilities import AbilityOverrides
from app.models.http.client import CompletionRequest, ModelClient
from app.models.wire.anthropic.provider import AnthropicMessages
from app.models.wire.hosted_provider import HostedProvider
from app.models.wire.openai.provider import OpenAIChat
from app.runs.discipline.limit_enforcer import BROKEN_OFF
from app.runs.discipline.reminders import GO_ON
from parsing.fences import fenced_call
from tests.support.models import messages_streams as messages
from tests.support.models.chatting import DONE, chunk, says
from tests.support.parsing.forms import WRITERS
from tests.support.server.serving import NO_TLS

Form = Literal["native", "fenced"] | str
NAME, SCHEMA = "note", {"type": "object", "properties": {"title": {"type": "string"}, "text": {"type": "string"}}}
ARGUMENTS = {
    "title": "Travel plan",
    "text": 'Leave on Monday at 7:15, from platform 4, with `two` bags and the <b>box</b>; ask {"who"} is in.',
}
RESULT = "Kept as note 4711."
FIRST = (
    "I keep it in a note first, so that `nothing` is lost on the way.\n\n```text\nnote: travel\n```\n\nThis is it.\n\n"
)
LAST = (
    "The note is kept as number 4711. We leave on Monday at 7:15 from platform 4, where a < b holds for all seats.\n\n"
    "- Bring **water**, and the tickets\n- and call `taxi` before six.\n\n```python\nprint('good journey')\n```\n\n"
    "Anything else? I can also look up the way back, which is on Thursday.\n"
)
THOUGHT = "The person wants a note. "
SLICE = 40  # characters of a piece


def written(form: Form) -> str:
    """The call in this form."""
    if form == "fenced":
        return f"{fenced_call(NAME, ARGUMENTS, SCHEMA)}\n"
    return WRITERS[form]([(NAME, ARGUMENTS)])


@dataclass(frozen=True)
class Script:
    """What a model writes in one reply: a thought, text, and a call natively."""

    thought: str = ""
    text: str = ""
    call: bool = False

    def __len__(self) -> int:
        return len(self.thought) + len(self.text) + (len(json.dumps(ARGUMENTS)) if self.call else 0)


def script(form: Form, *, called: bool, thought: str = "") -> Script:
    """The whole reply of a round, before or after the call."""
    if called:
        return Script(thought, LAST)
    return Script(thought, FIRST, True) if form == "native" else Script(thought, FIRST + written(form))


def pieces(text: str) -> Iterator[str]:
    return (text[at : at + SLICE] for at in range(0, len(text), SLICE))


def chat_stream(one: Script, most: int | None) -> Iterator[str]:
    """The reply as chat completions, up to so many characters."""
    left = len(one) if most is None else most
    thought = one.thought[:left]
    yield from (chunk({"reasoning_content": piece}) for piece in pieces(thought))
    left -= len(thought)
    text = one.text[:left]
    yield from (says(piece) for piece in pieces(text))
    left -= len(text)
    if one.call and (left or most is None):
        opened = {"index": 0, "id": "call_1", "type": "function", "function": {"name": NAME, "arguments": ""}}
        yield chunk({"tool_calls": [opened]})
        for piece in pieces(json.dumps(ARGUMENTS)[:left]):
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    if most is None:
        yield chunk(finish="tool_calls" if one.call else "stop") + DONE


def messages_stream(one: Script, most: int | None) -> Iterator[str]:
    """The same as the Messages API has it."""
    left = len(one) if most is None else most
    yield messages.start()
    index = 0
    for kind, whole in (("thinking", one.thought), ("text", one.text)):
        if text := whole[:left]:
            yield messages.event("content_block_start", index=index, content_block={"type": kind, kind: ""})
            yield from (messages.delta(index, kind, piece) for piece in pieces(text))
            left -= len(text)
            index += 1
            if most is None or left:
                yield messages.stop(index - 1)
    if one.call and (left or most is None):
        block = {"type": "tool_use", "id": "toolu_1", "name": NAME, "input": {}}
        yield messages.event("content_block_start", index=index, content_block=block)
        for piece in pieces(json.dumps(ARGUMENTS)[:left]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield messages.event("content_block_delta", index=index, delta=delta)
        if most is None:
            yield messages.stop(index)
    if most is None:
        yield messages.end("tool_use" if one.call else "end_turn")


class Body(httpx2.AsyncByteStream):
    def __init__(self, text: str, *, dies: bool) -> None:
        self._text = text
        self._dies = dies

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._text.encode()
        if self._dies:
            raise httpx2.ReadError("Connection reset by peer")


@dataclass(frozen=True)
class Server:
    """A kind of model server: where it is, what its model writes calls in, and what it does with a begun message.

    `begun`: it goes on with it, after it has `repeated` it or not; or it answers a reminder as an `obedient` model
    does, or `anew`.
    """

    url: str
    form: Form
    begun: Literal["continued", "repeated", "obedient", "anew"] = "continued"
    model: str = "m"
    thought: str = ""

    @property
    def is_messages(self) -> bool:
        return "anthropic" in self.url


@dataclass
class Model:
    """One model of such a server, which dies after `dies_after` characters of all its replies."""

    server: Server
    dies_after: int | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    refuses: Callable[[Mapping[str, Any]], str | None] = lambda _: None

    def answer(self, request: CompletionRequest) -> httpx2.Response:
        body = json.loads(request.content)
        self.asked.append(body)
        self.urls.append(request.url)
        about = httpx2.Request("POST", request.url)
        if why := self.refuses(body):
            return httpx2.Response(400, json={"error": {"message": why}}, request=about)
        one, most = self._reply(body["messages"]), None
        if self.dies_after is not None:
            if self.dies_after <= len(one):
                self.dies_after, most = None, self.dies_after
            else:
                self.dies_after -= len(one)
        stream = messages_stream if self.server.is_messages else chat_stream
        text = "".join(stream(one, most))
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=Body(text, dies=most is not None), request=about)

    def _reply(self, sent: Sequence[Mapping[str, Any]]) -> Script:
        server, called = self.server, any(RESULT in json.dumps(one) for one in sent)
        whole = script(server.form, called=called, thought=server.thought)
        said = text_of(sent[-1])
        if sent[-1]["role"] == "assistant":
            assert server.begun in ("continued", "repeated"), "it was asked to go on with a message"
            assert whole.text.startswith(said), f"it was to go on with {said!r}"
            return Script(text=whole.text[0 if server.begun == "repeated" else len(said) :], call=whole.call)
        if GO_ON not in said or server.begun == "anew":
            return whole
        shown = next((text_of(one) for one in reversed(sent) if one["role"] == "assistant"), "")
        if server.begun in ("continued", "repeated"):
            why = "its API takes no such message" if server.is_messages and shown != shown.rstrip() else ""
            assert why or BROKEN_OFF in json.dumps(sent), "it could have gone on with the message"
        before = LAST if called else FIRST
        return Script(whole.thought, whole.text[min(len(before), len(shown)) :], whole.call)


def text_of(message: Mapping[str, Any]) -> str:
    content = message["content"] or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class Client(ModelClient):
    """A client of a model in this process; there is nothing else on its server."""

    def __init__(self, model: Model) -> None:
        super().__init__(None, verify=NO_TLS, trust_env=False)
        self.of = model

    async def send_completion(self, completion: CompletionRequest) -> httpx2.Response:
        return self.of.answer(completion)

    async def send(self, request: httpx2.Request, **_: Any) -> httpx2.Response:
        return httpx2.Response(404, request=request)


def provider_of(server: Server) -> tuple[HostedProvider, Client]:
    """A provider, whose model is to be set for each run."""
    client = Client(Model(server))
    calls = server.form if server.form in ("native", "fenced") else "tagged"
    overrides = AbilityOverrides(calls, window=32_768)
    kind = AnthropicMessages if server.is_messages else OpenAIChat
    return kind(client, server.url, server.model, "sk-key", overrides=overrides), client
