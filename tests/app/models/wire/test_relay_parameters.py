"""A client's parameters on their way to the model's server: as they are, but for what the server refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import Finished, ModelRequest, ProviderNotice, TextChunk
from app.models.capabilities.server_profiles import OTHERS
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.parameters import ENFORCED, FORMAT, MOST_KEPT, REFUSED_S, Parameters, key_of
from app.models.wire.structured_output import instruction
from tests.support.models.chatting import (
    BASH,
    DONE,
    HELLO,
    WHOLE,
    chat_with,
    chunk,
    failure_of,
    pieces_of,
    refusal,
    says,
)
from tests.support.models.upstream import Act, stream, upstream

pytestmark = pytest.mark.anyio

HI = [TextChunk("Hi"), Finished("stop")]
READ = replace(BASH, name="read_file")
NAMED = {"type": "function", "function": {"name": "bash"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
PERSON = {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}}
OBJECT = {"type": "json_object"}


def relayed(*, tools: Any = (), **parameters: Any) -> ModelRequest:
    return ModelRequest([HELLO], tools, verbatim=True, parameters=parameters)


async def bodies_of(*acts: Act, request: ModelRequest, times: int = 1, **options: Any) -> list[Any]:
    """The bodies of all requests that so many answers took."""
    async with upstream(*acts) as server, chat_with(server, **options) as chat:
        for _ in range(times):
            pieces = await pieces_of(chat, request)
            assert pieces[-2:] == HI
    return [asked.json for asked in server.asked]


async def test_parameters_go_into_the_body_as_they_are() -> None:
    given = {"top_p": 0.5, "seed": 7, "stop": ["x"], "logit_bias": {"1": 2}, "of_a_server": {"a": [1]}, FORMAT: PERSON}
    (body,) = await bodies_of(WHOLE, request=relayed(**given))
    assert given.items() <= body.items()


async def test_the_provider_s_own_fields_stay_its_own() -> None:
    given = {"stream": False, "model": "x", "messages": [], "tools": [], "stream_options": {}, "user": None}
    (body,) = await bodies_of(WHOLE, request=relayed(**given))
    hello = [{"role": "user", "content": "Hello"}]
    assert body == {"model": "m", "messages": hello, "stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize(
    ("given", "default", "sent"),
    [
        ({"max_tokens": 9, "temperature": 0}, RequestDefaults(), (9, 0)),
        ({"max_completion_tokens": 9, "temperature": 0.5}, RequestDefaults(99, 1.0), (9, 0.5)),
        ({"max_completion_tokens": 9, "max_tokens": 5}, RequestDefaults(), (9, None)),
        ({"max_tokens": 99}, RequestDefaults(9, 1.0), (9, 1.0)),
        ({"max_tokens": "9", "temperature": True}, RequestDefaults(), (None, None)),
        ({}, RequestDefaults(9, 1.0), (9, 1.0)),
    ],
)
async def test_limit_and_temperature_are_the_client_s(given: Any, default: RequestDefaults, sent: Any) -> None:
    (body,) = await bodies_of(WHOLE, request=relayed(**given), defaults=default)
    assert (body.get("max_tokens"), body.get("temperature")) == sent
    assert "max_completion_tokens" not in body


async def test_a_client_s_limit_gets_the_name_that_its_server_takes() -> None:
    refused = refusal("Unsupported parameter: 'max_tokens'", "max_tokens")
    _, body = await bodies_of(refused, WHOLE, request=relayed(max_tokens=9))
    assert body["max_completion_tokens"] == 9 and "max_tokens" not in body


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"thinking": {"type": "adaptive"}}, False),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, False),
        ({"output_config": {"effort": "high"}}, False),
        ({"thinking": {"type": "disabled"}}, True),
        ({"thinking": {"type": "enabled"}}, True),
    ],
)
async def test_forms_that_are_anthropic_s_alone_stay_away_from_other_hosts(given: Any, kept: bool) -> None:
    (body,) = await bodies_of(WHOLE, request=relayed(**given))
    assert (given.items() <= body.items()) is kept


TOO_LARGE = (
    "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 tokens "
    "and your request has 1000 input tokens (32000 > 32768 - 1000)."
)


async def test_a_limit_that_the_window_has_no_room_for_is_left_out() -> None:
    """Claude Code sends 32,000 whatever the model."""
    asked = relayed(max_tokens=32_000)
    first, second = await bodies_of(refusal(TOO_LARGE), WHOLE, request=asked)
    assert first["max_tokens"] == 32_000 and "max_tokens" not in second


async def test_a_prompt_that_is_too_long_by_itself_is_refused() -> None:
    refused = [refusal("This model's maximum context length is 32768 tokens.")] * 2
    async with upstream(*refused) as server, chat_with(server) as chat:
        _, failure = await failure_of(chat, relayed(max_tokens=32_000))
        assert (failure.code, failure.window, len(server.asked)) == ("model_context", 32_768, 2)


@pytest.mark.parametrize("status", [400, 422])
async def test_a_refusal_reaches_the_client_in_the_server_s_words(status: int) -> None:
    words = "top_p must be at most 1"
    async with upstream(refusal(words, "top_p", status)) as server, chat_with(server) as chat:
        _, failure = await failure_of(chat, relayed(top_p=7))
    assert words in failure.message and (failure.status, failure.code) == (status, "model_rejected")
    assert len(server.asked) == 1


async def test_a_refused_parameter_is_not_blamed_on_the_tools() -> None:
    refused = [refusal("top_p must be at most 1")] * 2
    async with upstream(*refused, WHOLE) as server, chat_with(server) as chat:
        _, failure = await failure_of(chat, relayed(tools=[BASH], top_p=7))
        assert "top_p" in failure.message and chat.native_tools


@pytest.mark.parametrize(
    "name", ["parallel_tool_calls", "reasoning_effort", "prompt_cache_key", "store", "metadata", "top_k", "thinking"]
)
async def test_hints_that_a_server_refuses_are_left_out(name: str) -> None:
    """Clients send them on their own account."""
    async with (
        upstream(refusal("Extra inputs are not permitted", name), WHOLE, WHOLE) as server,
        chat_with(server) as chat,
    ):
        request = relayed(tools=[BASH], **{name: "x"})
        first, second = [await pieces_of(chat, request) for _ in range(2)]
        assert chat.native_tools
    (notice, *rest) = first
    assert isinstance(notice, ProviderNotice) and name in notice.message
    assert rest == second == HI
    assert [name in asked.json for asked in server.asked] == [True, False, False]
    assert all("tools" in asked.json for asked in server.asked)


async def test_thinking_that_a_server_does_not_know_is_left_out() -> None:
    refused = refusal("Unrecognized request argument supplied: thinking")
    async with upstream(refused, WHOLE) as server, chat_with(server) as chat:
        await pieces_of(chat, relayed(thinking={"type": "disabled"}))
    assert ["thinking" in asked.json for asked in server.asked] == [True, False]


@pytest.mark.parametrize("param", ["reasoning_effort", "body.reasoning_effort"])
async def test_another_effort_may_be_taken(param: str) -> None:
    refused = refusal("Unsupported value", param)
    async with upstream(refused, WHOLE, WHOLE) as server, chat_with(server) as chat:
        await pieces_of(chat, relayed(reasoning_effort="xhigh"))
        await pieces_of(chat, relayed(reasoning_effort="low"))
    assert [asked.json.get("reasoning_effort") for asked in server.asked] == ["xhigh", None, "low"]


async def test_a_choice_of_tools_goes_with_the_tools() -> None:
    given = {"tool_choice": "none", "parallel_tool_calls": False}
    (body,) = await bodies_of(WHOLE, request=relayed(tools=[BASH], **given))
    assert given.items() <= body.items() and "tools" in body
    (body,) = await bodies_of(WHOLE, request=relayed(**given))
    assert not given.keys() & body.keys()


@pytest.mark.parametrize("choice", ["required", NAMED])
async def test_a_choice_that_a_thinking_model_refuses_is_left_out_and_its_tools_stay(choice: Any) -> None:
    words = "tool_choice 'required' is incompatible with thinking enabled"
    async with upstream(refusal(words), WHOLE, WHOLE, WHOLE) as server, chat_with(server) as chat:
        for wanted in (choice, choice, "auto"):
            await pieces_of(chat, relayed(tools=[BASH], tool_choice=wanted))
        assert chat.native_tools
    assert [asked.json.get("tool_choice") for asked in server.asked] == [choice, None, None, "auto"]
    assert all("tools" in asked.json for asked in server.asked)


async def test_a_server_that_calls_only_on_demand_is_taught_the_tools() -> None:
    """vLLM without its parser of calls."""
    words = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    async with upstream(refusal(words), WHOLE) as server, chat_with(server) as chat:
        await pieces_of(chat, relayed(tools=[BASH], tool_choice="auto"))
        assert not chat.native_tools
    assert not {"tools", "tool_choice"} & server.asked[1].json.keys()


async def test_a_named_tool_is_the_only_one_of_a_local_server() -> None:
    """They take words alone, or ignore the choice."""
    request = relayed(tools=[BASH, READ], tool_choice=NAMED)
    (body,) = await bodies_of(WHOLE, request=request)
    assert (body["tool_choice"], len(body["tools"])) == (NAMED, 2)
    async with upstream(WHOLE) as server, chat_with(server) as chat:
        chat.show("counting", "llama.cpp", "a count")
        await pieces_of(chat, request)
    body = server.asked[0].json
    assert (body["tool_choice"], [one["function"]["name"] for one in body["tools"]]) == ("required", ["bash"])


FORMAT_REFUSALS = [
    ("This response_format type is unavailable now", None),
    ("Invalid parameter", "response_format"),
    ("This model does not support response format `json_schema`.", None),
    ("'response_format.type' must be 'text'", None),
]


@pytest.mark.parametrize(("words", "param"), FORMAT_REFUSALS)
@pytest.mark.parametrize("status", [400, 422])
async def test_a_refused_format_is_asked_for_in_the_prompt(words: str, param: str | None, status: int) -> None:
    refused = refusal(words, param, status)
    async with upstream(refused, refused, WHOLE, WHOLE) as server, chat_with(server) as chat:
        request = replace(relayed(tools=[BASH], **{FORMAT: PERSON}), messages=[Message("system", "Be kind."), HELLO])
        first, second = [await pieces_of(chat, request) for _ in range(2)]
        assert chat.native_tools
    assert first == [ProviderNotice("parameter", ENFORCED)] * 2 + HI and second == HI
    assert [asked.json.get(FORMAT) for asked in server.asked] == [PERSON, OBJECT, None, None]
    systems = [asked.json["messages"][0]["content"] for asked in server.asked]
    assert systems == ["Be kind."] + [f"Be kind.\n\n{instruction(PERSON)}"] * 3


async def test_a_server_that_ignores_the_format_is_asked_in_the_prompt_from_then_on() -> None:
    wrote = stream(says("Here: "), says('{"a": 1}.'), chunk(finish="stop"), DONE)
    async with upstream(wrote, wrote) as server, chat_with(server) as chat:
        first, second = [await pieces_of(chat, relayed(**{FORMAT: PERSON})) for _ in range(2)]
    assert "".join(piece.text for piece in first if isinstance(piece, TextChunk)) == 'Here: {"a": 1}.'
    assert second == [TextChunk('{"a": 1}'), Finished("stop")]
    assert [asked.json[FORMAT] for asked in server.asked] == [PERSON, OBJECT]
    assert [asked.json["messages"][0]["role"] for asked in server.asked] == ["user", "system"]


async def test_any_json_is_requested_where_only_schemas_are_refused() -> None:
    acts = [refusal("json_schema is not supported", "response_format"), WHOLE, WHOLE]
    bodies = await bodies_of(*acts, request=relayed(**{FORMAT: PERSON}), times=2)
    assert [body[FORMAT] for body in bodies] == [PERSON, OBJECT, OBJECT]
    assert json.dumps(SCHEMA) in bodies[-1]["messages"][0]["content"]


async def test_the_refusal_of_one_schema_says_nothing_of_others() -> None:
    other = {"type": "json_schema", "json_schema": {"name": "o", "schema": {"type": "object"}}}
    acts = [refusal("Failed to initialize samplers: failed to parse grammar"), WHOLE, WHOLE, WHOLE]
    async with upstream(*acts) as server, chat_with(server) as chat:
        for wanted in (PERSON, other, PERSON):
            await pieces_of(chat, relayed(**{FORMAT: wanted}))
    assert [asked.json[FORMAT] for asked in server.asked] == [PERSON, OBJECT, other, OBJECT]


async def test_a_complaint_about_the_messages_is_the_client_s() -> None:
    words = "'messages' must contain the word 'json' to use 'response_format' of type 'json_object'"
    async with upstream(refusal(words, "messages")) as server, chat_with(server) as chat:
        _, failure = await failure_of(chat, relayed(**{FORMAT: OBJECT}))
    assert words in failure.message


async def test_text_needs_no_prompt() -> None:
    (body,) = await bodies_of(WHOLE, request=relayed(**{FORMAT: {"type": "text"}}))
    assert body[FORMAT] == {"type": "text"} and len(body["messages"]) == 1


def test_a_refused_format_is_tried_again_after_a_while_and_few_are_kept() -> None:
    now = 0.0
    parameters = Parameters(OTHERS, lambda: now)
    assert parameters.learn(400, "no response_format", {FORMAT: OBJECT}) == {FORMAT}
    assert parameters.accepted_format({FORMAT: OBJECT}) is None
    now = REFUSED_S
    assert parameters.accepted_format({FORMAT: OBJECT}) == OBJECT
    for number in range(2 * MOST_KEPT):
        parameters.learn(400, "bad grammar", {FORMAT: PERSON | {"n": number}})
    assert len(parameters._refused_at) <= MOST_KEPT + 1
    assert key_of(FORMAT, PERSON | {"n": 2 * MOST_KEPT - 1}) in parameters._refused_at
