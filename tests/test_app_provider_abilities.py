"""What servers say of a model's window and tokens: each kind of server, and how seldom it is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.providers.abilities import (
    AGAIN_S,
    BATCH_CHARACTERS,
    BATCH_TEXTS,
    NOTHING,
    Abilities,
    Endpoint,
    batches,
    listed,
    llama_counts,
    of_slot,
    vllm_counts,
)
from app.providers.http import model_client
from app.providers.too_long import LARGEST, SMALLEST
from tests.chatting import LIMIT_S
from tests.upstream import Act, Paths, Upstream, answer, hang, upstream

pytestmark = pytest.mark.anyio
MISSING = answer('{"error":"not found"}', 404)


def models(**entry: object) -> Act:
    return answer(json.dumps({"object": "list", "data": [{"id": "other", "max_model_len": 700}, {"id": "m"} | entry]}))


def said(value: object) -> Act:
    return answer(json.dumps(value))


SLOT = said({"default_generation_settings": {"n_ctx": 4096, "params": {}}, "total_slots": 2})
# What each kind of server answers where it is asked, and what is learned from that.
SERVERS: dict[str, tuple[Mapping[str, Act], int | None]] = {
    "llama.cpp": ({"/v1/models": models(meta={"n_ctx_train": 131_072}), "/props?model=m": SLOT}, 4096),
    "vLLM": ({"/v1/models": models(owned_by="vllm", max_model_len=8192)}, 8192),
    "Groq": ({"/v1/models": models(context_window=131_072, max_completion_tokens=32_768)}, 131_072),
    "OpenRouter": ({"/v1/models": models(context_length=1_000_000, top_provider={"context_length": 65_536})}, 65_536),
    "Mistral": ({"/v1/models": models(max_context_length=32_768)}, 32_768),
    "LM Studio": (
        {
            "/v1/models": models(),
            "/api/v0/models": models(state="loaded", max_context_length=131_072, loaded_context_length=4096),
        },
        4096,
    ),
    "Ollama": ({"/v1/models": models(), "/api/ps": said({"models": [{"name": "m", "context_length": 4096}]})}, 4096),
    "Ollama, not loaded yet": ({"/v1/models": models(), "/api/ps": said({"models": []})}, None),
    "one that says nothing": ({"/v1/models": models()}, None),
    "one with odd numbers": (
        {"/v1/models": models(max_model_len="8192", context_length=True, context_window=-1)},
        None,
    ),
    "one with numbers that no window has": (
        {"/v1/models": models(max_model_len=1, context_length=10**40), "/props?model=m": said(0)},
        None,
    ),
    "one that lists other things": ({"/v1/models": said([1, {"data": None}])}, None),
    "no JSON": ({"/v1/models": answer("<html>"), "/props?model=m": answer("<html>")}, None),
}


@asynccontextmanager
async def endpoint(acts: Mapping[str, Act]) -> AsyncGenerator[tuple[Endpoint, Upstream], None]:
    paths = Paths(acts)
    async with asyncio.timeout(LIMIT_S), upstream(paths, repeat=True) as server:
        paths.server = server
        async with model_client(server.base_url) as client:
            yield Endpoint(client, server.base_url, "m", "sk-1"), server


@pytest.mark.parametrize("kind", SERVERS)
async def test_the_window_is_what_the_server_has_room_for(kind: str) -> None:
    acts, window = SERVERS[kind]
    async with endpoint(acts) as (one, server):
        assert await Abilities().window(one) == window
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer sk-1"}


async def test_it_is_asked_once_however_many_ask() -> None:
    async with endpoint(SERVERS["llama.cpp"][0]) as (one, server):
        abilities = Abilities()
        assert await asyncio.gather(*(abilities.window(one) for _ in range(20))) == [4096] * 20
        assert [asked.path for asked in server.asked] == ["/v1/models", "/props?model=m"]
        other = Endpoint(one.client, one.base_url, "other", "sk-1")
        assert await abilities.window(other) == 700  # each model of its own


async def test_after_a_failure_it_is_asked_again_but_not_at_once() -> None:
    now = 0.0
    acts: dict[str, Act] = {"/v1/models": answer("{}", 503)}
    async with endpoint(acts) as (one, server):
        abilities = Abilities(clock=lambda: now)
        for _ in range(5):
            assert await abilities.window(one) is None
        assert len(server.asked) == 1
        acts["/v1/models"] = models(max_model_len=8192)
        now = AGAIN_S
        assert await abilities.window(one) == 8192


async def test_whoever_asked_and_left_keeps_nobody_from_asking() -> None:
    begun, acts = asyncio.Event(), dict[str, Act]()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.set()
        await hang(reader, writer)

    acts["/v1/models"] = silent
    async with endpoint(acts) as (one, _):
        abilities = Abilities()
        first = asyncio.create_task(abilities.window(one))
        await begun.wait()
        acts["/v1/models"] = models(max_model_len=8192)
        second = asyncio.create_task(abilities.window(one))
        first.cancel()
        assert await second == 8192


async def hung_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_a_connection_that_had_ended_is_no_failure() -> None:
    async with asyncio.timeout(LIMIT_S), upstream(hung_up, models(max_model_len=8192)) as server:
        async with model_client(server.base_url) as client:
            assert await Abilities().window(Endpoint(client, server.base_url, "m")) == 8192


async def test_nobody_there_is_no_window() -> None:
    async with endpoint({}) as (one, _):
        gone = Endpoint(one.client, "http://127.0.0.1:9/v1", "m")
        assert await Abilities().window(gone) is None
        assert await Abilities().count(gone, ["a"]) is None


async def test_a_silent_server_is_given_up() -> None:
    async with endpoint({"/v1/models": hang}) as (one, _):
        assert await Abilities(limit_s=0.05).window(one) is None


async def test_a_hosted_service_is_asked_once_and_not_for_what_only_local_ones_have() -> None:
    asked, now = [], 0.0

    def hosted(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        found = request.url.path == "/v1/models"
        return httpx2.Response(200 if found else 404, json={"data": [{"id": "m"}]} if found else {})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(hosted)) as client:
        one, abilities = Endpoint(client, "https://api.example.com/v1", "m"), Abilities(clock=lambda: now)
        for now in (0.0, AGAIN_S, 2 * AGAIN_S):  # noqa: B007 (the clock)
            assert await abilities.window(one) is None
            assert await abilities.count(one, ["a"]) is None
    assert asked == ["/v1/models", "/props"]


TEXTS = ["one", "", "two words", "\ud800 é"]


async def test_llama_cpp_counts_many_texts_in_one_request() -> None:
    tokens = said({"tokens": [5, -1, -1, 6, 7, -1, 8, 9, 10, -1]})
    async with endpoint({"/props?model=m": SLOT, "/tokenize": tokens}) as (one, server):
        assert await Abilities().count(one, TEXTS) == [1, 0, 2, 3]
    [asked] = [asked for asked in server.asked if asked.path == "/tokenize"]
    assert asked.json["content"] == ["one", -1, "", -1, "two words", -1, "\ufffd é", -1]


async def test_vllm_counts_one_text_at_a_time() -> None:
    acts = {"/v1/models": models(max_model_len=8192), "/tokenize": said({"count": 3, "tokens": [1, 2, 3]})}
    async with endpoint(acts) as (one, server):
        assert await Abilities().count(one, TEXTS) == [3, 3, 3, 3]
        assert await Abilities().count(one, []) == []
    assert sorted(asked.json["prompt"] for asked in server.asked if asked.path == "/tokenize") == sorted(
        ["one", "", "two words", "\ufffd é"]
    )
    assert {asked.json["add_special_tokens"] for asked in server.asked if asked.path == "/tokenize"} == {False}


@pytest.mark.parametrize(
    ("act", "asked"),
    [
        (MISSING, 1),
        (said({"tokens": [1, 2, 3]}), 1),
        (said({"tokens": "many"}), 1),
        (answer("<html>"), 1),
        (said({"tokens": [-1] * 2}), 1),  # nothing at all in so long a text
        (said({"tokens": [*[5] * 9000, -1, 5, -1]}), 1),  # more than it has bytes
        (answer("{}", 503), 3),
        (answer("{}", 429), 3),
    ],
)
async def test_a_server_that_cannot_count_is_not_asked_again(act: Act, asked: int) -> None:
    async with endpoint({"/props?model=m": SLOT, "/tokenize": act}) as (one, server):
        abilities = Abilities()
        for _ in range(3):
            assert await abilities.count(one, ["a" * 1000, "b"]) is None
        assert await abilities.window(one) == 4096
    assert len([one for one in server.asked if one.path == "/tokenize"]) == asked


@given(
    st.lists(st.text(max_size=20) | st.integers(0, 2 * BATCH_CHARACTERS).map("x".__mul__), max_size=20),
    st.integers(1, 9),
)
def test_batches_hold_all_texts_in_order_and_not_too_many(texts: list[str], most: int) -> None:
    made = list(batches(texts, most))
    assert [text for batch in made for text in batch] == [
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts
    ]
    assert all(0 < len(batch) <= most for batch in made)
    assert all(sum(map(len, batch)) <= BATCH_CHARACTERS for batch in made if len(batch) > 1)
    assert len(list(batches(["x"] * 1000, BATCH_TEXTS))) == 4


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(4096) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["data", "id", "models", "name", "max_model_len", "tokens", "count", "n_ctx", "top_provider"]
            )
            | st.just("default_generation_settings"),
            inner,
            max_size=4,
        )
    ),
)


@given(json_values)
def test_any_json_is_read_without_a_fault(value: Any) -> None:
    for known in (listed(value, "m"), of_slot(value, "m")):
        assert known == NOTHING or (known.window is not None and SMALLEST <= known.window <= LARGEST)
    for counts in (llama_counts(value), vllm_counts(value)):
        assert counts is None or all(count >= 0 for count in counts)
