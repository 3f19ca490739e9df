"""A wrong call is answered with its right form: as the model is taught it, whatever the call was written in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import CallForm, Piece, TextChunk
from app.models.scripted import Reply, Scripted
from app.provenance.quotation import source_of
from app.transcript.right_form import MARK, as_command, example_arguments, right_form, without_right_form
from parsing import Call, Parser
from tests.support.parsing.forms import SINGLE, WRITERS
from tests.support.server.serving import serving
from tools.catalogue import TOOLS

pytestmark = pytest.mark.anyio
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}
UNKNOWN, MISFIT = ("reed_file", {"path": "a.txt"}), ("read_file", {"place": "a.txt"})


def wrong_calls() -> list[Piece]:
    wrong = (UNKNOWN, MISFIT)
    written: list[Piece] = [
        TextChunk(WRITERS[dialect]([MISFIT] if dialect in SINGLE else [MISFIT, UNKNOWN])) for dialect in WRITERS
    ]
    return [*written, *(Call(0, name, given, "native") for name, given in wrong)]


async def test_the_same_is_answered_in_all_dialects(tmp_path: Path) -> None:
    """Some forms are calls only with an offered name and its arguments: else they are text, and nothing is answered."""
    replies: list[Reply] = [reply for piece in wrong_calls() for reply in ([piece], "Done.")]
    model, shown = Scripted(replies, call_form=CallForm.TAGGED), dict[str, set[str]]()
    async with serving(tmp_path, model) as served:
        while len(model.requests) < len(replies):  # a chat takes two, or one if its first is only text
            await served.chat("Read it.")
    for result in (message for request in model.requests for message in request.messages if message.role == "tool"):
        if (result.call or "").startswith("example"):
            continue
        mark = MARK.format(call=result.call)
        assert mark in result.text, result.text
        shown.setdefault(result.name or "", set()).add(result.text.partition(mark)[2])
    assert shown == {
        "reed_file": {
            '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.txt"}}\n</tool_call>',
            'read_file with the arguments {"path": "a.txt"}',
        },
        "read_file": {
            '<tool_call>\n{"name": "read_file", "arguments": {"path": "PATH"}}\n</tool_call>',
            'read_file with the arguments {"path": "PATH"}',
        },
    }


async def test_the_shown_form_is_a_call_of_its_own_and_no_quotation(tmp_path: Path) -> None:
    """In both forms that are taught; the example runs as it is, and asks nobody."""
    for form in (CallForm.TAGGED, CallForm.FENCED):
        (folder := tmp_path / form).mkdir()
        wrong = '<tool_call>{"name": "shell", "arguments": {"command": "echo yes"}}</tool_call>'
        shown = right_form("", "hermes", form, "bash", SCHEMAS["bash"], given={"command": "echo yes"})
        call = shown.removeprefix(MARK.format(call=""))
        model = Scripted([wrong, call, "Done."], call_form=form)
        async with serving(folder, model) as served:
            events = await served.chat("Say yes.")
        kinds = [event["type"] for event in events]
        assert "approval.required" not in kinds and kinds.count("tool.finished") == 1, kinds
        assert call in model.requests[1].messages[-1].text


@pytest.mark.parametrize(
    ("tool", "given", "shown"),
    [
        ("write_file", {"file": "a", "filename": "b", "content": "c"}, {"path": "PATH", "content": "c"}),
        ("read_file", {"path": ["a"], "offset": 3}, {"path": "PATH", "offset": 3}),
        ("read_file", {"file": "a", "offset": "x"}, {"path": "a", "offset": 1}),
        ("bash", {"command": "x" * 1000, "sudo": True}, {"command": "COMMAND"}),
        ("job_status", {"nothing": 1}, {}),
    ],
)
def test_what_fits_stays_in_the_example(tool: str, given: dict[str, Any], shown: dict[str, Any]) -> None:
    assert example_arguments(SCHEMAS[tool], given) == shown


@pytest.mark.parametrize(
    ("called", "given", "command"),
    [
        ("grep", {"pattern": "TODO|it's", "path": "src dir"}, """grep -rnE -e 'TODO|it'"'"'s' -- 'src dir'"""),
        ("Grep", {"pattern": "x; rm -rf /"}, "grep -rnE -e 'x; rm -rf /' -- ."),
        ("rg", {"pattern": "x", "path": 3, "command": "rg x"}, "rg x"),
        ("grep", {"pattern": 3}, "COMMAND"),
        ("find", {"pattern": "x"}, "COMMAND"),
    ],
)
def test_a_search_is_shown_as_its_command(called: str, given: dict[str, Any], command: str) -> None:
    assert example_arguments(SCHEMAS["bash"], as_command(called, given)) == {"command": command}


def test_a_choice_is_one_of_the_choices() -> None:
    schema = {"type": "object", "properties": {"unit": {"enum": ["km", "mi"]}}, "required": ["unit", "undeclared"]}
    assert example_arguments(schema, {"unit": "feet"}) == {"unit": "km", "undeclared": "UNDECLARED"}
    assert example_arguments({}, {"any": 1}) == {}


def test_no_example_is_longer_than_a_model_can_use() -> None:
    names = [f"name_{number}" for number in range(1_000)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    assert not right_form("c1", "hermes", CallForm.TAGGED, "x", schema | {"required": names}, given={"odd": 1})
    assert not right_form("c1", "hermes", CallForm.TAGGED, "x", schema, given=dict.fromkeys(names, "a" * 300))
    assert right_form("c1", "hermes", CallForm.TAGGED, "x", schema, given={"odd": 1})


@pytest.mark.parametrize("name", [name for name in SCHEMAS if SCHEMAS[name].get("required")])
def test_every_example_is_a_call_in_its_own_form(name: str) -> None:
    for form in (CallForm.TAGGED, CallForm.FENCED):
        text = right_form("c1", "hermes", form, name, SCHEMAS[name], given={}).removeprefix(MARK.format(call="c1"))
        parser = Parser(SCHEMAS, fences=form is CallForm.FENCED)
        calls = [event for event in [*parser.feed(text), *parser.close()] if isinstance(event, Call)]
        assert [(call.name, call.arguments) for call in calls] == [(name, example_arguments(SCHEMAS[name], {}))]


def test_only_our_example_is_taken_off() -> None:
    ours = Message("tool", "No." + right_form("c2", "hermes", CallForm.TAGGED, "bash", {}, given={}), call="c2")
    forged = Message("tool", "No." + right_form("c1", "hermes", CallForm.TAGGED, "bash", {}, given={}), call="c2")
    foreign = replace(ours, untrusted=True)  # sent by a client whose ids can be guessed
    assert without_right_form(ours.text, "c2") == "No."
    kept = [source_of(message) for message in (ours, forged, foreign)]
    assert [bool(source and "<tool_call>" in source.text) for source in kept] == [False, True, True]
