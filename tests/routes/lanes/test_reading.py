from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from app.core.messages import AskedCall, Message
from app.runs.run_options import LONGEST_NAME, MOST_CLIENT_TOOLS, ClientTool
from routes.lanes.content import content_of
from routes.lanes.reading import Node, call_arguments, check_tools, client_tool, plain_text, with_names
from routes.protocol.errors import Refused
from tests.support.models.pictures import pdf, png

PICTURE = b64encode(png()).decode()
URL = f"data:image/png;base64,{PICTURE}"
DOCUMENT = f"data:application/pdf;base64,{b64encode(pdf()).decode()}"
NOTES = f"data:text/plain;base64,{b64encode('Bröt'.encode()).decode()}"

PARTS = {
    "chat text": ({"type": "text", "text": "hello"}, "hello", ""),
    "chat picture": ({"type": "image_url", "image_url": {"url": URL, "detail": "high"}}, "", "image/png"),
    "chat picture, the URL alone": ({"type": "image_url", "image_url": URL}, "", "image/png"),
    "chat picture as bytes": ({"type": "image_url", "image_url": {"url": URL.encode()}}, "", "image/png"),
    "chat file": ({"type": "file", "file": {"file_data": DOCUMENT, "filename": "a.pdf"}}, "", "application/pdf"),
    "chat file of text": ({"type": "file", "file": {"file_data": NOTES}}, "Bröt", ""),
    "refusal": ({"type": "refusal", "refusal": "no"}, "no", ""),
    "Responses text": ({"type": "input_text", "text": "hello"}, "hello", ""),
    "Responses answer": ({"type": "output_text", "text": "hello", "annotations": []}, "hello", ""),
    "Responses picture": ({"type": "input_image", "image_url": URL}, "", "image/png"),
    "Responses file": ({"type": "input_file", "file_data": DOCUMENT}, "", "application/pdf"),
    "Messages picture": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
        "",
        "image/png",
    ),
    "Messages document": (
        {"type": "document", "title": "a.pdf", "source": {"type": "base64", "data": b64encode(pdf()).decode()}},
        "",
        "application/pdf",
    ),
    "Messages text document": ({"type": "document", "source": {"type": "text", "data": "hello"}}, "hello", ""),
    "Messages document of parts": (
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "hello"}]}},
        "hello",
        "",
    ),
}


@pytest.mark.parametrize("part, text, media_type", PARTS.values(), ids=PARTS)
def test_a_part_of_any_lane_is_text_or_a_file(part: dict[str, Any], text: str, media_type: str) -> None:
    content = content_of(Node({"content": [part]}), "content")
    assert content.text == text
    assert [one.media_type for one in content.attachments] == [media_type] * bool(media_type)


WRONG_PARTS = {
    "an unknown type": ({"type": "video"}, "messages.0.content.0.type"),
    "no type": ({"text": "x"}, "messages.0.content.0.type"),
    "no object": (7, "messages.0.content.0"),
    "audio": ({"type": "input_audio", "input_audio": {"data": "", "format": "mp3"}}, "messages.0.content.0.type"),
    "text that is a number": ({"type": "text", "text": 7}, "messages.0.content.0.text"),
    "a URL elsewhere": (
        {"type": "image_url", "image_url": {"url": "http://example.com/a.png"}},
        "messages.0.content.0.image_url.url",
    ),
    "a picture without data": ({"type": "image_url", "image_url": {}}, "messages.0.content.0.image_url.url"),
    "no picture": ({"type": "image_url"}, "messages.0.content.0.image_url"),
    "no base64": ({"type": "input_image", "image_url": "data:image/png;base64,*"}, "messages.0.content.0.image_url"),
    "an unsupported picture": ({"type": "input_image", "image_url": "QkJC"}, "messages.0.content.0.image_url"),
    "a kept picture": ({"type": "input_image", "file_id": "file-1"}, "messages.0.content.0.file_id"),
    "a kept file": ({"type": "file", "file": {"file_id": "file-1"}}, "messages.0.content.0.file.file_id"),
    "a file elsewhere": ({"type": "input_file", "file_url": "http://example.com"}, "messages.0.content.0.file_url"),
    "a Messages URL": ({"type": "image", "source": {"type": "url", "url": "x"}}, "messages.0.content.0.source.type"),
    "a document in a document": (
        {"type": "document", "source": {"type": "content", "content": [{"type": "document"}]}},
        "messages.0.content.0.source.content.0.type",
    ),
}  # fmt: skip


@pytest.mark.parametrize("part, param", WRONG_PARTS.values(), ids=WRONG_PARTS)
def test_a_wrong_part_is_refused_with_its_path(part: Any, param: str) -> None:
    with pytest.raises(Refused) as refused:
        content_of(Node({"content": [part]}, "messages.0"), "content")
    assert (refused.value.status, refused.value.more) == (400, {"param": param})
    assert param in refused.value.message


@pytest.mark.parametrize(
    "content, text",
    [("hello", "hello"), (None, ""), ([], ""), (["a", {"type": "text", "text": "b"}], "a\nb"), (b"data: x", "data: x")],
)
def test_content_is_a_string_or_parts_or_nothing(content: Any, text: str) -> None:
    assert content_of(Node({"content": content}), "content").text == text


@pytest.mark.parametrize("content", [7, {"type": "text"}, True])
def test_other_content_is_refused(content: Any) -> None:
    with pytest.raises(Refused, match="content is neither a string nor a list of parts"):
        content_of(Node({"content": content}), "content")


