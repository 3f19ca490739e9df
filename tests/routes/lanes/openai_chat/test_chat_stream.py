"""Chat Completions, streamed and whole: the rules of clients, each a test or a row, for hand-made and golden logs."""

from __future__ import annotations

import json
from functools import reduce

import pytest

from app.core.events import (
    TERMINAL,
    AgentEvent,
    ApprovalRequired,
    Notice,
    RunFailed,
    RunFinished,
    TextDelta,
    TextReclassified,
    ToolRejected,
    Usage,
)
from app.log.log_compaction import joined_rows
from app.storage.runs import EventRow
from routes.lanes.errors import openai_error
from routes.lanes.lane import LaneRequest, Turn
from routes.lanes.openai_chat.stream import ChatEncoder
from routes.protocol.errors import Refused
from tests.support.lanes.chat_chunks import (
    CALL,
    CLIENT_TOOLS,
    CREATED,
    FINISHED,
    MODEL,
    NEXT,
    OTHER,
    OWN,
    ROUND,
    blocks,
    by_character,
    chunks,
    deltas,
    message_of,
    stream,
    turn,
    whole,
)
from tests.support.lanes.logs import LOGS, RUN, STARTED, finished, golden_rows, rows_of

FAILED = RunFailed("model_down", "The model is down.", retryable=True)
ANSWER: list[AgentEvent] = [STARTED, ROUND, TextDelta("Hel"), TextDelta("lo."), Usage(9, 3, 9, 3, True), FINISHED]
CALLS: list[AgentEvent] = [STARTED, ROUND, TextDelta("I look."), CALL, OTHER, Usage(9, 3, 9, 3, True), CLIENT_TOOLS]
ALL = {name: golden_rows(name) for name in LOGS} | {"an answer": rows_of(*ANSWER), "calls": rows_of(*CALLS)}
ENDED = {name: rows for name, rows in ALL.items() if rows[-1].type == RunFinished.type}


@pytest.mark.parametrize("rows", ENDED.values(), ids=ENDED)
class TestEachChunk:
    """Rules that hold for each chunk of any log."""

    def test_object_id_created_model_and_choice_index_always(self, rows: list[EventRow]) -> None:
        for chunk in chunks(rows, usage=True, events=True):
            assert (chunk["object"], chunk["id"], chunk["created"], chunk["model"]) == (
                *("chat.completion.chunk", f"chatcmpl-{RUN.removeprefix('run_')}", CREATED),
                MODEL,
            )
            assert [choice["index"] for choice in chunk["choices"]] in ([0], [])

    def test_choices_and_delta_are_never_null(self, rows: list[EventRow]) -> None:
        for chunk in chunks(rows, usage=True, events=True):
            assert isinstance(chunk["choices"], list)
            assert all(isinstance(choice["delta"], dict) for choice in chunk["choices"])

    def test_role_once_in_the_first_chunk(self, rows: list[EventRow]) -> None:
        first, *others = deltas(chunks(rows))
        assert first == {"role": "assistant", "content": ""}
        assert not any("role" in delta for delta in others)

    def test_finish_reason_once_in_the_last_choice(self, rows: list[EventRow]) -> None:
        *before, last = [choice for chunk in chunks(rows, usage=True) for choice in chunk["choices"]]
        assert all(choice["finish_reason"] is None for choice in before)
        assert last["finish_reason"] in ("stop", "length", "tool_calls", "content_filter")
        assert last["delta"] == {}

    def test_the_last_chunk_has_the_usage_and_nothing_follows_it(self, rows: list[EventRow]) -> None:
        *before, last = chunks(rows, usage=True)
        assert last["choices"] == []
        assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + last["usage"]["completion_tokens"]
        assert not any("usage" in chunk for chunk in before)

    def test_no_usage_unasked(self, rows: list[EventRow]) -> None:
        found = chunks(rows)
        assert not any("usage" in chunk for chunk in found)
        assert all(chunk["choices"] for chunk in found)

    def test_the_answer_is_the_same_however_the_log_is_cut(self, rows: list[EventRow]) -> None:
        expected = chunks(rows, usage=True)
        for same in (joined_rows(rows), by_character(rows), joined_rows(by_character(rows))):
            found = chunks(same, usage=True)
            assert message_of(found) == message_of(expected)
            assert found[-2:] == expected[-2:]
            assert whole(same) == whole(rows)

    def test_the_whole_answer_is_that_of_the_stream(self, rows: list[EventRow]) -> None:
        streamed, answer = chunks(rows, usage=True), whole(rows)
        message, choice = message_of(streamed), answer["choices"][0]
        assert choice["finish_reason"] == streamed[-2]["choices"][0]["finish_reason"]
        assert answer["usage"] == streamed[-1]["usage"]
        assert (choice["index"], choice["message"]["role"], answer["object"]) == (0, "assistant", "chat.completion")
        if any(row.type == TextReclassified.type for row in rows):
            return  # what was sent as text cannot be taken back
        assert (choice["message"]["content"] or "") == message["content"]
        assert choice["message"].get("reasoning_content", "") == message["reasoning_content"]


