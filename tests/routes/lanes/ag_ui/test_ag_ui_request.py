"""Requests of AG-UI clients."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from app.core.messages import AskedCall, Message
from routes.lanes.ag_ui.request import read_request
from routes.lanes.lane import Verdict
from routes.protocol.errors import Refused
from tests.support.models.pictures import pdf, png

PICTURE, DOCUMENT = b64encode(png()).decode(), b64encode(pdf()).decode()
HELLO = {"id": "1", "role": "user", "content": "Hello"}
# As HttpAgent sends it.
BODY: dict[str, Any] = {
    "threadId": "t1",
    "runId": "r1",
    "protocolVersion": "1.0",
    "tools": [],
    "context": [],
    "forwardedProps": {},
    "state": {"count": 1},
    "messages": [HELLO],
}


def read(*messages: dict[str, Any], **fields: Any) -> list[Message]:
    return read_request(BODY | {"messages": list(messages)} | fields).messages


def test_a_plain_request_is_a_stream_of_the_agent_in_its_thread() -> None:
    request = read_request(BODY)
    assert request.messages == [Message("user", "Hello")]
    assert (request.model, request.thread, request.stream, request.asks) == (None, "t1", True, True)
    assert request.echo == {"threadId": "t1", "runId": "r1"}
    assert (request.parameters, request.tools, list(request.verdicts)) == ({}, [], [])


def test_state_and_unknown_fields_are_not_read() -> None:
    assert read_request(BODY | {"state": None, "parentRunId": "r0", "new": 1}).messages == [Message("user", "Hello")]


def test_forwarded_props_name_the_model_and_its_parameters() -> None:
    request = read_request(BODY | {"forwardedProps": {"model": "tiny", "temperature": 0.5, "theme": "dark"}})
    assert (request.model, request.parameters) == ("tiny", {"temperature": 0.5})


@pytest.mark.parametrize("props", [None, [], "x"])
def test_forwarded_props_may_be_anything(props: Any) -> None:
    assert read_request(BODY | {"forwardedProps": props}).model is None


def test_every_role_is_read() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}
    assert read(
        {"id": "1", "role": "system", "content": "Be brief."},
        {"id": "2", "role": "developer", "content": "Use metres."},
        HELLO,
        {"id": "4", "role": "reasoning", "content": "They greet."},
        {"id": "5", "role": "assistant", "content": "I look.", "toolCalls": [call]},
        {"id": "6", "role": "tool", "toolCallId": "c1", "content": "Sunny."},
        {"id": "7", "role": "activity", "activityType": "tool.progress", "content": {"lines": 1}},
        {"id": "8", "role": "assistant", "content": "It is sunny."},
    ) == [
        Message("system", "Be brief."),
        Message("system", "Use metres."),
        Message("user", "Hello"),
        Message(
            "assistant", "I look.", (AskedCall("c1", "weather", {"city": "Bonn"}, "native"),), reasoning="They greet."
        ),
        Message("tool", "Sunny.", call="c1", name="weather"),
        Message("assistant", "It is sunny."),
    ]


def test_an_answer_in_two_parts_is_one_with_all_its_thoughts() -> None:
    parts: list[dict[str, Any]] = [
        {"id": "2", "role": "reasoning", "content": "One."},
        {"id": "3", "role": "assistant", "content": "First."},
        {"id": "4", "role": "reasoning", "content": "Two."},
        {"id": "5", "role": "assistant", "content": "Second."},
    ]
    assert read(HELLO, *parts)[1:] == [Message("assistant", "First.\n\nSecond.", reasoning="One.\n\nTwo.")]


def test_a_failed_call_of_the_client_has_its_error() -> None:
    (*_, result) = read(HELLO, {"id": "2", "role": "tool", "toolCallId": "c1", "content": "", "error": "No network."})
    assert result == Message("tool", "No network.", call="c1")


def test_context_is_told_behind_the_clients_instructions() -> None:
    context = [{"description": "Page", "value": "Settings"}, {"description": "", "value": "Dark"}]
    system = {"id": "0", "role": "system", "content": "Be brief."}
    assert read(system, HELLO, context=context) == [
        Message("system", "Be brief."),
        Message("system", "Page: Settings\nDark"),
        Message("user", "Hello"),
    ]


def test_the_clients_tools_are_offered() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    (tool, plain) = read_request(
        BODY | {"tools": [{"name": "weather", "description": "Look.", "parameters": schema}, {"name": "now"}]}
    ).tools
    assert (tool.name, tool.description, tool.parameters) == ("weather", "Look.", schema)
    assert plain.parameters == {"type": "object", "properties": {}}


PARTS = {
    "picture": ({"type": "image", "source": {"type": "data", "value": PICTURE, "mimeType": "image/png"}}, "image/png"),
    "data URL": (
        {"type": "image", "source": {"type": "url", "value": f"data:image/png;base64,{PICTURE}"}},
        "image/png",
    ),
    "bytes": (
        {"type": "image", "source": {"type": "url", "value": f"data:image/png;base64,{PICTURE}".encode()}},
        "image/png",
    ),
    "document": (
        {"type": "document", "source": {"type": "data", "value": DOCUMENT, "mimeType": "application/pdf"}},
        "application/pdf",
    ),
    "before 1.0": (
        {"type": "binary", "mimeType": "image/png", "data": PICTURE, "filename": "a.png"},
        "image/png",
    ),
}


@pytest.mark.parametrize("part, media_type", PARTS.values(), ids=PARTS)
def test_pictures_and_documents_are_attached(part: dict[str, Any], media_type: str) -> None:
    content = [{"type": "text", "text": "Look:"}, part]
    request = read_request(BODY | {"messages": [{"id": "1", "role": "user", "content": content}]})
    (message,) = request.messages
    assert message.text == "Look:"
    assert [one.media_type for one in message.attachments] == [media_type]
    assert [file.attachment for file in request.files] == list(message.attachments)


def test_a_document_of_text_is_its_text() -> None:
    source = {"type": "data", "value": b64encode("Bröt".encode()).decode(), "mimeType": "text/plain"}
    (message,) = read({"id": "1", "role": "user", "content": [{"type": "document", "source": source}]})
    assert (message.text, message.attachments) == ("Bröt", ())


DECISIONS: dict[str, tuple[dict[str, Any], Verdict]] = {
    "yes": ({"interruptId": "c1", "status": "resolved", "payload": {"approved": True}}, Verdict("c1", True)),
    "no": ({"interruptId": "c1", "status": "resolved", "payload": {"approved": False}}, Verdict("c1", False)),
    "no, because": (
        {"interruptId": "c1", "status": "resolved", "payload": {"approved": False, "reason": "Not now."}},
        Verdict("c1", False, note="Not now."),
    ),
    "a bare yes": ({"interruptId": "c1", "status": "resolved", "payload": True}, Verdict("c1", True)),
    "abandoned": ({"interruptId": "c1", "status": "cancelled"}, Verdict("c1", False)),
    "edited": (
        {"interruptId": "c1~2", "status": "resolved", "payload": {"approved": True, "editedArgs": {"path": "b"}}},
        Verdict("c1~2", True, {"path": "b"}),
    ),
    "a form": (
        {"interruptId": "form:q1", "status": "resolved", "payload": {"approved": False, "name": "Ann"}},
        Verdict("q1", True, {"approved": False, "name": "Ann"}),
    ),
    "a form abandoned": ({"interruptId": "form:q1", "status": "cancelled"}, Verdict("q1", False)),
}


@pytest.mark.parametrize("entry, verdict", DECISIONS.values(), ids=DECISIONS)
def test_resume_brings_decisions(entry: dict[str, Any], verdict: Verdict) -> None:
    assert list(read_request(BODY | {"resume": [entry]}).verdicts) == [verdict]


def test_a_decision_needs_no_messages() -> None:
    entry = {"interruptId": "c1", "status": "cancelled"}
    assert read_request({"threadId": "t1", "runId": "r2", "messages": [], "resume": [entry]}).messages == []


def resumed(**fields: Any) -> dict[str, Any]:
    return {"resume": [{"interruptId": "c1", "status": "resolved", "payload": {"approved": True}} | fields]}


def said(**fields: Any) -> dict[str, Any]:
    return {"messages": [HELLO | fields]}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages"),
    "messages of another kind": ({"messages": "Hello"}, "messages"),
    "a message that is text": ({"messages": ["Hello"]}, "messages.0"),
    "an unknown role": (said(role="robot"), "messages.0.role"),
    "an unknown part": (said(content=[{"type": "smell"}]), "messages.0.content.0.type"),
    "a picture elsewhere": (
        said(content=[{"type": "image", "source": {"type": "url", "value": "https://a.example/a.png"}}]),
        "messages.0.content.0.source.value",
    ),
    "a file elsewhere": (
        said(content=[{"type": "image", "source": {"type": "file", "value": "f1"}}]),
        "messages.0.content.0.source.type",
    ),
    "sound": (
        said(content=[{"type": "audio", "source": {"type": "data", "value": "UklGRg==", "mimeType": "audio/wav"}}]),
        "messages.0.content.0.source.value",
    ),
    "a call without a name": (
        said(role="assistant", toolCalls=[{"id": "c1", "function": {"arguments": "{}"}}]),
        "messages.0.toolCalls.0.function.name",
    ),
    "a result without a call": (said(role="tool"), "messages.0.toolCallId"),
    "a tool without a name": ({"tools": [{"description": "x"}]}, "tools.0.name"),
    "two tools of a name": ({"tools": [{"name": "a"}, {"name": "a"}]}, "tools.1"),
    "a model that is no name": ({"forwardedProps": {"model": 1}}, "forwardedProps.model"),
    "a decision without an id": (resumed(interruptId=None), "resume.0.interruptId"),
    "a decision without a status": (resumed(status=None), "resume.0.status"),
    "an unknown status": (resumed(status="maybe"), "resume.0.status"),
    "no decision": (resumed(payload=None), "resume.0.payload"),
    "a decision that says nothing": (resumed(payload={"ok": True}), "resume.0.payload.approved"),
    "a decision in words": (resumed(payload={"approved": "yes"}), "resume.0.payload.approved"),
    "a form without fields": (resumed(interruptId="form:q1", payload=None), "resume.0.payload"),
}


@pytest.mark.parametrize("fields, param", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as refused:
        read_request(BODY | fields)
    assert (refused.value.status, refused.value.more["param"]) == (400, param)
