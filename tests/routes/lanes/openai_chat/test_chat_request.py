"""Requests of Chat Completions: each form of message, tool and parameter, and what is wrong with others."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from app.core.messages import AskedCall, Message
from routes.lanes.openai_chat.request import read_chat
from routes.protocol.errors import Refused
from tests.support.models.pictures import png

USER = {"role": "user", "content": "Hello"}
URL = f"data:image/png;base64,{b64encode(png()).decode()}"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}


def read(**fields: Any) -> Any:
    return read_chat({"model": "m", "messages": [USER]} | fields)


def call(call_id: str, arguments: Any = '{"city": "Bonn"}', name: str = "get_weather") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asked(call_id: str, arguments: dict[str, Any] | None = None, name: str = "get_weather") -> AskedCall:
    return AskedCall(call_id, name, {"city": "Bonn"} if arguments is None else arguments, "native")


HISTORIES: dict[str, tuple[list[dict[str, Any]], list[Message]]] = {
    "texts": (
        [
            *({"role": "system", "content": "Be brief."}, {"role": "developer", "content": "In English."}, USER),
            *({"role": "assistant", "content": "Hi."}, {"role": "user", "content": [{"type": "text", "text": "Go"}]}),
        ],
        [
            *(Message("system", "Be brief."), Message("system", "In English."), Message("user", "Hello")),
            *(Message("assistant", "Hi."), Message("user", "Go")),
        ],
    ),
    "parallel calls and their results": (
        [
            {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b", "", "look")]},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "Seen."}]},
            {"role": "tool", "tool_call_id": "a", "content": "Rain."},
        ],
        [
            Message("assistant", "", calls=(asked("a"), asked("b", {}, "look"))),
            Message("tool", "Seen.", call="b", name="look"),
            Message("tool", "Rain.", call="a", name="get_weather"),
        ],
    ),
    "a result of an unknown call": (
        [{"role": "tool", "tool_call_id": "z", "content": None}],
        [Message("tool", "", call="z")],
    ),
    "arguments as an object": (
        [{"role": "assistant", "tool_calls": [call("a", {"city": "Bonn"})]}],
        [Message("assistant", "", calls=(asked("a"),))],
    ),
    "arguments that are no JSON": (
        [{"role": "assistant", "tool_calls": [call("a", '{"city": ')]}],
        [Message("assistant", "", calls=(asked("a", {"input": '{"city": '}),))],
    ),
    "a call without id": (
        [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "look"}}]}],
        [Message("user", "Hello"), Message("assistant", "", calls=(asked("call_1_0", {}, "look"),))],
    ),
    "a call of a tool that takes text": (
        [{"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]}],
        [Message("assistant", "", calls=(asked("a", {"input": "ls"}, "sh"),))],
    ),
    "the older form": (
        [
            {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "function", "name": "look", "content": "Seen."},
        ],
        [
            Message("assistant", "", calls=(asked("call_0_0", {}, "look"),)),
            Message("tool", "Seen.", call="call_0_0", name="look"),
        ],
    ),
    "reasoning_content": (
        [{"role": "assistant", "content": "Hi.", "reasoning_content": "Hm."}],
        [Message("assistant", "Hi.", reasoning="Hm.")],
    ),
    "reasoning": (
        [{"role": "assistant", "content": "Hi.", "reasoning": "Hm."}],
        [Message("assistant", "Hi.", reasoning="Hm.")],
    ),
    "reasoning of another form": (
        [{"role": "assistant", "content": "Hi.", "reasoning": {"effort": "low"}, "annotations": [], "audio": None}],
        [Message("assistant", "Hi.")],
    ),
    "a refusal": ([{"role": "assistant", "refusal": "No."}], [Message("assistant", "No.")]),
}


@pytest.mark.parametrize("messages, read_as", HISTORIES.values(), ids=HISTORIES)
def test_messages_are_read(messages: list[dict[str, Any]], read_as: list[Message]) -> None:
    assert read(messages=messages).messages == read_as


def test_pictures_are_attachments_and_files() -> None:
    parts = [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": URL}}]
    request = read(messages=[{"role": "user", "content": parts}, USER])
    [file] = request.files
    assert file.data == png()
    assert request.messages[0] == Message("user", "Look:", attachments=(file.attachment,))


@pytest.mark.parametrize(
    "fields",
    [{"tools": [{"type": "function", "function": WEATHER | {"strict": True}}]}, {"functions": [WEATHER]}],
    ids=["tools", "functions"],
)
def test_both_forms_of_tools_are_read(fields: dict[str, Any]) -> None:
    request = read(**fields)
    [tool] = request.tools
    assert (tool.name, tool.description, tool.parameters) == ("get_weather", "The weather.", SCHEMA)
    assert request.echo["legacy"] is ("functions" in fields)


def test_types_of_tools_that_only_a_server_has_are_ignored() -> None:
    tools = [{"type": "web_search"}, {"type": "custom", "custom": {"name": "x"}}, {"function": WEATHER}]
    assert [tool.name for tool in read(tools=tools).tools] == ["get_weather"]


PARAMETERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {}),
    "known and unknown ones": (
        {"temperature": 0, "top_p": 0.5, "stop": ["x"], "seed": 7, "min_p": 0.1, "chat_template_kwargs": {"a": 1}},
        {"temperature": 0, "top_p": 0.5, "stop": ["x"], "seed": 7, "min_p": 0.1, "chat_template_kwargs": {"a": 1}},
    ),
    "null": ({"temperature": None, "tools": None, "stream_options": None, "n": None, "logprobs": None}, {}),
    "max_tokens": ({"max_tokens": 5}, {"max_tokens": 5}),
    "max_completion_tokens": ({"max_completion_tokens": 5.0}, {"max_tokens": 5}),
    "both": ({"max_tokens": 5, "max_completion_tokens": 7}, {"max_tokens": 7}),
    "about tools": (
        {"tool_choice": "required", "parallel_tool_calls": False},
        {"tool_choice": "required", "parallel_tool_calls": False},
    ),
    "function_call": ({"function_call": "none"}, {"tool_choice": "none"}),
    "function_call of one": (
        {"function_call": {"name": "look"}},
        {"tool_choice": {"type": "function", "function": {"name": "look"}}},
    ),
    "response_format": (
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_object"}},
    ),
    "about the account": ({"store": True, "metadata": {"a": "b"}}, {}),
    "about the answer": ({"n": 1, "logprobs": False, "top_logprobs": 0, "modalities": ["text"]}, {}),
}


@pytest.mark.parametrize("sent, parameters", PARAMETERS.values(), ids=PARAMETERS)
def test_parameters_pass(sent: dict[str, Any], parameters: dict[str, Any]) -> None:
    assert read(**sent).parameters == parameters


@pytest.mark.parametrize(
    "fields, stream, usage, events",
    [
        ({}, False, False, False),
        ({"stream": True}, True, False, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, True, True, False),
        ({"stream": True, "stream_options": {"include_usage": False}}, True, False, False),
        ({"stream": True, "dragoman": {"events": True}}, True, False, True),
    ],
)
def test_what_the_stream_has(fields: dict[str, Any], stream: bool, usage: bool, events: bool) -> None:
    request = read(**fields)
    assert (request.stream, request.echo) == (stream, {"usage": usage, "events": events, "legacy": False})


def test_a_model_may_be_left_out() -> None:
    assert read_chat({"messages": [USER]}).model is None


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages"),
    "messages that are a text": ({"messages": "Hello"}, "messages"),
    "a message that is a text": ({"messages": ["Hello"]}, "messages.0"),
    "no role": ({"messages": [{"content": "x"}]}, "messages.0.role"),
    "an unknown role": ({"messages": [USER, {"role": "robot", "content": "x"}]}, "messages.1.role"),
    "content that is a number": ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
    "an unknown part": (
        {"messages": [USER, {"role": "user", "content": [{"type": "video"}]}]},
        "messages.1.content.0.type",
    ),
    "a result of no call": ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.tool_call_id"),
    "a call without name": (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}]},
        "messages.0.tool_calls.0.function.name",
    ),
    "a call without function": (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]},
        "messages.0.tool_calls.0.function",
    ),
    "a tool without name": ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
    "a tool without function": ({"tools": [{"type": "function"}]}, "tools.0.function"),
    "two tools of a name": (
        {"tools": [{"type": "function", "function": {"name": "x"}}, {"type": "function", "function": {"name": "x"}}]},
        "tools.1.function.name",
    ),
    "a schema that is a list": (
        {"tools": [{"type": "function", "function": {"name": "x", "parameters": []}}]},
        "tools.0.function.parameters",
    ),
    "several answers": ({"n": 2}, "n"),
    "probabilities": ({"logprobs": True, "top_logprobs": 5}, "logprobs"),
    "probabilities by number": ({"top_logprobs": 5}, "top_logprobs"),
    "sound": ({"modalities": ["text", "audio"]}, "modalities"),
    "a voice": ({"audio": {"voice": "x"}}, "audio"),
    "a model that is a number": ({"model": 5}, "model"),
    "a limit that is a text": ({"max_tokens": "5"}, "max_tokens"),
    "a format that is a text": ({"response_format": "json"}, "response_format"),
    "a stream that is a text": ({"stream": "true"}, "stream"),
    "options that are a flag": ({"stream_options": True}, "stream_options"),
    "a function call that is a number": ({"function_call": 5}, "function_call"),
}


@pytest.mark.parametrize("fields, param", WRONG.values(), ids=WRONG)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as refused:
        read(**fields)
    assert (refused.value.status, refused.value.code, refused.value.more) == (400, "invalid_request", {"param": param})
    assert refused.value.message.startswith(param)


WHOLE: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "stream_options": {"include_usage": True},
    "dragoman": {"events": True},
    "n": 1,
    "logprobs": False,
    "modalities": ["text"],
    "max_completion_tokens": 5,
    "response_format": {"type": "text"},
    "function_call": "auto",
    "functions": [WEATHER | {"name": "older"}],
    "tools": [{"type": "function", "function": WEATHER}],
    "messages": [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "x"},
                {"type": "image_url", "image_url": {"url": URL}},
                {"type": "file", "file": {"file_data": URL, "filename": "f"}},
                {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "t"}]}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "r",
            "tool_calls": [call("c"), {"id": "d", "type": "custom", "custom": {"name": "q", "input": "i"}}],
            "function_call": {"name": "q", "arguments": "{}"},
        },
        {"role": "function", "name": "q", "content": "z"},
        {"role": "tool", "tool_call_id": "c", "content": "y"},
    ],
}
VALUES: tuple[Any, ...] = (
    *(None, 0, -1, 1.5, float("inf"), float("nan"), 10**30, "", "x", "\0", "\ud800", True, [], {}, [[]], [None], [1]),
    *(["x"], [{}], {"a": 1}, {"type": "text"}, b"data:x", b"", {"type": []}, {"type": "object"}, {"name": None}),
)
Path = tuple[str | int, ...]


def paths(value: Any, before: Path = ()) -> Iterator[Path]:
    """Where any value stands."""
    inner = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    for key, one in inner:
        yield (*before, key)
        yield from paths(one, (*before, key))


def with_value(path: Path, value: Any) -> dict[str, Any]:
    body = deepcopy(WHOLE)
    node: Any = body
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return body


@pytest.mark.parametrize("path", [*paths(WHOLE)], ids=lambda path: ".".join(map(str, path)))
def test_any_value_anywhere_is_read_or_refused_by_name(path: Path) -> None:
    for value in VALUES:
        try:
            read_chat(with_value(path, value))
        except Refused as refused:
            assert refused.status == 400 and refused.more["param"] in refused.message
