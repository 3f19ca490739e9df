"""Window and tokens as a whole server learns them from a model server behind it, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.models.capabilities.abilities import AbilityOverrides
from app.models.http.client import model_client
from app.models.tokens.counter import DEFAULT_WINDOW
from app.models.wire.openai.provider import OpenAIChat
from tests.support.models.chatting import DONE, LIMIT_S, chunk, says
from tests.support.models.upstream import Act, Paths, Upstream, answer, stream, upstream
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
TALK = "And then she wrote of engines, of numbers and of music, at length. " * 40
TOO_LONG = (
    "This model's maximum context length is 4096 tokens. However, you requested 6000 tokens (5000 in the messages, "
    "1000 in the completion). Please reduce the length of the messages or completion."
)


def models(**entry: object) -> Act:
    return answer(json.dumps({"data": [{"id": "m"} | entry]}))


def chat(prompt_tokens: int) -> Act:
    used = {"choices": [], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 9}}
    return stream(says("Well. "), chunk(finish="stop"), f"data: {json.dumps(used)}\n\n", DONE)


@asynccontextmanager
async def behind(acts: Mapping[str, Act], folder: Path) -> AsyncGenerator[tuple[Served, Upstream], None]:
    paths = Paths(acts)
    async with asyncio.timeout(LIMIT_S), upstream(paths, repeat=True) as server:
        paths.server = server
        provider = OpenAIChat(model_client(server.base_url), server.base_url, "m", overrides=AbilityOverrides("fenced"))
        async with serving(folder, provider, summarise_at="1") as served:
            yield served, server


def asked_for(server: Upstream, path: str) -> int:
    return sum(asked.path == path for asked in server.asked)


async def test_a_limit_that_a_refusal_names_holds_from_then_on(tmp_path: Path) -> None:
    acts = {"/v1/models": models(), "/v1/chat/completions": chat(2000)}
    async with behind(acts, tmp_path) as (served, server):
        session = (await served.chat(TALK))[0]["session"]
        for _ in range(4):
            await served.chat(TALK, session=session)
        assert served.services.models.default.counter.known_window == DEFAULT_WINDOW
        acts["/v1/chat/completions"] = refusing_once(acts)
        events = await served.chat("Go on.", session=session)
        assert [event["code"] for event in events if event["type"] == "notice"] == ["context"]
        assert [event["type"] for event in events if event["type"].startswith("context.")] == ["context.trimmed"]
        assert events[-1]["reason"] == "answered"
        counter = served.services.models.default.counter
        assert counter.window_of(session) == 4096
        assert counter.known_window == DEFAULT_WINDOW, "one odd error does not change the model for all"
        asked = asked_for(server, "/v1/models")
        events = await served.chat("And on.", session=session)
        assert "notice" not in {event["type"] for event in events}
        assert asked_for(server, "/v1/models") == asked <= 1


def refusing_once(acts: dict[str, Act]) -> Act:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        acts["/v1/chat/completions"] = chat(2000)
        await answer(json.dumps({"error": {"message": TOO_LONG, "code": 400}}), 400)(reader, writer)

    return act


async def test_a_server_that_counts_is_asked_for_each_text_once(tmp_path: Path) -> None:
    acts = {
        "/v1/models": models(max_model_len=8192),
        "/tokenize": answer('{"count": 10, "tokens": []}'),
        "/v1/chat/completions": chat(100),
    }
    async with behind(acts, tmp_path) as (served, server):
        session = (await served.chat("One."))[0]["session"]
        assert served.services.models.default.counter.known_window == 8192
        first = asked_for(server, "/tokenize")
        for turn in range(5):
            await served.chat(f"Two {turn}.", session=session)
        texts = [asked.json["prompt"] for asked in server.asked if asked.path == "/tokenize"]
        assert len(texts) == len(set(texts)) <= first + 2 * 5  # a question, perhaps its answer
        assert asked_for(server, "/v1/models") == 1


async def test_a_service_that_says_nothing_is_believed_by_its_reports(tmp_path: Path) -> None:
    async with behind({"/v1/models": models(), "/v1/chat/completions": chat(100_000)}, tmp_path) as (served, server):
        session = (await served.chat("One."))[0]["session"]
        assert served.services.models.default.counter.scale == 1  # nobody takes one short question for so much
        server.asked.clear()
        await served.chat("Two.", session=session)
        assert [asked.path for asked in server.asked] == ["/v1/chat/completions"]
