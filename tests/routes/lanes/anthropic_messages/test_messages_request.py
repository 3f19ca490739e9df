"""Requests of Anthropic's Messages, as the reader takes them: what clients send, a row each."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from app.core.messages import AskedCall, Message, OpaqueMetadata
from routes.lanes.anthropic_messages.blocks import signature_of
from routes.lanes.anthropic_messages.request import CLIENT, read_request
from routes.lanes.lane import LaneRequest, Turn
from routes.protocol.errors import Refused
from tests.support.models.pictures import png

Fields = dict[str, Any]
USER = {"role": "user", "content": "Hello"}
OURS = signature_of(Turn("run_1", "ses_1", 1, "m", LaneRequest(model="m", messages=[])))
PICTURE = b64encode(png(2, 3)).decode()
SOURCE = {"type": "base64", "media_type": "image/png", "data": PICTURE}
IMAGE = {"type": "image", "source": SOURCE}
WEATHER = {
    "name": "get_weather",
    "description": "The weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
PLACES = OpaqueMetadata(
    CLIENT,
    {
        "before": "",
        "content": [
            {"type": "text", "characters": len("It rains.")},
            {"type": "gap", "characters": 2},
            {"type": "text", "characters": len("So stay.")},
        ],
    },
)
ASKED = AskedCall("c1", "get_weather", {"city": "Rome"}, "native")


def read(*messages: Fields, **more: Any) -> LaneRequest:
    return read_request({"model": "m", "max_tokens": 100, "messages": list(messages or (USER,)), **more})


def text(words: str, **more: Any) -> Fields:
    return {"type": "text", "text": words, **more}


def assistant(*blocks: Fields) -> Fields:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: Fields) -> Fields:
    return {"role": "user", "content": list(blocks)}


def tool_use(**more: Any) -> Fields:
    return {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Rome"}, **more}


def result(content: Any, **more: Any) -> Fields:
    return {"type": "tool_result", "tool_use_id": "c1", "content": content, **more}


CACHED = {"cache_control": {"type": "ephemeral"}}
CONVERSATIONS: dict[str, tuple[list[Fields], list[Message]]] = {
    "a string": ([USER], [Message("user", "Hello")]),
    "text blocks": ([user(text("One", **CACHED), text("Two"))], [Message("user", "One\nTwo")]),
    "calls and thoughts of ours": (
        [
            USER,
            assistant({"type": "thinking", "thinking": "Hm.", "signature": OURS}, text("I look."), tool_use(**CACHED)),
        ],
        [Message("user", "Hello"), Message("assistant", "I look.", (ASKED,), reasoning="Hm.")],
    ),
    "thoughts of others": (
        [
            USER,
            assistant(
                {"type": "thinking", "thinking": "Hm.", "signature": "RXJjQ2tnSUR4QUQ="},
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "redacted_thinking", "data": "abc"},
                text("Hi"),
            ),
        ],
        [Message("user", "Hello"), Message("assistant", "Hi")],
    ),
    "blocks of servers": (
        [
            USER,
            assistant(
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
                text("It rains."),
                {"type": "mcp_tool_use", "id": "m1", "name": "x", "server_name": "dragoman", "input": {}},
                {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": False, "content": []},
                text("So stay."),
            ),
        ],
        [Message("user", "Hello"), Message("assistant", "It rains.\n\nSo stay.", sealed=PLACES)],
    ),
    "results before the text": (
        [assistant(tool_use()), user(text("And tomorrow?"), result("Sunny"))],
        [
            Message("assistant", "", (ASKED,)),
            Message("tool", "Sunny", call="c1", name="get_weather"),
            Message("user", "And tomorrow?"),
        ],
    ),
    "a result alone": (
        [assistant(tool_use()), user(result([text("Sunny"), text("Warm")]))],
        [Message("assistant", "", (ASKED,)), Message("tool", "Sunny\nWarm", call="c1", name="get_weather")],
    ),
    "a result without content": (
        [assistant(tool_use()), user({"type": "tool_result", "tool_use_id": "c1"})],
        [Message("assistant", "", (ASKED,)), Message("tool", "", call="c1", name="get_weather")],
    ),
    "an error": (
        [user(result("Exit code 1", is_error=True))],
        [Message("tool", "Error: Exit code 1", call="c1")],
    ),
    "an error that says so": (
        [user(result("<tool_use_error>No.</tool_use_error>", is_error=True))],
        [Message("tool", "<tool_use_error>No.</tool_use_error>", call="c1")],
    ),
    "tools found by a search": (
        [user(result([{"type": "tool_reference", "tool_name": "get_time"}]))],
        [Message("tool", "The tool get_time is available.", call="c1")],
    ),
    "a system message in the middle": (
        [USER, assistant(text("Hi")), {"role": "system", "content": "Be brief."}, USER],
        [
            Message("user", "Hello"),
            Message("assistant", "Hi"),
            Message("system", "Be brief."),
            Message("user", "Hello"),
        ],
    ),
    "an empty system message": ([USER, {"role": "system", "content": []}], [Message("user", "Hello")]),
    "a document of text": (
        [user({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Dear"}})],
        [Message("user", "Dear", untrusted=True)],
    ),
    "an answer of thoughts of others alone": (
        [USER, assistant({"type": "redacted_thinking", "data": "abc"}), USER],
        [Message("user", "Hello"), Message("user", "Hello")],
    ),
}


@pytest.mark.parametrize("sent, expected", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_messages(sent: list[Fields], expected: list[Message]) -> None:
    assert read(*sent).messages == expected


SYSTEMS: dict[str, tuple[Any, str]] = {
    "a string": ("Be kind.", "Be kind."),
    "blocks": ([text("Be kind.", **CACHED), text("Be brief.")], "Be kind.\n\nBe brief."),
    "a line of Claude Code's that differs each time": (
        [text("x-anthropic-billing-header: cc_version=2.1; cch=1a2b3;"), text("Be kind.")],
        "Be kind.",
    ),
    "such a line before the text": ("x-anthropic-billing-header: cch=1a2b3;\nBe kind.", "Be kind."),
}


@pytest.mark.parametrize("system, expected", SYSTEMS.values(), ids=SYSTEMS)
def test_system(system: Any, expected: str) -> None:
    assert read(system=system).messages == [Message("system", expected), Message("user", "Hello")]


@pytest.mark.parametrize("system", [None, "", []])
def test_no_system(system: Any) -> None:
    assert read(system=system).messages == [Message("user", "Hello")]


@pytest.mark.parametrize("data", [PICTURE, PICTURE.encode()], ids=["text", "bytes"])
def test_pictures_are_attachments_and_those_of_results_follow_them(data: Any) -> None:
    image = IMAGE | {"source": SOURCE | {"data": data}}
    request = read(user(image, text("What is it?")), assistant(tool_use()), user(result([text("Seen"), image])))
    asked, _, seen, shown = request.messages
    assert (asked.text, [one.media_type for one in asked.attachments]) == ("What is it?", ["image/png"])
    assert seen == Message("tool", "Seen\n[The picture of this result follows.]", call="c1", name="get_weather")
    assert (shown.role, len(shown.attachments)) == ("user", 1)
    assert [file.attachment for file in request.files] == [*asked.attachments, *shown.attachments]


PARAMETERS: dict[str, tuple[Fields, Fields]] = {
    "stop_sequences": ({"stop_sequences": ["END"]}, {"stop": ["END"]}),
    "sampling": ({"temperature": 1, "top_p": 0.5, "top_k": 40}, {"temperature": 1, "top_p": 0.5, "top_k": 40}),
    "thinking": ({"thinking": {"type": "adaptive"}}, {"thinking": {"type": "adaptive"}}),
    "what local servers know": ({"seed": 1, "min_p": 0.1}, {"seed": 1, "min_p": 0.1}),
    "tool_choice auto": ({"tool_choice": {"type": "auto"}}, {"tool_choice": "auto"}),
    "tool_choice any": ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
    "tool_choice none": ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
    "tool_choice tool": (
        {"tool_choice": {"type": "tool", "name": "get_weather"}},
        {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
    ),
    "one call at a time": (
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"tool_choice": "auto", "parallel_tool_calls": False},
    ),
    "effort": ({"output_config": {"effort": "high"}}, {"reasoning_effort": "high"}),
    "structured output": (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}},
    ),
    "structured output of older clients": (
        {"output_format": {"type": "json_schema", "schema": {"type": "object"}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}},
    ),
    "what is for Anthropic's servers": (
        {
            "metadata": {"user_id": "u"},
            "service_tier": "auto",
            "context_management": {"edits": []},
            "output_config": {},
            "betas": ["context-management-2025-06-27"],
            "container": None,
            "mcp_servers": [{"type": "url", "name": "other", "url": "https://mcp.example"}],
        },
        {},
    ),
    "nulls": ({"temperature": None, "tool_choice": None, "thinking": None, "stop_sequences": None}, {}),
}


@pytest.mark.parametrize("sent, expected", PARAMETERS.values(), ids=PARAMETERS)
def test_parameters_in_the_words_of_chat_completions(sent: Fields, expected: Fields) -> None:
    request = read(tools=[WEATHER], **sent)
    assert request.parameters == {"max_tokens": 100, **expected}
    assert request.echo == {}


def test_a_tool_choice_without_tools_is_left_out() -> None:
    assert read(tool_choice={"type": "any"}).parameters == {"max_tokens": 100}


def test_tools_of_the_client_are_taken_and_those_of_servers_ignored() -> None:
    request = read(
        tools=[
            WEATHER | {"defer_loading": True, "cache_control": {"type": "ephemeral"}, "strict": True},
            {"type": "web_search_20260209", "name": "web_search", "max_uses": 5},
            {"type": "bash_20250124", "name": "bash"},
            {"type": "mcp_toolset", "mcp_server_name": "other"},
            {"type": "custom", "name": "noop", "input_schema": {"type": "object"}},
        ]
    )
    assert [(tool.name, tool.description) for tool in request.tools] == [("get_weather", "The weather."), ("noop", "")]
    assert request.tools[0].parameters == WEATHER["input_schema"]


@pytest.mark.parametrize(
    "sent", [{"mcp_servers": [{"type": "url", "name": "dragoman", "url": ""}]}, {"betas": ["mcp-client-2025-11-20"]}]
)
def test_own_tools_are_shown_to_clients_that_declare_them(sent: Fields) -> None:
    assert read(**sent).echo == {"dragoman": True}


def test_stream_and_model() -> None:
    request = read(stream=True)
    assert (request.model, request.stream, request.thread, request.previous) == ("m", True, None, None)


URL = {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}}
REFUSED: dict[str, tuple[Fields, str]] = {
    "no messages": ({"messages": []}, "messages"),
    "messages that are no list": ({"messages": "Hello"}, "messages"),
    "a message that is no object": ({"messages": [USER, "Hello"]}, "messages.1"),
    "another role": ({"messages": [{"role": "tool", "content": ""}]}, "messages.0.role"),
    "an unknown block": ({"messages": [user({"type": "video"})]}, "messages.0.content.0.type"),
    "an unknown block of an answer": ({"messages": [assistant({"type": "video"})]}, "messages.0.content.0.type"),
    "a block without a type": ({"messages": [user({})]}, "messages.0.content.0.type"),
    "a picture by its URL": ({"messages": [user(URL)]}, "messages.0.content.0.source.type"),
    "a picture in a result by its URL": (
        {"messages": [user(result([URL]))]},
        "messages.0.content.0.content.0.source.type",
    ),
    "a result of no call": ({"messages": [user({"type": "tool_result"})]}, "messages.0.content.0.tool_use_id"),
    "a call without an id": ({"messages": [assistant(tool_use(id=None))]}, "messages.0.content.0.id"),
    "a tool without a schema": ({"tools": [{"name": "x"}]}, "tools.0.input_schema"),
    "two tools of a name": ({"tools": [WEATHER, WEATHER]}, "tools.1"),
    "an unknown choice": ({"tools": [WEATHER], "tool_choice": {"type": "some"}}, "tool_choice.type"),
    "no tokens": ({"max_tokens": 0}, "max_tokens"),
    "tokens as text": ({"max_tokens": "100"}, "max_tokens"),
    "temperature as text": ({"temperature": "hot"}, "temperature"),
    "a stop that is no list": ({"stop_sequences": "END"}, "stop_sequences"),
    "a system that is an object": ({"system": {"text": "Hi"}}, "system"),
    "a picture as system": ({"system": [IMAGE]}, "system.0.type"),
    "stream as text": ({"stream": "yes"}, "stream"),
}


@pytest.mark.parametrize("sent, param", REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_with_the_field(sent: Fields, param: str) -> None:
    with pytest.raises(Refused) as refused:
        read_request({"model": "m", "messages": [USER], **sent})
    assert (refused.value.status, refused.value.more["param"]) == (400, param)
    assert refused.value.message.startswith(param)


def test_urls_are_refused_with_advice() -> None:
    with pytest.raises(Refused, match="nothing is fetched for a message; send its bytes"):
        read(user(URL))
