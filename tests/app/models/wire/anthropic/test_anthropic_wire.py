"""The history as a body of the Messages API: what its rules need, and thoughts that go back only where they may."""

from __future__ import annotations

from msgspec.structs import replace

from app.core.clock import Clock
from app.core.data_delimiters import framed
from app.core.messages import AskedCall, Message
from app.models.wire.anthropic.blocks import wire_tools
from app.models.wire.anthropic.history import EMPTY_MESSAGE, GO_ON
from app.models.wire.client_history import EARLIER
from app.models.wire.openai.history import ENOUGH, INTERRUPTED
from tests.support.models.chatting import BASH
from tests.support.models.messages_rules import broken_rules
from tests.support.models.messages_wire import (
    FENCED,
    FRAMED,
    LS,
    PDF,
    PNG,
    READ,
    SYSTEM,
    USER,
    answer,
    body_of,
    said,
    turn,
    use,
    written,
)


def test_results_come_first_in_order_and_all_of_them() -> None:
    history = [
        SYSTEM,
        USER,
        Message("assistant", "I look.", (LS, READ)),
        Message("tool", "hello", call="c2", name="read_file"),
        Message("user", "Faster, please."),
        Message("tool", "a.txt", call="c1", name="bash"),
    ]
    one = written(history)
    assert one.system == [said("Be brief.")]
    assert one.messages == [
        turn("user", said("List the files.")),
        turn("assistant", said("I look."), use(LS), use(READ)),
        turn(
            "user",
            answer("c1", FRAMED),
            answer("c2", framed("hello", call="c2", name="read_file")),
            said("Faster, please."),
        ),
    ]
    assert broken_rules(body_of(one)) == []


def test_a_call_without_a_result_gets_one() -> None:
    assert written([USER, Message("assistant", "", (LS,))]).messages[1:] == [
        turn("assistant", use(LS)),
        turn("user", answer("c1", INTERRUPTED)),
    ]


def test_a_call_in_text_stays_text_and_its_result_is_the_users() -> None:
    fence = "```bash\nls\n```"
    history = [USER, Message("assistant", fence, (FENCED,)), Message("tool", "a.txt", call="c3", name="bash")]
    assert written(history).messages[1:] == [
        turn("assistant", said(fence)),
        turn("user", said(framed("a.txt", call="c3", name="bash")), said(ENOUGH)),
    ]


def test_without_tools_native_calls_become_text() -> None:
    history = [USER, Message("assistant", "I look.", (LS,)), Message("tool", "a.txt", call="c1", name="bash")]
    call = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
    assert written(history, native=False).messages[1:] == [
        turn("assistant", said(f"I look.\n{call}")),
        turn("user", said(FRAMED), said(ENOUGH)),
    ]


def test_nothing_is_empty_and_a_person_begins_and_ends() -> None:
    history = [
        *(Message("system", " "), SYSTEM, Message("assistant", "Welcome."), Message("system", "Late.")),
        *(Message("user", "\n"), Message("assistant", " \n"), USER, Message("assistant", "Done.")),
    ]
    one = written(history)
    assert one.system == [said("Be brief.")]
    assert one.messages == [
        turn("user", said(EARLIER)),
        turn("assistant", said("Welcome.")),
        turn("user", said("Late."), said(EMPTY_MESSAGE), said("List the files.")),
        turn("assistant", said("Done.")),
        turn("user", said(GO_ON)),
    ]
    assert written([]).messages == [turn("user", said(GO_ON))]


def test_names_ids_and_arguments_that_would_be_refused_are_mended() -> None:
    odd = AskedCall("c:1", "my tool.v2", {"a\ud83d": ["\ud83d\ude00", "\ude00"]}, "native")
    nameless = AskedCall("c9", "", {}, "native")
    one = written([USER, Message("assistant", "", (odd, nameless))])
    content = one.messages[1]["content"]
    assert content == [
        {"type": "tool_use", "id": content[0]["id"], "name": "my_tool_v2", "input": {"a\ufffd": ["😀", "\ufffd"]}},
        {"type": "tool_use", "id": "c9", "name": "unknown", "input": {}},
    ]
    assert broken_rules(body_of(one)) == []


def test_tools_keep_what_the_api_takes_of_their_schemas() -> None:
    schema = {"properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}], "required": ["a"]}
    odd = replace(BASH, description=" ", parameters=schema)
    assert wire_tools([BASH, odd]) == [
        {"name": "bash", "description": "Runs a command.", "input_schema": {"type": "object"}},
        {
            "name": "bash",
            "input_schema": {"properties": {"a": {"type": "string"}}, "required": ["a"], "type": "object"},
        },
    ]


def test_pictures_and_pdfs_come_in_front_of_the_words_or_are_described() -> None:
    message = Message("user", "What is it?", attachments=(PNG, PDF), at=0.0)
    sources = [
        {"type": "base64", "media_type": one.media_type, "data": data} for one, data in ((PNG, "YQ=="), (PDF, "Yg=="))
    ]
    files = {PNG.sha256: "YQ==", PDF.sha256: "Yg=="}
    (asked,) = written([message], files=files, clock=Clock("UTC")).messages
    assert asked["content"] == [
        {"type": "image", "source": sources[0]},
        {"type": "document", "source": sources[1], "title": "a.pdf"},
        said("What is it?\n\n[1970-01-01 00:00 UTC]"),
    ]
    (described,) = written([message]).messages
    words = [block["text"] for block in described["content"]]
    assert "cat.png" in words[0] and "a.pdf" in words[1] and words[2] == "What is it?"
    (alone,) = written([replace(message, text="")], files=files).messages
    assert [block["type"] for block in alone["content"]] == ["image", "document"]
