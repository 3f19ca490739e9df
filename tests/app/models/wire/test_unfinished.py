"""Going on with an answer that broke off: what each server is sent, and what of its answer is left out."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from app.core.messages import AskedCall, Message
from app.core.provider import Finished, ModelRequest, Piece, ProviderFailed, TextChunk
from app.models.capabilities.server_profiles import BY_NAME
from app.models.wire.unfinished import unfinished, without_repetition
from parsing import CallOpened, Thought
from tests.support.models.chatting import pieces_of
from tests.support.models.switching import Model, Server, provider_of
from tests.support.models.targets import said

pytestmark = pytest.mark.anyio
GO_ON = "Go on with it."
HELLO, REMINDER = Message("user", "Hello"), Message("user", GO_ON)
HALF = Message("assistant", "I keep <tool_call>", shown="I keep ", cut=True)
MORE = Message("assistant", "it in", cut=True)
CALL = AskedCall("c1", "note", {}, "hermes")
CALLED, RESULT = Message("assistant", "", calls=(CALL,)), Message("tool", "Done.", call="c1")
LAST = Message("user", "This is the last round.")

# messages -> the text that is to go on, and the messages in front of it; None where a prefix would not do
HISTORIES: dict[str, tuple[Sequence[Message], str, Sequence[Message] | None]] = {
    "one reply": ([HELLO, HALF, REMINDER], "I keep ", [HELLO]),
    "two parts": ([HELLO, HALF, MORE, REMINDER], "I keep it in", [HELLO]),
    "with other notes": ([HELLO, HALF, REMINDER, LAST], "I keep ", [HELLO, LAST]),
    "a call that was whole": (
        [HELLO, Message("assistant", "I do.", calls=(CALL,), cut=True), Message("tool", "no", call="c1"), REMINDER],
        "I do.",
        None,
    ),
    "behind a result": ([HELLO, CALLED, RESULT, HALF, REMINDER], "I keep ", [HELLO, CALLED, RESULT]),
    "a message between": (
        [HELLO, HALF, Message("user", "Stop!"), REMINDER],
        "",
        [HELLO, HALF, Message("user", "Stop!")],
    ),
    "a reply that was whole": ([HELLO, Message("assistant", "Hi"), REMINDER], "", [HELLO, Message("assistant", "Hi")]),
}


@pytest.mark.parametrize(("messages", "text", "before"), HISTORIES.values(), ids=HISTORIES)
def test_the_reply_that_broke_off(messages: Sequence[Message], text: str, before: Sequence[Message] | None) -> None:
    found = unfinished(ModelRequest(messages, go_on=GO_ON))
    assert (found.text, found.before and found.before.messages) == (text, before)


REPEATED: dict[str, tuple[Sequence[Piece], str]] = {
    "all of it, in pieces": ([TextChunk("I ke"), TextChunk("ep it"), TextChunk(" in.")], " in."),
    "behind white space": ([TextChunk("\n\nI keep it in.")], " in."),
    "until it says something else": ([TextChunk(" I ke"), TextChunk("ep the"), TextChunk("m.")], " I keep them."),
    "white space in front of a call": ([TextChunk("\n"), CallOpened(0, "note"), TextChunk("I keep it")], "\nI keep it"),
    "only its beginning": ([TextChunk("I keep"), CallOpened(0, "note")], ""),
    "behind a thought": ([Thought("Hm."), TextChunk("I keep it"), TextChunk(".")], "."),
    "no word of it": ([TextChunk(" in a note, as I keep it.")], " in a note, as I keep it."),
    "another beginning": ([TextChunk("I "), TextChunk("do not.")], "I do not."),
}


@pytest.mark.parametrize(("pieces", "left"), REPEATED.values(), ids=REPEATED)
async def test_what_is_repeated_is_left_out(pieces: Sequence[Piece], left: str) -> None:
    async def answer() -> AsyncGenerator[Piece, None]:
        for piece in (*pieces, Finished("stop")):
            yield piece

    async with aclosing(without_repetition(answer(), "I keep it")) as kept:
        seen = [piece async for piece in kept]
    assert said(seen) == left
    others = [piece for piece in pieces if not isinstance(piece, TextChunk)]
    assert [piece for piece in seen if not isinstance(piece, TextChunk)] == [*others, Finished("stop")]


def hosted(name: str) -> str:
    return f"https://{BY_NAME[name].hosts[0]}/v1"


PREFIX = {"role": "assistant", "content": "I keep"}
# server -> the last message, other fields, where they are sent
SERVERS: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "llama.cpp": ("http://127.0.0.1:8080/v1", PREFIX, {}, "/v1/chat/completions"),
    "vLLM": (
        "http://127.0.0.1:8000/v1",
        PREFIX,
        {"continue_final_message": True, "add_generation_prompt": False},
        "/v1/chat/completions",
    ),
    "SGLang": ("http://127.0.0.1:30000/v1", PREFIX, {"continue_final_message": True}, "/v1/chat/completions"),
    "DeepSeek": (hosted("DeepSeek"), PREFIX | {"prefix": True}, {}, "/beta/chat/completions"),
    "Mistral": (hosted("Mistral"), PREFIX | {"prefix": True}, {}, "/v1/chat/completions"),
    "Moonshot": (hosted("Moonshot"), PREFIX | {"partial": True}, {}, "/v1/chat/completions"),
    "Anthropic": (
        "https://api.anthropic.com/v1",
        {"role": "assistant", "content": [{"type": "text", "text": "I keep"}]},
        {},
        "/v1/messages",
    ),
}
BROKEN = [HELLO, Message("assistant", "I keep", cut=True), REMINDER]


@pytest.mark.parametrize(("url", "last", "fields", "path"), SERVERS.values(), ids=SERVERS)
async def test_each_server_is_asked_in_its_own_form(
    url: str, last: dict[str, Any], fields: dict[str, Any], path: str
) -> None:
    provider, client = provider_of(Server(url, "native", "repeated" if "mistral" in url else "continued"))
    assert provider.continues
    answer = said(await pieces_of(provider, ModelRequest(BROKEN, go_on=GO_ON)))
    assert answer.startswith(" it in a note"), "it begins with what follows"
    [body] = client.of.asked
    assert body["messages"][-1] == last and GO_ON not in json.dumps(body)
    assert body.items() >= fields.items() and client.of.urls[0].endswith(path)
    await provider.close()


async def test_another_server_at_a_known_port_may_begin_anew() -> None:
    provider, client = provider_of(Server("http://127.0.0.1:8080/v1", "native", "repeated"))
    answer = said(await pieces_of(provider, ModelRequest(BROKEN, go_on=GO_ON)))
    assert answer.startswith(" it in a note"), "nothing is shown twice"
    assert client.of.asked[0]["messages"][-1] == PREFIX
    await provider.close()


async def test_a_message_that_may_not_be_continued_is_followed_by_the_reminder() -> None:
    """White space at its end, a server that refuses, one that is not known to do it, a model that thinks first."""
    spaced = [HELLO, Message("assistant", "I keep ", cut=True), REMINDER]
    claude, at_claude = provider_of(Server("https://api.anthropic.com/v1", "native", "obedient"))
    other, at_other = provider_of(Server("http://127.0.0.1:9999/v1", "native", "obedient"))
    vllm, at_vllm = provider_of(Server("http://127.0.0.1:8000/v1", "native", "obedient"))
    at_vllm.of.refuses = lambda body: "no" if body["messages"][-1]["role"] == "assistant" else None
    for provider in (claude, other, vllm):
        await pieces_of(provider, ModelRequest(spaced, go_on=GO_ON))
    last = [client.of.asked[-1]["messages"][-1]["role"] for client in (at_claude, at_other, at_vllm)]
    assert last == ["user"] * 3 and len(at_vllm.of.asked) == 2
    assert (claude.continues, other.continues, vllm.continues) == (True, False, False)
    thinking, at_thinking = provider_of(Server("http://127.0.0.1:8000/v1", "native", "obedient"))
    thinking.show("reasoning", "apart", "an answer")
    assert not thinking.continues and at_thinking.of.asked == []
    for provider in (claude, other, vllm, thinking):
        await provider.close()


async def test_a_relayed_request_goes_to_no_server_that_needs_words() -> None:
    provider, client = provider_of(Server("http://127.0.0.1:9999/v1", "native"))
    relayed = ModelRequest(BROKEN[:2], go_on="", verbatim=True)
    with pytest.raises(ProviderFailed, match="cannot go on"):
        await pieces_of(provider, relayed)
    assert isinstance(client.of, Model) and client.of.asked == []
    await provider.close()
