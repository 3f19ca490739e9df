"""What a model is asked besides messages and tools: under the names that its server takes, without what it refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.provider import Finished, ModelRequest, ProviderNotice, TextChunk
from app.models.capabilities.server_profiles import OTHERS, PROFILES, profile_of
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.parameters import REFUSED_S, Parameters, named_in
from tests.support.models.answers import FIXTURES
from tests.support.models.chatting import BASH, HELLO, WHOLE, chat_with, failure_of, pieces_of
from tests.support.models.upstream import answer, upstream
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

USAGE = {"include_usage": True}
HI = [TextChunk("Hi"), Finished("stop")]
# As servers have worded it, with what each is about.
REFUSALS = {
    "OpenAI, its thinkers": (
        '{"error":{"message":"Unsupported parameter: \'max_tokens\' is not supported with this model. Use '
        '\'max_completion_tokens\' instead.","type":"invalid_request_error","param":"max_tokens","code":'
        '"unsupported_parameter"}}',
        {"max_tokens"},
    ),
    "OpenAI, of a value": (
        '{"error":{"message":"Unsupported value: \'temperature\' does not support 0.5 with this model.","type":'
        '"invalid_request_error","param":"temperature","code":"unsupported_value"}}',
        {"temperature"},
    ),
    "a gateway that leaves param out": (
        '{"error":{"message":"Unsupported parameter: \'max_tokens\' is not supported with this model.","code":'
        '"invalid_request_body"}}',
        {"max_tokens"},
    ),
    "Mistral": (
        '{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options",'
        '"include_usage"],"msg":"Extra inputs are not permitted","input":true}]},"type":"invalid_request_error",'
        '"param":null,"code":null}',
        {"stream_options"},
    ),
    "FastAPI": ('{"detail":[{"type":"x","loc":["body","temperature"],"msg":"Input should be less"}]}', {"temperature"}),
    "vLLM": ((FIXTURES / "vllm/refused_effort.json").read_text(), {"reasoning_effort"}),
    "vLLM, of a value": ((FIXTURES / "vllm/refused_temperature.json").read_text(), {"temperature"}),
    "LiteLLM": ((FIXTURES / "litellm/refused_effort.json").read_text(), {"reasoning_effort"}),
    "LiteLLM, of a value": ((FIXTURES / "litellm/refused_temperature.json").read_text(), {"temperature"}),
    "llama.cpp": (
        '{"error":{"code":400,"message":"Field \'temperature\': type must be number, but is string","type":'
        '"invalid_request_error"}}',
        {"temperature"},
    ),
    "Moonshot": (
        '{"error":{"message":"invalid temperature: only 1 is allowed for this model","type":"invalid_request_error"}}',
        {"temperature"},
    ),
    "a sentence": ("stream_options is not supported", {"stream_options"}),
    "another field": ('{"error":{"message":"temperature of the room","param":"messages.[0].content"}}', {"messages"}),
    "something else": ('{"error":{"message":"no such model"}}', set()),
    "the request behind the complaint": (json.dumps({"detail": "bad request" + " " * 300 + "temperature"}), set()),
    "nothing": ("", set()),
}


@pytest.mark.parametrize("server", REFUSALS)
def test_a_refusal_names_what_it_is_about(server: str) -> None:
    said, expected = REFUSALS[server]
    assert named_in(said) == expected


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_refusal_can_be_read(body: Any) -> None:
    named_in(json.dumps(body))


def test_a_refusal_that_is_nested_too_deep_names_nothing() -> None:
    assert named_in("[" * 5000) == named_in(json.dumps({"a": [[[[[[[{"param": "temperature"}]]]]]]]})) == set()


async def asked_of(acts: Sequence[Any], request: ModelRequest, **options: Any) -> tuple[list[Any], list[Any]]:
    """The pieces of two answers, and the bodies of all requests that they took."""
    async with upstream(*acts) as server, chat_with(server, **options) as chat:
        pieces = [await pieces_of(chat, request) for _ in range(2)]
    return pieces, [asked.json for asked in server.asked]


async def test_what_is_refused_is_left_out() -> None:
    acts = [answer(REFUSALS[name][0], 422) for name in ("Mistral", "Moonshot")] + [WHOLE, WHOLE]
    (first, second), bodies = await asked_of(acts, ModelRequest([HELLO], [BASH], temperature=0.5))
    lost = ProviderNotice("parameter", "The model's server refuses temperature: requests are sent without it.")
    assert (first, second) == ([lost, *HI], HI)
    assert [("stream_options" in body, "temperature" in body) for body in bodies] == [
        *((True, True), (False, True), (False, False), (False, False))
    ]
    assert all("tools" in body for body in bodies)  # which were not what it refused


def test_what_was_refused_is_tried_again_after_a_while() -> None:
    """Behind the same URL there may be another server by then."""
    now = 0.0
    parameters = Parameters(OTHERS, lambda: now)
    for now in (0.0, REFUSED_S):  # noqa: B007 (the clock)
        sent = parameters.fields("m", 9, 0.5)
        assert "temperature" in sent
        assert parameters.learn(400, "temperature is not supported", sent)
        assert "temperature" not in parameters.fields("m", 9, 0.5)


async def test_a_limit_has_two_names() -> None:
    acts = [answer(REFUSALS["OpenAI, its thinkers"][0], 400), WHOLE, WHOLE]
    (first, _), bodies = await asked_of(acts, ModelRequest([HELLO], max_tokens=9))
    assert first == HI
    assert [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in bodies] == [
        *((9, None), (None, 9), (None, 9))
    ]


async def test_a_limit_that_has_no_name_is_told() -> None:
    refused = [answer(json.dumps({"error": {"param": name}}), 400) for name in ("max_tokens", "max_completion_tokens")]
    (first, second), bodies = await asked_of([*refused, WHOLE, WHOLE], ModelRequest([HELLO], max_tokens=9))
    assert [type(piece) for piece in first] == [ProviderNotice, TextChunk, Finished] and second == HI
    assert [sum("max" in name for name in body) for body in bodies] == [1, 1, 0, 0]


async def test_a_person_is_told_what_is_lost(tmp_path: Path) -> None:
    acts = [answer(REFUSALS["OpenAI, of a value"][0], 400), WHOLE]
    async with upstream(*acts, chats=True) as server, chat_with(server, defaults=RequestDefaults(None, 0.5)) as chat:
        async with serving(tmp_path, chat, window=32_768) as served:
            events = await served.chat("Hello")
    (notice,) = [event for event in events if event["type"] == "notice"]
    assert notice["code"] == "parameter" and "temperature" in notice["message"]
    assert events[-1]["text"] == "Hi"


@pytest.mark.parametrize("status", [400, 422])
async def test_a_refusal_of_what_was_not_sent_fails(status: int) -> None:
    said = answer('{"error":{"message":"temperature is too high"}}', status)
    async with upstream(said) as server, chat_with(server) as chat:
        assert (await failure_of(chat))[1].code == "model_rejected"
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("default", "asked", "sent"), [(9, 100, 9), (100, 9, 9), (9, None, 9), (None, 9, 9), (None, None, None), (0, 9, 0)]
)
async def test_the_smaller_limit_counts(default: int | None, asked: int | None, sent: int | None) -> None:
    async with upstream(WHOLE) as server, chat_with(server, defaults=RequestDefaults(default)) as chat:
        await pieces_of(chat, ModelRequest([HELLO], max_tokens=asked))
    assert server.asked[0].json.get("max_tokens") == sent


@pytest.mark.parametrize(
    ("url", "model", "names"),
    [
        ("https://api.openai.com/v1", "gpt-4.1", {"stream_options", "max_completion_tokens"}),
        ("https://api.mistral.ai/v1", "mistral-medium", {"max_tokens"}),
        ("https://openrouter.ai/api/v1", "openai/o4-mini", {"stream_options", "max_completion_tokens"}),
        ("https://openrouter.ai/api/v1", "qwen/qwen3", {"stream_options", "max_tokens"}),
        ("http://127.0.0.1:8080/v1", "local", {"stream_options", "max_tokens"}),
    ],
)
def test_each_server_is_asked_in_its_own_words(url: str, model: str, names: set[str]) -> None:
    assert Parameters(profile_of(url)).fields(model, 9, None).keys() == names


def test_each_server_is_known_by_its_address() -> None:
    for row in PROFILES:
        assert all(profile_of(f"https://{host}/v1") is row for host in row.hosts)
        assert row.port is None or profile_of(f"http://127.0.0.1:{row.port}/v1") is row
    for url in (
        "https://example.com/v1",
        "https://example.com:8080/v1",
        "http://127.0.0.1:9/v1",
        "http://localhost/v1",
    ):
        assert profile_of(url) is OTHERS
