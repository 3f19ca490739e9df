"""Requests of Responses, as messages, tools and parameters."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.messages import AskedCall, Message
from routes.lanes.lane import LaneRequest, Verdict
from routes.lanes.responses.ids import approval_place, item_id, item_place, response_id, response_place, stem_of
from routes.lanes.responses.items import sealed
from routes.lanes.responses.request import read_responses
from routes.lanes.responses.tools import LONGEST, flat_name
from routes.protocol.errors import Refused
from tests.support.lanes.logs import RUN
from tests.support.models.pictures import png

HELLO = {"role": "user", "content": "Hello."}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "name": "get_weather", "description": "Weather.", "parameters": SCHEMA}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Rome"}'}
ASKED = AskedCall("c1", "get_weather", {"city": "Rome"}, "native")
PNG = png(2, 2)
DATA_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def read(*items: Any, **fields: Any) -> LaneRequest:
    return read_responses({"model": "tiny", "input": list(items) or "Hello."} | fields)


HISTORIES: dict[str, tuple[list[Any], list[Message]]] = {
    "a message without a type": ([HELLO], [Message("user", "Hello.")]),
    "a message of parts": (
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, "b"]}],
        [Message("user", "a\nb")],
    ),
    "the developer is the system": ([{"role": "developer", "content": "Be brief."}], [Message("system", "Be brief.")]),
    "system messages stay in their place": (
        [HELLO, {"role": "system", "content": "Now."}],
        [Message("user", "Hello."), Message("system", "Now.")],
    ),
    "an answer of several items is one message": (
        [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            CALL,
            CALL | {"call_id": "c2", "id": "fc_2"},
        ],
        [
            Message(
                "assistant",
                "I look.",
                calls=(ASKED, AskedCall("c2", "get_weather", {"city": "Rome"}, "native")),
                reasoning="Hm.",
            )
        ],
    ),
    "a result with its tool's name": (
        [CALL, {"type": "function_call_output", "call_id": "c1", "output": "Sun."}],
        [Message("assistant", "", calls=(ASKED,)), Message("tool", "Sun.", call="c1", name="get_weather")],
    ),
    "a result of parts": (
        [{"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "Sun."}]}],
        [Message("tool", "Sun.", call="c1")],
    ),
    "a result that is an object": (
        [{"type": "function_call_output", "call_id": "c1", "output": {"content": "Sun.", "success": True}}],
        [Message("tool", '{"content": "Sun.", "success": true}', call="c1")],
    ),
    "a custom tool": (
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."},
        ],
        [
            Message("assistant", "", calls=(AskedCall("c1", "apply_patch", {"input": "*** Begin"}, "native"),)),
            Message("tool", "Done.", call="c1", name="apply_patch"),
        ],
    ),
    "a call of a namespace": (
        [CALL | {"namespace": "mcp__geo", "name": "find"}],
        [Message("assistant", "", calls=(AskedCall("c1", "mcp__geo__find", {"city": "Rome"}, "native"),))],
    ),
    "arguments that are no JSON": (
        [CALL | {"arguments": "{broken"}],
        [Message("assistant", "", calls=(AskedCall("c1", "get_weather", {"input": "{broken"}, "native"),))],
    ),
    "sealed reasoning goes before its summary": (
        [{"type": "reasoning", "summary": [], "encrypted_content": sealed("Hm. \u00e9")}],
        [Message("assistant", "", reasoning="Hm. \u00e9")],
    ),
    "another server's reasoning is its summary": (
        [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "gAAAA"}],
        [Message("assistant", "", reasoning="Hm.")],
    ),
    "unknown items are left out": (
        [
            HELLO,
            *({"type": "web_search_call", "id": "ws_1"}, {"type": "item_reference", "id": "rs_1"}),
            *({"type": "mcp_call", "id": "mcp_1"}, {"type": "of_a_later_version", "content": 1}),
        ],
        [Message("user", "Hello.")],
    ),
    "empty reasoning is no message": ([HELLO, {"type": "reasoning", "summary": []}], [Message("user", "Hello.")]),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_items_become_messages(name: str) -> None:
    items, messages = HISTORIES[name]
    assert read(*items).messages == messages


def test_a_text_is_a_message_of_the_user() -> None:
    assert read().messages == [Message("user", "Hello.")]


def test_instructions_stand_before_the_input() -> None:
    assert [one.role for one in read(HELLO, instructions="Be brief.").messages] == ["system", "user"]


@pytest.mark.parametrize("url", [DATA_URL, DATA_URL.encode()], ids=["text", "bytes"])
def test_pictures_come_along(url: str | bytes) -> None:
    picture = {"type": "input_image", "image_url": url, "detail": "auto"}
    found = read({"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, picture]})
    assert [file.data for file in found.files] == [PNG]
    assert found.messages[0].attachments == (found.files[0].attachment,)
    of_tool = read({"type": "function_call_output", "call_id": "c1", "output": [picture]})
    assert of_tool.messages[0].attachments == (of_tool.files[0].attachment,)


TOOLS: dict[str, tuple[list[Any], list[str]]] = {
    "functions": ([WEATHER], ["get_weather"]),
    "a function without parameters": ([{"type": "function", "name": "now", "parameters": None}], ["now"]),
    "custom": ([{"type": "custom", "name": "apply_patch", "format": {"type": "text"}}], ["apply_patch"]),
    "a namespace": (
        [{"type": "namespace", "name": "mcp__geo", "description": "Geo.", "tools": [WEATHER, {"type": "odd"}]}],
        ["mcp__geo__get_weather"],
    ),
    "types that other servers run are left out": (
        [{"type": "web_search"}, {"type": "image_generation"}, {"type": "local_shell"}, {"type": "later"}, WEATHER],
        ["get_weather"],
    ),
}


@pytest.mark.parametrize("name", TOOLS)
def test_tools_are_flattened(name: str) -> None:
    tools, names = TOOLS[name]
    assert [tool.name for tool in read(tools=tools).tools] == names


def test_a_custom_tool_takes_one_text_with_its_grammar() -> None:
    form = {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"}
    (tool,) = read(tools=[{"type": "custom", "name": "patch", "description": "Patches.", "format": form}]).tools
    assert tool.description == "Patches."
    assert tool.parameters["required"] == ["input"]
    assert tool.parameters["properties"]["input"]["type"] == "string"
    assert "start: /a+/" in tool.parameters["properties"]["input"]["description"]


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_flat_names_are_short_and_safe(namespace: str, name: str) -> None:
    flat = flat_name(namespace, name)
    assert len(flat) <= LONGEST
    assert flat.replace("_", "").replace("-", "").isascii()
    assert flat == flat_name(namespace, name)


def test_long_names_stay_apart() -> None:
    assert flat_name("n" * 60, "tool_a") != flat_name("n" * 60, "tool_b")
    assert flat_name("mcp__geo__", "find") == "mcp__geo__find"


PARAMETERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "limits and sampling": (
        {"max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 7},
        {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 7},
    ),
    "reasoning": ({"reasoning": {"effort": "high", "summary": "auto"}}, {"reasoning_effort": "high"}),
    "a schema": (
        {"text": {"format": {"type": "json_schema", "name": "city", "schema": SCHEMA, "strict": True}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "city", "schema": SCHEMA, "strict": True},
            }
        },
    ),
    "any JSON": ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    "plain text": ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {"verbosity": "low"}),
    "calls": ({"parallel_tool_calls": False, "tool_choice": "required"},) * 2,
    "one tool": (
        {"tool_choice": {"type": "function", "name": "get_weather"}},
        {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
    ),
    "a custom tool": (
        {"tool_choice": {"type": "custom", "name": "patch"}},
        {"tool_choice": {"type": "function", "function": {"name": "patch"}}},
    ),
    "some tools": (
        {
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "a"}, {"type": "web_search"}],
            }
        },
        {
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "a"}}]},
            }
        },
    ),
    "a tool of other servers": ({"tool_choice": {"type": "web_search"}}, {}),
    "null is left out": ({"temperature": None, "top_p": None, "tool_choice": None, "text": None}, {}),
    "bookkeeping stays here": (
        {
            "prompt_cache_key": "k", "metadata": {"a": "b"}, "client_metadata": {}, "service_tier": "auto",
            "truncation": "auto", "user": "u", "safety_identifier": "s", "stream_options": {}, "include": [],
        },
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_chat_completions(name: str) -> None:
    fields, parameters = PARAMETERS[name]
    assert read(**fields).parameters == parameters


def test_a_response_is_kept_unless_the_client_says_no() -> None:
    assert read().store
    assert not read(store=False).store
    assert read(background=True).background


def test_the_previous_response_is_a_run() -> None:
    assert read(previous_response_id=response_id(RUN)).previous == RUN
    assert read(previous_response_id=response_id(RUN, 7)).previous == RUN
    assert read(conversation={"id": "conv_1"}).conversation == read(conversation="conv_1").conversation == "conv_1"
    assert read(prompt_cache_key="all").conversation is None


def test_a_decision_goes_on_with_the_run_that_waits() -> None:
    item = f"mcpr_{stem_of(RUN)}_4_c1"
    found = read({"type": "mcp_approval_response", "approval_request_id": item, "approve": True})
    assert (found.previous, found.verdicts, found.asks) == (RUN, [Verdict("c1", True)], True)
    assert found.echo["approvals"] == {"c1": item}


def test_declaring_our_server_opts_in_to_approvals() -> None:
    ours = {"type": "mcp", "server_label": "dragoman", "server_url": "http://localhost/mcp"}
    assert read(tools=[ours]).asks
    assert not read(tools=[ours | {"require_approval": "never"}]).asks
    assert not read(tools=[ours | {"server_label": "other"}]).asks


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({"input": None}, "input"),
    "an empty input": ({"input": []}, "input"),
    "an input of a wrong type": ({"input": 7}, "input"),
    "an item that is no object": ({"input": ["a", 7]}, "input.0"),
    "a role that is none": ({"input": [{"role": "critic", "content": "a"}]}, "input.0.role"),
    "a part that is none": ({"input": [{"role": "user", "content": [{"type": "odd"}]}]}, "input.0.content.0.type"),
    "a picture to be fetched": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://example.org/a"}]}]},
        "input.0.content.0.image_url",
    ),
    "a result without a call": ({"input": [{"type": "function_call_output", "output": "a"}]}, "input.0.call_id"),
    "an unknown previous response": ({"previous_response_id": "resp_x"}, "previous_response_id"),
    "another's approval": (
        {"input": [{"type": "mcp_approval_response", "approval_request_id": "mcpr_x", "approve": True}]},
        "input.0.approval_request_id",
    ),
    "a tool without a name": ({"tools": [{"type": "function"}]}, "tools.0.name"),
    "two tools of one name": ({"tools": [WEATHER, WEATHER]}, "tools.1.name"),
    "a template": ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    "a limit that is no number": ({"max_output_tokens": "9"}, "max_output_tokens"),
    "a format without a schema": ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
    "a background response that is not kept": ({"background": True, "store": False}, "store"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_named(name: str) -> None:
    fields, param = REFUSED[name]
    with pytest.raises(Refused) as refused:
        read_responses({"model": "tiny", "input": "Hello."} | fields)
    assert refused.value.status == 400
    assert refused.value.more["param"] == param


def test_the_code_of_an_unknown_response() -> None:
    with pytest.raises(Refused) as refused:
        read(previous_response_id="resp_x")
    assert refused.value.code == "previous_response_not_found"


def test_the_echo_is_json_and_has_all_that_a_response_repeats() -> None:
    picture = {"type": "input_image", "image_url": DATA_URL.encode()}
    found = read(
        {"role": "user", "content": [picture]},
        {"role": "user", "content": "x" * 70_000},
        HELLO,
        tools=[WEATHER, {"type": "custom", "name": "patch"}],
        include=["reasoning.encrypted_content"],
        metadata={"a": "b"},
    )
    echo = json.loads(json.dumps(found.echo))
    response = echo["response"]
    assert (response["tool_choice"], response["parallel_tool_calls"], response["metadata"]) == (
        "auto",
        True,
        {"a": "b"},
    )
    assert response["tools"][0] == WEATHER
    assert echo["seal"] is True
    assert echo["names"] == {"all": ["get_weather", "patch"], "custom": ["patch"], "namespaces": {}}
    assert echo["input"] == [
        {
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_text", "text": "Hello."}],
        }
    ]
    assert "input" not in read(store=False).echo


@pytest.mark.parametrize("after", [0, 17])
def test_ids_lead_back_to_their_run(after: int) -> None:
    place = response_place(response_id(RUN, after))
    assert place is not None
    assert (place.run, place.after) == (RUN, after)
    item = item_place(item_id("msg", stem_of(RUN, after), 3))
    assert item is not None
    assert (item.run, item.after, item.index) == (RUN, after, 3)
    assert not (response_place("chatcmpl_1") or item_place("msg_abc") or approval_place("mcpr_1"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
WHOLE: dict[str, Any] = {
    "model": "tiny",
    "input": [
        *({"role": "user", "content": [{"type": "input_text", "text": "a"}]}, CALL),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "dragoman1."},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a"}]},
        {"type": "custom_tool_call", "call_id": "c1", "name": "a", "namespace": "b", "input": "a"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_00_4_c1", "approve": True},
    ],
    "tools": [
        *(WEATHER, {"type": "custom", "name": "patch", "format": {"type": "grammar", "definition": "a"}}),
        *({"type": "namespace", "name": "b", "tools": [WEATHER]}, {"type": "mcp", "server_label": "dragoman"}),
    ],
    "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
    "reasoning": {"effort": "low"},
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "a"}]},
    "include": ["reasoning.encrypted_content"],
    "previous_response_id": "resp_00",
    "instructions": "Be brief.",
    "conversation": {"id": "conv_1"},
}


@given(st.data())
def test_any_wrong_field_is_refused_or_read(data: st.DataObject) -> None:
    body = json.loads(json.dumps(WHOLE))
    holder: Any = body
    values: st.SearchStrategy[Any] = JSON
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = data.draw(st.sampled_from(keys))
        if not (isinstance(holder[key], (dict, list)) and holder[key] and data.draw(st.booleans())):
            break
        values = JSON | st.just(b"data:,") if key == "content" else values  # where a body may have bytes
        holder = holder[key]
    holder[key] = data.draw(values)
    try:
        found = read_responses(body)
    except Refused as refused:
        assert refused.status == 400
        assert "param" in refused.more
    else:
        json.dumps([found.echo, found.parameters])