@pytest.mark.parametrize("rows", ALL.values(), ids=ALL)
def test_each_stream_ends_exactly_once(rows: list[EventRow]) -> None:
    encoder = ChatEncoder(turn())
    for row in rows:
        assert not encoder.over
        encoder.frames(row)
    assert encoder.over is (rows[-1].type in TERMINAL)


def test_the_chunks_of_an_answer() -> None:
    assert deltas(chunks(rows_of(*ANSWER))) == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo."},
        {},
    ]


class TestCalls:
    """The client's calls."""

    def test_index_without_gaps_and_type_and_id_and_name_only_in_the_first_fragment(self) -> None:
        found = [delta["tool_calls"] for delta in deltas(chunks(rows_of(*CALLS))) if "tool_calls" in delta]
        arguments = '{"city": "Bob\'s \\"Bay\\"\u2028\\\\", "days": 3}'
        assert found == [
            [{"index": 0, "id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}],
            [{"index": 0, "function": {"arguments": arguments}}],
            [{"index": 1, "id": "c2", "type": "function", "function": {"name": "look", "arguments": ""}}],
            [{"index": 1, "function": {"arguments": "{}"}}],
        ]

    def test_arguments_are_the_text_of_an_object(self) -> None:
        calls = message_of(chunks(rows_of(*CALLS)))["calls"]
        assert [json.loads(call["arguments"]) for call in calls.values()] == [CALL.arguments, {}]

    def test_finish_reason_is_tool_calls_with_calls_alone(self) -> None:
        assert chunks(rows_of(*CALLS))[-1]["choices"][0]["finish_reason"] == "tool_calls"
        none = rows_of(STARTED, ROUND, TextDelta("x"), CLIENT_TOOLS)
        assert chunks(none)[-1]["choices"][0]["finish_reason"] == "stop"

    def test_calls_count_however_the_run_ends(self) -> None:
        late = rows_of(STARTED, ROUND, CALL, finished("deadline"))
        assert chunks(late)[-1]["choices"][0]["finish_reason"] == "tool_calls"

    def test_content_is_null_beside_calls(self) -> None:
        message = whole(rows_of(STARTED, ROUND, TextDelta("\n\n"), CALL, CLIENT_TOOLS))["choices"][0]["message"]
        function = {"name": "get_weather", "arguments": json.dumps(CALL.arguments, ensure_ascii=False)}
        assert message == {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        }

    def test_own_calls_are_never_sent(self) -> None:
        found = stream(rows_of(STARTED, ROUND, TextDelta("I look."), *OWN, NEXT, TextDelta("Done."), FINISHED))
        assert "bash" not in found and "tool_calls" not in found
        assert message_of([json.loads(one) for one in blocks(found)[:-1]])["content"] == "I look.\n\nDone."

    def test_the_older_form_has_one_call(self) -> None:
        found = chunks(rows_of(*CALLS), legacy=True)
        calls = [delta["function_call"] for delta in deltas(found) if "function_call" in delta]
        assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [("get_weather", CALL.arguments)]
        assert found[-1]["choices"][0]["finish_reason"] == "function_call"
        choice = whole(rows_of(*CALLS), legacy=True)["choices"][0]
        assert choice["message"]["function_call"] == calls[0]
        assert "tool_calls" not in choice["message"]


REASONS = {
    "answered": "stop",
    "client_tools": "stop",
    "loop_broken": "stop",
    "round_limit": "length",
    "call_limit": "length",
    "token_limit": "length",
    "budget": "length",
    "no_answer": "length",
    "deadline": "length",
    "cancelled": "length",
    "a word of a later version": "length",
}


@pytest.mark.parametrize("reason, expected", REASONS.items(), ids=REASONS)
def test_finish_reason_is_never_a_word_of_ours(reason: str, expected: str) -> None:
    rows = rows_of(STARTED, ROUND, TextDelta("x"), finished(reason))
    assert chunks(rows)[-1]["choices"][0]["finish_reason"] == expected
    assert whole(rows)["choices"][0]["finish_reason"] == expected


@pytest.mark.parametrize(
    "events, expected",
    [
        ([Notice("cut", ""), FINISHED], "length"),
        ([Notice("cut", ""), NEXT, TextDelta("b"), FINISHED], "stop"),
        ([Notice("refusal", ""), FINISHED], "content_filter"),
        ([Notice("retry", ""), FINISHED], "stop"),
    ],
)
def test_finish_reason_says_how_the_last_round_ended(events: list[AgentEvent], expected: str) -> None:
    rows = rows_of(STARTED, ROUND, TextDelta("x"), *events)
    assert chunks(rows)[-1]["choices"][0]["finish_reason"] == expected
    assert whole(rows)["choices"][0]["finish_reason"] == expected


def test_usage_is_the_sum_of_all_rounds() -> None:
    rounds: list[AgentEvent] = [
        Usage(100, 20, 100, 20, True, cached_tokens=64),
        NEXT,
        Usage(150, 2, 250, 22, False, cached_tokens=100),
    ]
    rows = rows_of(STARTED, ROUND, *rounds, FINISHED)
    expected = {
        "prompt_tokens": 250,
        "completion_tokens": 22,
        "total_tokens": 272,
        "prompt_tokens_details": {"cached_tokens": 164},
    }
    assert chunks(rows, usage=True)[-1]["usage"] == expected
    assert whole(rows)["usage"] == expected


def test_a_failure_in_the_stream_is_a_lone_error_object() -> None:
    frames = stream(rows_of(STARTED, ROUND, TextDelta("Hel"), FAILED), usage=True)
    *_, text, failure = blocks(frames)
    assert json.loads(text)["choices"][0]["delta"] == {"content": "Hel"}
    error = {"message": "The model is down.", "type": "server_error", "param": None, "code": "server_error"}
    assert json.loads(failure) == {"error": error}


def test_an_error_body_has_a_string_as_its_code() -> None:
    _, body = openai_error(Refused(400, "invalid_request", "x", param="n"))
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert isinstance(body["error"]["code"], str)


HIDDEN: list[AgentEvent] = [
    *OWN,
    ToolRejected("no such tool", "c9", "x"),
    Notice("retry", "again"),
    ApprovalRequired("c0", "bash", {}, "it writes", None),
]


def test_what_clients_do_not_know_is_not_sent() -> None:
    assert chunks(rows_of(STARTED, ROUND, *HIDDEN, FINISHED)) == chunks(rows_of(STARTED, ROUND, FINISHED))


def test_own_work_is_shown_beside_empty_deltas_if_asked_for() -> None:
    found = chunks(rows_of(STARTED, ROUND, *HIDDEN, TextDelta("x"), FINISHED), events=True)
    shown = [chunk for chunk in found if "dragoman" in chunk]
    assert all(chunk["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}] for chunk in shown)
    assert [chunk["dragoman"]["type"] for chunk in shown] == [
        *("run.started", "tool.started", "tool.finished", "tool.rejected", "notice", "approval.required")
    ]
    assert message_of(found)["content"] == "x"


def test_a_whole_answer_shows_own_calls_if_asked_for() -> None:
    rows = rows_of(STARTED, ROUND, *OWN, NEXT, TextDelta("x"), FINISHED)
    own = {"call": "c0", "name": "bash", "arguments": {"command": "ls"}, "ok": True, "result": "a"}
    assert whole(rows, events=True)["dragoman"] == {"run": RUN, "session": STARTED.session, "calls": [own]}
    assert "dragoman" not in whole(rows)


def test_halves_of_a_character_and_line_separators_pass() -> None:
    rows = rows_of(STARTED, ROUND, TextDelta("a\u2028\ud83d"), TextDelta("\N{PILE OF POO}"), FINISHED)
    assert message_of(chunks(rows))["content"] == "a\u2028\ud83d\N{PILE OF POO}"


def test_a_model_may_have_any_name() -> None:
    odd = Turn("run_1", "ses_1", 1, 'a"\n{b}', LaneRequest(model="x", messages=[]))
    encoder = ChatEncoder(odd)
    frames = reduce(lambda text, row: text + encoder.frames(row), rows_of(*ANSWER), "")
    assert {json.loads(one)["model"] for one in blocks(frames)[:-1]} == {odd.model}
