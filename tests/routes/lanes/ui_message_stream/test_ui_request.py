"""Requests of the AI SDK's `useChat`."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from app.core.messages import AskedCall, Message
from routes.lanes.lane import Verdict
from routes.lanes.ui_message_stream.request import read_request
from routes.protocol.errors import Refused
from tests.support.models.pictures import png

URL = f"data:image/png;base64,{b64encode(png()).decode()}"
HELLO = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
# As DefaultChatTransport sends it.
BODY: dict[str, Any] = {"id": "chat1", "messages": [HELLO], "trigger": "submit-message"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def answer(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": "a1", "role": "assistant", "metadata": {"usage": {}}, "parts": list(parts)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "state": "done"}


def call(state: str, kind: str = "tool-weather", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "toolCallId": "c1", "state": state, "input": {"city": "Bonn"}} | fields


def read(*messages: dict[str, Any], **fields: Any) -> list[Message]:
    return read_request(BODY | {"messages": list(messages)} | fields).messages


ASKED = AskedCall("c1", "weather", {"city": "Bonn"}, "native")
STEP = {"type": "step-start"}


def test_a_plain_request_is_a_stream_of_the_agent_in_its_chat() -> None:
    request = read_request(BODY)
    assert request.messages == [Message("user", "Hello")]
    assert (request.model, request.thread, request.stream, request.asks) == (None, "chat1", True, True)
    assert (request.echo, request.parameters, request.tools, list(request.verdicts)) == ({}, {}, [], [])


def test_the_page_may_add_a_model_instructions_and_settings() -> None:
    request = read_request(
        BODY | {"model": "tiny", "system": "Be brief.", "temperature": 0, "callSettings": {"maxTokens": 5, "topP": 0.9}}
    )
    assert request.model == "tiny"
    assert request.messages[0] == Message("system", "Be brief.")
    assert request.parameters == {"temperature": 0, "max_tokens": 5, "top_p": 0.9}


TOOLS = {
    "a list": [{"name": "weather", "description": "Look.", "parameters": SCHEMA}],
    "an object by names": {"weather": {"description": "Look.", "parameters": SCHEMA}},
    "with the SDK's schema": {"weather": {"description": "Look.", "inputSchema": SCHEMA}},
    "as functions": [
        {"type": "function", "function": {"name": "weather", "description": "Look.", "parameters": SCHEMA}}
    ],
}


@pytest.mark.parametrize("tools", TOOLS.values(), ids=TOOLS)
def test_the_clients_tools_are_offered(tools: Any) -> None:
    (tool,) = read_request(BODY | {"tools": tools}).tools
    assert (tool.name, tool.description, tool.parameters) == ("weather", "Look.", SCHEMA)


def test_each_step_is_an_answer_with_its_calls_and_their_results() -> None:
    own = call("output-available", "dynamic-tool", toolName="bash", toolCallId="c0", output="ok", providerExecuted=True)
    assert read(
        HELLO,
        answer(
            STEP,
            {"type": "reasoning", "text": "They greet.", "state": "done"},
            text("I look."),
            own,
            call("output-available", output={"sky": "blue"}),
            STEP,
            text("It is sunny."),
            {"type": "data-note", "data": {}},
            {"type": "source-url", "sourceId": "s", "url": "https://a.example"},
        ),
        {"id": "u2", "role": "user", "parts": [text("Thanks.")]},
    )[1:] == [
        Message(
            "assistant",
            "I look.",
            (AskedCall("c0", "bash", {"city": "Bonn"}, "native"), ASKED),
            reasoning="They greet.",
        ),
        Message("tool", "ok", call="c0", name="bash"),
        Message("tool", '{"sky": "blue"}', call="c1", name="weather"),
        Message("assistant", "It is sunny."),
        Message("user", "Thanks."),
    ]


def test_text_behind_a_call_is_an_answer_of_its_own() -> None:
    parts = [call("output-available", output="Sunny."), text("Done.")]
    assert [one.role for one in read(HELLO, answer(*parts))] == ["user", "assistant", "tool", "assistant"]


RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"state": "output-available", "output": "Sunny."}, "Sunny."),
    "a value": ({"state": "output-available", "output": [1, None]}, "[1, null]"),
    "nothing": ({"state": "output-available"}, "null"),
    "an error": ({"state": "output-error", "errorText": "No network."}, "No network."),
    "denied": ({"state": "output-denied", "approval": {"id": "c1", "approved": False}}, "The user denied this call."),
    "denied with a reason": (
        {"state": "output-denied", "approval": {"id": "c1", "approved": False, "reason": "Not now."}},
        "The user denied this call. Not now.",
    ),
}


@pytest.mark.parametrize("fields, result", RESULTS.values(), ids=RESULTS)
def test_a_result_is_text(fields: dict[str, Any], result: str) -> None:
    assert read(HELLO, answer(call(**fields)))[1:] == [
        Message("assistant", "", (ASKED,)),
        Message("tool", result, call="c1", name="weather"),
    ]


UNANSWERED = {
    "being written": call("input-streaming"),
    "handed over": call("input-available"),
    "asked about": call("approval-requested", approval={"id": "c1"}),
    "running": call("output-available", output="tail", preliminary=True),
}


@pytest.mark.parametrize("part", UNANSWERED.values(), ids=UNANSWERED)
def test_a_call_without_a_result_is_left_out(part: dict[str, Any]) -> None:
    assert read(HELLO, answer(text("I look."), part), HELLO)[1] == Message("assistant", "I look.")
    assert [one.role for one in read(HELLO, answer(part), HELLO)] == ["user", "user"]


def test_results_of_the_clients_tools_go_on_in_the_same_message() -> None:
    request = read_request(BODY | {"messages": [HELLO, answer(call("output-available", output="Sunny."))]})
    assert request.echo == {"message": "a1"}
    assert request.messages[-1] == Message("tool", "Sunny.", call="c1", name="weather")


DECISIONS: dict[str, tuple[dict[str, Any], Verdict]] = {
    "yes": ({"id": "c1", "approved": True}, Verdict("c1", True)),
    "no": ({"id": "c1~2", "approved": False, "reason": "Not now."}, Verdict("c1~2", False, note="Not now.")),
    "changed": ({"id": "c1", "approved": True, "reason": '{"city": "Köln"}'}, Verdict("c1", True, {"city": "Köln"})),
    "a reason that looks like JSON": (
        {"id": "c1", "approved": True, "reason": "{yes}"},
        Verdict("c1", True, note="{yes}"),
    ),
}


@pytest.mark.parametrize("approval, verdict", DECISIONS.values(), ids=DECISIONS)
def test_a_call_that_was_decided_on_is_a_verdict(approval: dict[str, Any], verdict: Verdict) -> None:
    decided = answer(call("approval-responded", "dynamic-tool", toolName="bash", approval=approval))
    request = read_request(BODY | {"messages": [HELLO, decided], "messageId": "a1"})
    assert list(request.verdicts) == [verdict]
    assert request.echo == {"message": "a1"}


def test_decisions_are_those_of_the_message_that_goes_on() -> None:
    decided = answer(call("approval-responded", approval={"id": "c1", "approved": True}))
    assert list(read_request(BODY | {"messages": [HELLO, decided, HELLO]}).verdicts) == []
    assert list(read_request(BODY | {"messages": [HELLO, decided, HELLO], "messageId": "a1"}).verdicts) == [
        Verdict("c1", True)
    ]


@pytest.mark.parametrize(
    "fields, branches",
    [
        ({}, False),
        ({"trigger": "submit-message", "messageId": "u1"}, True),
        ({"trigger": "submit-message", "messageId": "a1"}, False),
        ({"trigger": "regenerate-message"}, True),
        ({"trigger": "regenerate-message", "messageId": "a1"}, True),
    ],
    ids=["new message", "changed message", "result or decision", "last answer again", "named answer again"],
)
def test_a_changed_message_and_an_answer_that_is_wanted_again_branch(fields: dict[str, Any], branches: bool) -> None:
    messages = [HELLO, answer(text("Hi."))]
    assert read_request(BODY | {"messages": messages} | fields).branches is branches


def test_pictures_are_attached_and_texts_are_read() -> None:
    notes = f"data:text/plain;base64,{b64encode('Bröt'.encode()).decode()}"
    parts = [
        {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": URL},
        {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "url": notes},
        text("Look."),
    ]
    request = read_request(BODY | {"messages": [HELLO | {"parts": parts}]})
    (message,) = request.messages
    assert message.text == "Bröt\nLook."
    assert [(one.media_type, one.name) for one in message.attachments] == [("image/png", "a.png")]
    assert [file.attachment for file in request.files] == list(message.attachments)


def test_a_message_that_steered_a_run_stands_where_it_came() -> None:
    steering = {"type": "steering-message", "id": "s1", "parts": [text("Stop.")]}
    assert read(HELLO, answer(STEP, text("One."), steering, STEP, text("Two.")))[1:] == [
        Message("assistant", "One."),
        Message("user", "Stop."),
        Message("assistant", "Two."),
    ]


def test_messages_of_version_4_have_their_content() -> None:
    assert read({"id": "1", "role": "user", "content": "Hello"}) == [Message("user", "Hello")]


def test_system_messages_are_read() -> None:
    assert read({"id": "0", "role": "system", "parts": [text("Be brief.")]}, HELLO)[0] == Message("system", "Be brief.")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages"),
    "an unknown role": ({"messages": [HELLO | {"role": "robot"}]}, "messages.0.role"),
    "a part without a type": ({"messages": [HELLO | {"parts": [{}]}]}, "messages.0.parts.0.type"),
    "a picture elsewhere": (
        {"messages": [HELLO | {"parts": [{"type": "file", "mediaType": "image/png", "url": "https://a.example/a"}]}]},
        "messages.0.parts.0.url",
    ),
    "a call without an id": (
        {"messages": [answer(call("output-available", toolCallId=None))]},
        "messages.0.parts.0.toolCallId",
    ),
    "a call without a state": ({"messages": [answer(call(""))]}, "messages.0.parts.0.state"),
    "a decision without an approval": (
        {"messages": [answer(call("approval-responded"))]},
        "messages.0.parts.0.approval",
    ),
    "a tool without a name": ({"tools": [{"description": "x"}]}, "tools.0.name"),
    "tools that are text": ({"tools": "all"}, "tools"),
    "a model that is no name": ({"model": 1}, "model"),
}


@pytest.mark.parametrize("fields, param", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as refused:
        read_request(BODY | fields)
    assert (refused.value.status, refused.value.more["param"]) == (400, param)
