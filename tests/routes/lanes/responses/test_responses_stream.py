"""Streams of Responses: each rule that a client breaks without, on every golden log and on logs made by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events import AgentEvent, ReasoningDelta, RoundStarted, TextDelta
from app.log.log_compaction import joined_rows
from app.storage.runs import EventRow
from routes.lanes.answer import Answer
from routes.lanes.responses.response import whole
from tests.support.lanes.logs import STARTED, USAGE, blocks, finished, rows_of, turn_of, types
from tests.support.lanes.responses_streams import ECHO, ROWS, Events, only, request, stream

# What openai-py 3.54 and openai-js 7.57 know of what is sent here; openai-js throws at other types.
KNOWN = re.compile(
    r"response\.(created|in_progress|completed|incomplete|failed|output_item\.(added|done)|content_part\.(added|done)"
    r"|output_text\.(delta|done)|reasoning_summary_part\.(added|done)|reasoning_summary_text\.(delta|done)"
    r"|function_call_arguments\.(delta|done)|custom_tool_call_input\.(delta|done)"
    r"|mcp_call\.(in_progress|completed|failed)|mcp_call_arguments\.(delta|done))"
)
ENDS = {"response.completed", "response.incomplete", "response.failed"}


def created_comes_first_with_one_id_and_the_echo(events: Events, _: Sequence[EventRow]) -> None:
    assert types(events)[:2] == ["response.created", "response.in_progress"]
    responses = [data["response"] for _, data in events if "response" in data]
    for response in responses:
        assert response["id"] == "resp_00000000000000000001"
        assert response["created_at"] == 1_700_000_000
        assert response["model"] == "tiny"
        assert response["object"] == "response"
        assert ECHO["response"].items() <= response.items()
    assert [one["status"] for one in responses[:2]] == ["in_progress", "in_progress"]


def an_item_has_one_id_of_its_kind_in_all_its_events(events: Events, rows: Sequence[EventRow]) -> None:
    kinds = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc", "mcp_call": "mcp"}
    added = {data["output_index"]: data["item"] for data in only(events, "output_item.added")}
    assert len({item["id"] for item in added.values()}) == len(added)
    for item in added.values():
        assert re.fullmatch(rf"{kinds[item['type']]}_00000000000000000001_\d+", item["id"])
        assert item.get("call_id") != item["id"]
    for data in (data for _, data in events):
        if "output_index" in data:
            assert (data["item"]["id"] if "item" in data else data["item_id"]) == added[data["output_index"]]["id"]
        for field in ("type", "call_id", "name"):
            if "item" in data and field in data["item"]:
                assert data["item"][field] == added[data["output_index"]][field]


def items_are_added_in_order_and_each_is_done(events: Events, _: Sequence[EventRow]) -> None:
    added = [data["output_index"] for data in only(events, "output_item.added")]
    assert added == [*range(len(added))]
    done = [data["output_index"] for data in only(events, "output_item.done")]
    assert len(set(done)) == len(done)
    output = events[-1][1]["response"]["output"]
    assert [at for at, item in enumerate(output) if item.get("status") != "incomplete"] == sorted(done)


def words_stand_in_a_part_that_is_added_and_done(events: Events, _: Sequence[EventRow]) -> None:
    parts = {
        "message": ("content_part", "output_text"),
        "reasoning": ("reasoning_summary_part", "reasoning_summary_text"),
    }
    for added in only(events, "output_item.added"):
        if (kind := added["item"]["type"]) not in parts:
            continue
        part, deltas = parts[kind]
        own = [(name, data) for name, data in events if data.get("item_id") == added["item"]["id"]]
        assert types(own)[0] == f"response.{part}.added"
        assert types(own)[-2:] == [f"response.{deltas}.done", f"response.{part}.done"]
        assert set(types(own)[1:-2]) == {f"response.{deltas}.delta"}
        text = "".join(data["delta"] for _, data in own[1:-2])
        assert text.encode("utf-16", "surrogatepass") == own[-2][1]["text"].encode("utf-16", "surrogatepass")
        assert own[-1][1]["part"]["text"] == own[-2][1]["text"]
        assert text.strip()


def a_call_has_a_delta_with_all_arguments(events: Events, _: Sequence[EventRow]) -> None:
    for done in only(events, "output_item.done"):
        item = done["item"]
        own = [data for name, data in events if data.get("item_id") == item["id"] and name.endswith(".delta")]
        if item["type"] in ("function_call", "mcp_call"):
            assert [data["delta"] for data in own] == [item["arguments"]]
            assert isinstance(json.loads(item["arguments"]), dict)
        if item["type"] == "custom_tool_call":
            assert [data["delta"] for data in own] == [item["input"]]


def the_end_has_the_whole_output_and_usage(events: Events, rows: Sequence[EventRow]) -> None:
    name, data = events[-1]
    assert name in ENDS
    assert not ENDS & set(types(events[:-1]))
    response = data["response"]
    by_index = {data["output_index"]: data["item"] for data in only(events, "output_item.done")}
    assert by_index.items() <= dict(enumerate(response["output"])).items()
    used = [json.loads(row.data) for row in rows if row.type == "usage"]
    usage = response["usage"]
    assert usage["input_tokens"] == sum(one["prompt_tokens"] for one in used)
    assert usage["output_tokens"] == sum(one["completion_tokens"] for one in used)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["input_tokens_details"].keys() >= {"cached_tokens"}
    assert usage["output_tokens_details"].keys() >= {"reasoning_tokens"}


def thoughts_are_summaries(events: Events, _: Sequence[EventRow]) -> None:
    assert not [name for name in types(events) if "reasoning_text" in name]


def no_event_type_is_unknown(events: Events, _: Sequence[EventRow]) -> None:
    for name, data in events:
        assert KNOWN.fullmatch(name), name
        assert data["type"] == name


def sequence_numbers_grow(events: Events, _: Sequence[EventRow]) -> None:
    numbers = [data["sequence_number"] for _, data in events]
    assert numbers == sorted(set(numbers))


def own_tools_are_no_function_calls(events: Events, rows: Sequence[EventRow]) -> None:
    own = {json.loads(row.data)["call"] for row in rows if row.type == "tool.started"}
    items = [data["item"] for _, data in events if "item" in data]
    assert not [item for item in items if item.get("call_id") in own]
    assert {item["server_label"] for item in items if item["type"] == "mcp_call"} <= {"dragoman"}


def calls_as_they_are_written_are_never_shown(events: Events, rows: Sequence[EventRow]) -> None:
    """`tool.delta` is a dialect's text, no JSON."""
    assert stream([row for row in rows if row.type != "tool.delta"]) == stream(rows)


