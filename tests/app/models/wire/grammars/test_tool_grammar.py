"""Grammars for taught calls: for whom, in which fields, and what a refusal teaches."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import CallForm, ModelRequest, ProviderNotice
from app.models.capabilities.abilities import AbilityOverrides
from app.models.wire.grammars.gbnf import gbnf_of
from app.models.wire.grammars.tool_grammar import GrammarRequest, taught_calls
from app.models.wire.parameters import DROPPED
from parsing import parse
from tests.support.models.abilities import models
from tests.support.models.chatting import BASH, HELLO, WHOLE, chat_with, failure_of, pieces_of, refusal
from tests.support.models.gbnf_matcher import takes
from tests.support.models.upstream import Act, announced, stream, upstream
from tools.catalogue import TOOLS
from tools.tool import ToolList

COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SHELL = replace(BASH, parameters=COMMAND)
WRITE = next(tool for tool in TOOLS if tool.name == "write_file")
LIST = next(tool for tool in TOOLS if tool.name == "list_files")
OFFERED = ToolList([SHELL, WRITE, LIST])
SCHEMAS = OFFERED.schemas
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
TEXTS = [
    # form, text, free, required, required and one alone
    (CallForm.TAGGED, "Hello\nthere", True, False, False),
    (CallForm.TAGGED, CALL, True, True, True),
    (CallForm.TAGGED, f"Now:\n{CALL}\n{CALL}\n", True, False, False),
    (CallForm.TAGGED, f"{CALL}\nDone.", True, True, False),
    (CallForm.TAGGED, "The form is `<tool_call>` and so on.", True, False, False),
    (CallForm.TAGGED, CALL.replace("bash", "sh"), False, False, False),
    (CallForm.TAGGED, CALL.replace('"ls"', "1"), False, False, False),
    (CallForm.TAGGED, CALL.replace("}}", "}"), False, False, False),
    (CallForm.TAGGED, CALL.removesuffix("</tool_call>"), False, False, False),
    (CallForm.FENCED, "```json\n{}\n```\nThat is it.", True, False, False),
    (CallForm.FENCED, "```bash\nls -la\n```", True, True, True),
    (CallForm.FENCED, "```bash\nls\n```\n```bash\npwd\n```", True, True, False),
    (CallForm.FENCED, '```bash\n{"command": "ls"}\n```', True, True, True),
    (CallForm.FENCED, '```bash\n{"command": 1}\n```', False, False, False),
    (CallForm.FENCED, "```bash\n\n```", False, False, False),
    (CallForm.FENCED, "```bash\nls", False, False, False),
    (CallForm.FENCED, "```write_file\na.txt\n\n```", True, True, True),
    (CallForm.FENCED, "```write_file\na.txt\n```", False, False, False),
    (CallForm.FENCED, "```write_file\na.txt\nx\n  ```\nDone.", True, True, False),
]


@pytest.mark.parametrize(("form", "text", "free", "required", "alone"), TEXTS)
def test_what_a_grammar_takes(form: CallForm, text: str, free: bool, required: bool, alone: bool) -> None:
    ways = [(False, True), (True, True), (True, False)]
    grammars = [gbnf_of(form, OFFERED, required=first, several=second) for first, second in ways]
    assert [takes(grammar or "", text) for grammar in grammars] == [free, required, alone]
    if required:
        read = parse(text, SCHEMAS, fences=form is CallForm.FENCED)
        assert read.calls
        assert not read.rejected


def test_a_required_call_follows_the_thought_that_the_prompt_has_opened() -> None:
    grammar = gbnf_of(CallForm.TAGGED, OFFERED, required=True, closes_thought="</think>")
    assert takes(grammar or "", f"I run ls.\n</think>\n{CALL}")
    assert not takes(grammar or "", f"I run ls.\n{CALL}")


def test_too_many_tools_go_without() -> None:
    def wide(tool: int) -> Any:
        return {"properties": {f"p{tool}_{number}": {"type": "string"} for number in range(200)}}

    many = [replace(SHELL, name=f"tool_{number}", parameters=wide(number)) for number in range(40)]
    assert taught_calls("llama.cpp", CallForm.TAGGED, many, {}, "") == []


LONG = {"properties": {"a": {"const": "x" * 2_000_000}}}
OPTIONS = {"properties": {"a": {"anyOf": [{"type": "string"}] * 3900}}}


@pytest.mark.parametrize("schemas", [[LONG], [OPTIONS] * 128])
def test_a_grammar_that_would_be_too_large_is_soon_given_up(schemas: Sequence[Any]) -> None:
    many = [replace(SHELL, name=f"tool_{number}", parameters=schema) for number, schema in enumerate(schemas)]
    started = time.process_time()
    assert gbnf_of(CallForm.TAGGED, many) is None
    assert time.process_time() - started < 0.3


def test_vllm_and_sglang_get_structural_tags() -> None:
    vllm = taught_calls("vLLM", CallForm.TAGGED, [SHELL], {"tool_choice": "required"}, "")
    begin, end = '<tool_call>\n{"name": "bash", "arguments": ', "}\n</tool_call>"
    tag = {
        "type": "structural_tag",
        "format": {
            "type": "triggered_tags",
            "triggers": ["<tool_call>\n"],
            "tags": [
                {
                    "type": "tag",
                    "begin": begin,
                    "content": {"type": "json_schema", "json_schema": COMMAND},
                    "end": end,
                }
            ],
            "at_least_one": True,
            "stop_after_first": False,
        },
    }
    earlier = {
        "type": "structural_tag",
        "structures": [{"begin": begin, "schema": COMMAND, "end": end}],
        "triggers": ["<tool_call>\n"],
    }
    assert vllm == [
        {"response_format": tag},
        {"structured_outputs": {"structural_tag": json.dumps(tag)}},
        {"response_format": earlier},
    ]
    sglang = taught_calls("SGLang", CallForm.TAGGED, [SHELL], {"tool_choice": "required"}, "")
    assert sglang == [vllm[0], vllm[2]]


def test_a_choice_of_a_tool_that_is_not_offered_forces_no_other() -> None:
    named = {"tool_choice": {"type": "function", "function": {"name": "nope"}}}
    free, given = (taught_calls("llama.cpp", CallForm.TAGGED, [SHELL], choice, "") for choice in ({}, named))
    assert given == free != taught_calls("llama.cpp", CallForm.TAGGED, [SHELL], {"tool_choice": "required"}, "")


def test_a_fence_may_hold_plain_text_where_the_engine_can_say_so() -> None:
    reply = GrammarRequest(CallForm.FENCED, ToolList([SHELL, LIST]), several=False)
    form = reply.tag()["format"]
    assert form["triggers"] == ["```bash\n", "```list_files\n"]
    assert [tag["content"]["type"] for tag in form["tags"]] == ["any_text", "json_schema"]
    assert {tag["end"] for tag in form["tags"]} == {"\n```"}
    assert form["stop_after_first"]


@pytest.mark.parametrize(
    "given",
    [
        {"tool_choice": "none"},
        {"response_format": {"type": "json_object"}},
        {"grammar": "root ::= [a-z]"},
        {"guided_json": {"type": "object"}},
    ],
)
def test_who_wants_no_calls_or_has_a_grammar_gets_none(given: Any) -> None:
    assert taught_calls("llama.cpp", CallForm.TAGGED, [SHELL], given, "") == ()


@pytest.mark.parametrize("given", [{"response_format": {"type": "text"}}, {"response_format": None, "grammar": None}])
async def test_a_format_of_plain_text_is_no_grammar(given: Any) -> None:
    (body,), _ = await bodies_of("vllm", WHOLE, asked=[replace(with_tools(SHELL), parameters=given)])
    assert body["response_format"]["type"] == "structural_tag"


def test_a_chosen_tool_is_the_only_one() -> None:
    given = {"tool_choice": {"type": "function", "function": {"name": "bash"}}}
    (fields,) = taught_calls("llama.cpp", CallForm.TAGGED, OFFERED, given, "")
    assert takes(fields["grammar"], CALL)
    assert "write_file" not in fields["grammar"]


# --- what a server teaches ---

pytestmark = pytest.mark.anyio
LLAMA = "llamacpp"
REFUSED = refusal("Failed to initialize samplers: failed to parse grammar")  # recorded: llama.cpp
UNKNOWN = refusal("2 validation errors:\n  {'type': 'missing', 'loc': ('body', 'response_format', 'structures')}")
INVALID = refusal("Invalid response_format structural_tag specification.", "response_format")  # vLLM


def with_tools(*tools: Any, **parameters: Any) -> ModelRequest:
    return ModelRequest([HELLO], ToolList(tools or OFFERED), parameters=parameters)


async def bodies_of(owner: str, *acts: Act, asked: Sequence[ModelRequest], **overrides: Any) -> tuple[list[Any], Any]:
    """The bodies of the requests that so many answers took, and what is known of grammars afterwards."""
    stated = AbilityOverrides(**{"tool_calls": "tagged"} | overrides)
    listed = models(owned_by=owner, max_model_len=4096)
    async with upstream(listed, *acts) as server, chat_with(server, overrides=stated) as chat:
        await chat.window()
        notices = [piece for one in asked for piece in await pieces_of(chat, one) if isinstance(piece, ProviderNotice)]
        known = chat.ability("tool_grammar").value, [notice.message for notice in notices]
    return [one.json for one in server.chats], known


def fields_in(body: Any) -> list[str]:
    return [name for name in ("grammar", "response_format", "structured_outputs") if name in body]


async def test_a_server_that_takes_the_grammar_is_sent_it() -> None:
    (body,), known = await bodies_of(LLAMA, WHOLE, asked=[with_tools()])
    assert takes(body["grammar"], CALL)
    assert known == ("llama.cpp", [])


@pytest.mark.parametrize(
    ("owner", "overrides", "tools"),
    [
        (LLAMA, {"tool_grammar": "off"}, OFFERED),
        (LLAMA, {"tool_calls": "native", "tool_grammar": "on"}, OFFERED),  # it does that itself
        ("vllm", {"tool_calls": "native"}, OFFERED),
        ("another", {}, OFFERED),
        (LLAMA, {}, ()),
    ],
)
async def test_others_are_sent_none(owner: str, overrides: Any, tools: Any) -> None:
    (body,), _ = await bodies_of(owner, WHOLE, asked=[ModelRequest([HELLO], tools)], **overrides)
    assert fields_in(body) == []
    assert "strict" not in json.dumps(body)


async def test_a_refused_grammar_fails_no_turn_and_is_not_sent_again_for_these_tools() -> None:
    acts = [REFUSED, WHOLE, WHOLE, WHOLE]
    asked = [with_tools(), with_tools(), with_tools(SHELL)]
    bodies, known = await bodies_of(LLAMA, *acts, asked=asked)
    assert [*map(fields_in, bodies)] == [["grammar"], [], [], ["grammar"]]
    assert known == ("llama.cpp", [DROPPED.format("tool_grammar")])


async def test_a_server_that_refuses_two_and_has_taken_none_is_sent_none() -> None:
    acts = [REFUSED, WHOLE, REFUSED, WHOLE, WHOLE]
    asked = [with_tools(), with_tools(SHELL), with_tools(WRITE)]
    bodies, (known, notices) = await bodies_of(LLAMA, *acts, asked=asked)
    assert [*map(fields_in, bodies)] == [["grammar"], [], ["grammar"], [], []]
    assert known is False
    assert len(notices) == 2


async def test_one_odd_schema_costs_the_other_tools_nothing() -> None:
    acts = [WHOLE, REFUSED, WHOLE, REFUSED, WHOLE, WHOLE]
    asked = [with_tools(), with_tools(SHELL), with_tools(WRITE), with_tools()]
    bodies, (known, _) = await bodies_of(LLAMA, *acts, asked=asked)
    assert fields_in(bodies[-1]) == ["grammar"]
    assert known == "llama.cpp"


async def test_the_way_that_a_server_takes_is_remembered() -> None:
    bodies, known = await bodies_of("vllm", UNKNOWN, WHOLE, WHOLE, asked=[with_tools(), with_tools()])
    assert [*map(fields_in, bodies)] == [["response_format"], ["structured_outputs"], ["structured_outputs"]]
    assert known == ("vLLM", [])
    bodies, _ = await bodies_of("sglang", INVALID, WHOLE, asked=[with_tools()])
    assert ["structures" in one["response_format"] for one in bodies] == [False, True]
    bodies, _ = await bodies_of("vllm", INVALID, INVALID, INVALID, WHOLE, asked=[with_tools()])
    assert fields_in(bodies[-1]) == []


async def test_another_refusal_is_not_blamed_on_the_grammar() -> None:
    wrong = refusal("The picture cannot be decoded.")
    listed = models(owned_by=LLAMA, max_model_len=4096)
    async with (
        upstream(listed, wrong, wrong, WHOLE) as server,
        chat_with(server, overrides=AbilityOverrides("tagged")) as chat,
    ):
        await chat.window()
        _, failure = await failure_of(chat, with_tools())
        await pieces_of(chat, with_tools())
    assert "picture" in failure.message
    assert [*map(fields_in, (one.json for one in server.chats))] == [["grammar"], [], ["grammar"]]


@pytest.mark.parametrize("owner", ["vllm", "sglang"])
async def test_native_calls_are_strict_on_request_where_the_engine_can(owner: str) -> None:
    bodies, _ = await bodies_of(owner, WHOLE, asked=[with_tools(SHELL)], tool_calls="native", tool_grammar="on")
    assert [tool["function"]["strict"] for tool in bodies[0]["tools"]] == [True]
    refused = [refusal("tools: strict is not supported"), WHOLE]
    bodies, known = await bodies_of(owner, *refused, asked=[with_tools(SHELL)], tool_calls="native", tool_grammar="on")
    assert ["strict" in tool["function"] for body in bodies for tool in body["tools"]] == [True, False]
    assert known[1] == [DROPPED.format("tool_grammar")]


async def test_an_answer_that_its_grammar_breaks_is_asked_for_without() -> None:
    broken = stream(f"data: {json.dumps({'error': {'message': 'Unexpected empty grammar stack'}})}\n\n")
    listed = models(owned_by=LLAMA, max_model_len=4096)
    async with (
        upstream(listed, broken, WHOLE) as server,
        chat_with(server, overrides=AbilityOverrides("tagged")) as chat,
    ):
        await chat.window()
        await failure_of(chat, with_tools())
        await pieces_of(chat, with_tools())
    assert [*map(fields_in, (one.json for one in server.chats))] == [["grammar"], []]


async def test_a_server_in_trouble_is_not_asked_again_without_the_grammar() -> None:
    listed = models(owned_by=LLAMA, max_model_len=4096)
    async with (
        upstream(listed, refusal("out of memory", status=500), WHOLE) as server,
        chat_with(server, overrides=AbilityOverrides("tagged")) as chat,
    ):
        await chat.window()
        await failure_of(chat, with_tools())
        await pieces_of(chat, with_tools())
    assert [*map(fields_in, (one.json for one in server.chats))] == [["grammar"], ["grammar"]]


async def test_the_refusal_of_a_history_is_not_blamed_on_the_grammar() -> None:
    sent = ModelRequest([Message("system", "Be brief."), HELLO], OFFERED, verbatim=True)
    acts = [refusal("System role not supported"), WHOLE, WHOLE]
    bodies, known = await bodies_of("vllm", *acts, asked=[sent, sent])
    assert [*map(fields_in, bodies)] == [["response_format"]] * 3
    assert known == ("vLLM", [])


async def test_the_rest_of_an_answer_goes_without() -> None:
    half = ModelRequest(
        [HELLO, Message("assistant", "I run ", cut=True)],
        OFFERED,
        parameters={"tool_choice": "required"},
        go_on="",
    )
    (body,), _ = await bodies_of(LLAMA, WHOLE, asked=[half], tool_calls="fenced")
    assert body["messages"][-1]["content"] == "I run "
    assert fields_in(body) == []


async def test_requests_at_the_same_time_have_grammars_of_their_own() -> None:
    begun, sent = asyncio.Event(), asyncio.Event()
    error = f"data: {json.dumps({'error': {'message': 'Unexpected empty grammar stack'}})}\n\n"
    broken = announced(begun, stream(error), sent)
    async with (
        upstream(models(owned_by=LLAMA, max_model_len=4096), broken, WHOLE, WHOLE, WHOLE) as server,
        chat_with(server, overrides=AbilityOverrides("tagged")) as chat,
    ):
        await chat.window()
        failing = asyncio.create_task(failure_of(chat, with_tools()))
        await begun.wait()
        await pieces_of(chat)  # without tools
        await pieces_of(chat, with_tools(SHELL))
        sent.set()
        await failing
        await pieces_of(chat, with_tools())
    assert [*map(fields_in, (one.json for one in server.chats))] == [["grammar"], [], ["grammar"], []]
