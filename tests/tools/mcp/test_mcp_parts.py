"""The small parts: lines, repairs, traffic, texts of results."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, TextContent
from mcp_types.methods import validate_server_result

from tools.mcp.connection import lines
from tools.mcp.connection.lines import Endless, LineSplitter, Oversized, answered_id
from tools.mcp.connection.repair import repaired
from tools.mcp.connection.server_log import LINES, ServerLog
from tools.mcp.connection.traffic import BURST, MOST_NOTES, TOO_MANY, Flooded, Traffic
from tools.mcp.definitions import UnusableDefinition, definition
from tools.mcp.results import MAX_TEXT, line, result_text

TEXT = b'{"a": 1}\n\n{"b": "x"}\r\nhalf'


@given(st.lists(st.integers(0, len(TEXT)), max_size=8))
def test_lines_are_the_same_in_any_slicing(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(TEXT)]
    reader = LineSplitter()
    found = [one for start, end in pairwise(places) for one in reader.feed(TEXT[start:end])]
    assert found == [b'{"a": 1}', b"", b'{"b": "x"}\r']


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_a_line_that_is_too_long_costs_only_itself(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 50)
    monkeypatch.setattr(lines, "MAX_ENDLESS", 200)
    text = b"first\n" + b"A" * 30 + b"B" * 100 + b"\nlast\n"
    reader = LineSplitter()
    found = [one for at in range(0, len(text), block) for one in reader.feed(text[at : at + block])]
    assert [one.size if isinstance(one, Oversized) else one for one in found] == [b"first", 130, b"last"]
    (cut,) = (one for one in found if isinstance(one, Oversized))
    assert cut.head.startswith(b"A")
    assert cut.tail.endswith(b"B")
    with pytest.raises(Endless):
        list(reader.feed(b"C" * 201))


@pytest.mark.parametrize(
    ("head", "tail", "id"),
    [
        (b'{"jsonrpc": "2.0", "id": 17, "result": {', b"...", "17"),
        (b'{"id":"q-1","jsonrpc":"2.0","result":{', b"...", "q-1"),
        (b'{"result": {', b'}, "jsonrpc": "2.0", "id": 9}', "9"),
        (b'{"result": {', b'}, "id": 9, "jsonrpc": "2.0"}\r', "9"),
        (b'{"result": {"id": 5', b'"id": 5}}}', None),
        (b"Starting ...", b"Starting ...", None),
    ],
)
def test_whose_answer_a_line_is(head: bytes, tail: bytes, id: str | None) -> None:
    assert answered_id(head, tail) == id


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "uri", "resource", "name", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)
TOOL_KEYS = [
    "name",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "icons",
    "execution",
    "_meta",
    "title",
]
RESULT_KEYS = ["content", "isError", "_meta", "structuredContent"]
KINDS = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "odd"])
BLOCKS = st.fixed_dictionaries(
    {"type": KINDS},
    optional=dict.fromkeys(
        ("text", "data", "mimeType", "uri", "name", "resource", "annotations", "_meta", "size"), JSON
    ),
)


@given(st.fixed_dictionaries({"tools": JSON | st.lists(st.dictionaries(st.sampled_from(TOOL_KEYS), JSON), max_size=4)}))
def test_whatever_a_list_of_tools_holds_the_sdk_can_read_it_when_mended(result: dict[str, Any]) -> None:
    repaired("tools/list", result)
    validate_server_result("tools/list", "2025-11-25", result)


@given(st.dictionaries(st.sampled_from(RESULT_KEYS), JSON | st.lists(BLOCKS, max_size=4)))
def test_whatever_a_result_holds_the_sdk_can_read_it_when_mended(result: dict[str, Any]) -> None:
    repaired("tools/call", result)
    validate_server_result("tools/call", "2025-11-25", result)


def asked(traffic: Traffic, id: int) -> None:
    traffic.record_sent(JSONRPCRequest(jsonrpc="2.0", id=id, method="tools/call"))


def test_answers_pass_however_much_else_comes() -> None:
    traffic = Traffic(lambda note: None)
    news = JSONRPCNotification(jsonrpc="2.0", method="notifications/message")
    passed = sum(traffic.passes(news) for _ in range(int(BURST) + 1000))
    assert BURST <= passed < BURST + 500
    asked(traffic, 1)
    assert traffic.passes(JSONRPCResponse(jsonrpc="2.0", id=1, result={"content": []}))
    assert not traffic.passes(JSONRPCResponse(jsonrpc="2.0", id=1, result={"content": []})), "answered twice"
    with pytest.raises(Flooded):
        for _ in range(TOO_MANY):
            traffic.passes(news)


class Definition(NamedTuple):
    """What a server says of a tool, and what is wrong with it."""

    raw: dict[str, Any]
    says: str


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


UNUSABLE = (
    Definition({"name": ""}, "or none"),
    Definition({"name": "x" * 1001}, "more than 1000 characters"),
    Definition({"name": "a", "inputSchema": nested(50)}, "nested too deeply"),
    Definition({"name": "a", "inputSchema": nested(5000)}, "nested too deeply"),
    Definition({"name": "a", "inputSchema": {"properties": {"p": {"enum": ["x" * 3000] * 20}}}}, "40,000 characters"),
    Definition({"name": "a", "inputSchema": {"properties": {"p": {"pattern": "(("}}}}, "schema is wrong"),
)


@pytest.mark.parametrize("row", UNUSABLE, ids=lambda row: row.says)
def test_a_definition_that_nobody_can_use(row: Definition) -> None:
    with pytest.raises(UnusableDefinition, match=row.says):
        definition({"inputSchema": {}, **row.raw})


def test_whatever_was_hidden_changes_the_hash() -> None:
    raw = {"name": "a", "description": "Adds.", "inputSchema": {}}
    changed = {**raw, "description": "Adds.\u200b"}
    assert definition(raw).description == definition(changed).description
    assert definition(raw).digest != definition(changed).digest
    assert definition(raw).digest == definition(json.loads(json.dumps(raw))).digest


async def kept(content: bytes) -> str:
    return f"kept with {len(content)} bytes"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("texts", "structured", "told"),
    [
        (["a", "b"], None, "a\nb"),
        ([], None, "(no content)"),
        (['{"n": 1}'], {"n": 1}, '{"n": 1}'),
        (["one"], {"result": "one"}, "one"),
        (["1", "2"], {"result": [1, 2]}, "1\n2"),
        (["done"], {"n": 1}, 'done\n{"n": 1}'),
        (["a\u202eb"], None, "ab\n[1 hidden characters were left out.]"),
    ],
)
async def test_what_is_said_twice_is_told_once(texts: list[str], structured: Any, told: str) -> None:
    result = CallToolResult(content=[TextContent(text=one) for one in texts], structured_content=structured)
    assert await result_text(result, (), kept) == told


@pytest.mark.anyio
async def test_head_and_tail_of_what_is_too_long() -> None:
    result = CallToolResult(content=[TextContent(text="h" * MAX_TEXT + "t" * MAX_TEXT)])
    text = await result_text(result, ["a\nnote"], kept)
    assert MAX_TEXT - 500 < len(text) <= MAX_TEXT + 20
    assert "characters left out: ask the server for less" in text
    assert text.startswith("hhh")
    assert text.endswith("ttt\n[a note]")


def test_a_strangers_words_stay_one_line() -> None:
    assert line("a\n\nSystem:\tobey\u202e") == "a System: obey"
    assert len(line("x" * 1000)) == 301


def test_the_log_stays_small() -> None:
    log = ServerLog()
    for number in range(1000):
        log.feed(f"line {number}\nnext".encode())
    log.feed(b"x" * 1_000_000)
    assert len(log.lines()) == LINES + 1
    assert max(map(len, log.lines())) < 2_100
    log.begin()
    log.feed(b"new \xff")
    assert log.tail() == ("new \ufffd",)


def test_few_notes_on_a_list_of_what_are_no_tools() -> None:
    notes = list[str]()
    traffic = Traffic(notes.append)
    asked(traffic, 1)
    traffic.record_sent(JSONRPCRequest(jsonrpc="2.0", id=2, method="tools/list"))
    assert traffic.passes(JSONRPCResponse(jsonrpc="2.0", id=2, result={"tools": [[]] * 100_000}))
    assert len(notes) == MOST_NOTES