RULES = (
    created_comes_first_with_one_id_and_the_echo,
    an_item_has_one_id_of_its_kind_in_all_its_events,
    items_are_added_in_order_and_each_is_done,
    words_stand_in_a_part_that_is_added_and_done,
    a_call_has_a_delta_with_all_arguments,
    the_end_has_the_whole_output_and_usage,
    thoughts_are_summaries,
    no_event_type_is_unknown,
    sequence_numbers_grow,
    own_tools_are_no_function_calls,
    calls_as_they_are_written_are_never_shown,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("log", ROWS)
def test_a_stream_keeps_the_rule(log: str, rule: Callable[[Events, Sequence[EventRow]], None]) -> None:
    rule(blocks(stream(ROWS[log])), ROWS[log])


@pytest.mark.parametrize("log", ROWS)
def test_frames_are_ascii_with_line_feeds_and_neither_id_nor_retry(log: str) -> None:
    frames = stream(ROWS[log])
    assert frames.isascii()
    assert "\r" not in frames
    assert not re.search("^(id|retry|:)", frames, re.MULTILINE)


@pytest.mark.parametrize("log", ROWS)
def test_a_log_that_was_joined_gives_the_same_stream(log: str) -> None:
    rows = ROWS[log]
    assert stream(joined_rows(rows)) == stream(rows)


@pytest.mark.parametrize("log", ROWS)
@pytest.mark.parametrize("is_joined", [False, True], ids=["live", "joined"])
def test_a_reader_gets_exactly_the_rest_behind_any_number(log: str, is_joined: bool) -> None:
    rows = joined_rows(ROWS[log]) if is_joined else ROWS[log]
    frames = stream(ROWS[log]).split("\n\n")[:-1]
    for at, frame in enumerate(frames):
        number = int(frame.partition('"sequence_number": ')[2].partition(",")[0])
        assert stream(rows, cursor=number).split("\n\n")[:-1] == frames[at + 1 :]


@given(st.lists(st.sampled_from([*"ab \n\u00e9\U0001f426\ud83d\udc26", "T", "R", "|"]), max_size=40))
def test_any_cut_of_words_is_the_same_joined(signs: list[str]) -> None:
    """T and R switch between text and reasoning, | begins a delta."""
    events: list[AgentEvent] = []
    kinds: dict[str, type[TextDelta | ReasoningDelta]] = {"T": TextDelta, "R": ReasoningDelta}
    kind, text = kinds["T"], ""
    for sign in [*signs, "|"]:
        if sign in "TR|":
            events += [kind(text)] if text else []
            text = ""
            kind = kinds.get(sign, kind)
        else:
            text += sign
    rows = rows_of(STARTED, RoundStarted(1), *events, USAGE, finished())
    assert stream(joined_rows(rows)) == stream(rows)


@pytest.mark.parametrize("log", [log for log in ROWS if log != "reclassified"])
def test_the_whole_answer_is_what_the_stream_ends_with(log: str) -> None:
    answer = Answer()
    for row in ROWS[log]:
        answer.add(row)
    assert json.loads(json.dumps(whole(answer, turn_of(request())))) == blocks(stream(ROWS[log]))[-1][1]["response"]