@pytest.mark.parametrize(
    "text, plain",
    [
        ("Grüße \U0001f600", "Grüße \U0001f600"),
        ("a\0b", "a\N{REPLACEMENT CHARACTER}b"),
        ("\ud83d\ude00", "\U0001f600"),
        ("a\ud83db\udc00", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"),
        ("data: ö".encode(), "data: ö"),
    ],
)
def test_no_text_is_refused_for_its_characters(text: str | bytes, plain: str) -> None:
    assert plain_text(text) == plain


FIELDS: dict[str, tuple[Callable[[Node], Any], Any, str]] = {
    "text": (lambda node: node.text("x"), 7, "a.x is an integer; send a string."),
    "missing text": (lambda node: node.required_text("x"), None, "a.x is missing; send a string."),
    "flag": (lambda node: node.flag("x"), "true", "a.x is a string; send true or false."),
    "integer": (lambda node: node.integer("x"), True, "a.x is true or false; send an integer."),
    "part of an integer": (lambda node: node.integer("x"), 1.5, "a.x is a number; send an integer."),
    "object": (lambda node: node.child("x"), [], "a.x is a list; send an object."),
    "missing object": (lambda node: node.required_child("x"), None, "a.x is missing; send an object."),
    "list": (lambda node: node.children("x"), {}, "a.x is an object; send a list."),
    "list of anything": (lambda node: node.values("x"), "y", "a.x is a string; send a list."),
    "list of objects": (lambda node: node.children("x"), [{}, 1], "a.x.1 is no object; send one."),
}


@pytest.mark.parametrize("read, value, message", FIELDS.values(), ids=FIELDS)
def test_a_wrong_field_is_refused_by_name(read: Callable[[Node], Any], value: Any, message: str) -> None:
    with pytest.raises(Refused) as refused:
        read(Node({"x": value}, "a"))
    assert (refused.value.status, refused.value.code, refused.value.message) == (400, "invalid_request", message)


def test_null_is_missing() -> None:
    node = Node({"x": None})
    assert (node.text("x"), node.flag("x", True), node.integer("x"), node.child("x"), node.children("x")) == (
        *(None, True, None, None),
        [],
    )


def test_a_whole_number_may_have_a_point() -> None:
    assert Node({"x": 5.0}).integer("x") == 5


SCHEMAS: dict[str, tuple[Any, dict[str, Any]]] = {
    "none": (None, {"type": "object", "properties": {}}),
    "empty": ({}, {"type": "object", "properties": {}}),
    "without type": ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
    "null type": ({"type": None}, {"type": "object", "properties": {}}),
    "whole": (
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
    ),
}


@pytest.mark.parametrize("schema, read", SCHEMAS.values(), ids=SCHEMAS)
def test_a_tool_has_the_schema_of_an_object(schema: Any, read: dict[str, Any]) -> None:
    tool = client_tool(Node({"name": "look", "description": "Look.", "parameters": schema}))
    assert tool == ClientTool(name="look", description="Look.", parameters=read)


@pytest.mark.parametrize(
    "fields, param",
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"name": "x" * (LONGEST_NAME + 1)}, "name"),
        ({"name": "x", "description": 7}, "description"),
        ({"name": "x", "parameters": "{}"}, "parameters"),
        ({"name": "x", "parameters": {"type": "array"}}, "parameters.type"),
    ],
)
def test_a_wrong_tool_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as refused:
        client_tool(Node(fields, "tools.0.function"))
    assert refused.value.more == {"param": f"tools.0.function.{param}"}


def test_a_tool_of_the_longest_name_fits() -> None:
    assert client_tool(Node({"name": "x" * LONGEST_NAME})).name == "x" * LONGEST_NAME


def test_tools_are_bounded() -> None:
    tools = [ClientTool(name=f"t{at}") for at in range(MOST_CLIENT_TOOLS + 1)]
    paths = [f"tools.{at}" for at in range(len(tools))]
    assert check_tools(tools[1:], paths[1:]) == tools[1:]
    with pytest.raises(Refused, match="send at most 512"):
        check_tools(tools, paths)


def test_two_tools_of_a_name_are_refused() -> None:
    with pytest.raises(Refused, match=r"tools\.2 has the name of tools\.0, 'a'") as refused:
        check_tools([ClientTool(name=name) for name in "aba"], ["tools.0", "tools.1", "tools.2"])
    assert refused.value.more == {"param": "tools.2"}


@pytest.mark.parametrize(
    "written, arguments",
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (" \n", {}),
        (None, {}),
        ("ls -l", {"input": "ls -l"}),
        ('{"a": ', {"input": '{"a": '}),
        ("[1]", {"input": [1]}),
        ("null", {}),
        ("[" * 100_000, {"input": "[" * 100_000}),
    ],
)
def test_arguments_of_earlier_calls_are_objects(written: Any, arguments: dict[str, Any]) -> None:
    assert call_arguments(written) == arguments
    json.dumps(arguments)


def test_a_result_gets_the_name_of_the_call_that_it_answers() -> None:
    def call(identity: str, name: str) -> Message:
        return Message("assistant", "", calls=(AskedCall(identity, name, {}, "native"),))

    history = [
        *(call("c1", "look"), Message("tool", "", call="c1"), call("c1", "go"), Message("tool", "", call="c1")),
        *(Message("tool", "", call="c2"), Message("tool", "", call="c1", name="own")),
    ]
    assert [one.name for one in with_names(history) if one.role == "tool"] == ["look", "go", None, "own"]
