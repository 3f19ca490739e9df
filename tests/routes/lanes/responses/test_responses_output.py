"""Output of Responses: what becomes of each kind of event, and how a response ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    Notice,
    ReasoningDelta,
    RoundStarted,
    RunFailed,
    TextDelta,
    TextReclassified,
    ToolDelta,
    ToolFinished,
    ToolHanded,
    ToolRejected,
    ToolStarted,
)
from routes.lanes.answer import Answer
from routes.lanes.lane import LaneRequest
from routes.lanes.responses.encoder import ResponseEncoder
from routes.lanes.responses.response import whole
from tests.support.lanes.logs import STARTED, USAGE, blocks, finished, rows_of, turn_of
from tests.support.lanes.responses_streams import ECHO, ROWS, of, only, request, stream


def test_text_that_becomes_reasoning_is_not_sent_again() -> None:
    thought = (TextDelta("They greet. "), TextReclassified(12), ReasoningDelta("They greet. "))
    events = of(*thought, TextDelta("Hello."), USAGE, finished())
    assert [data["delta"] for data in only(events, "output_text.delta")] == ["They greet. ", "Hello."]
    assert not only(events, "reasoning_summary_text.delta")
    answer = Answer()
    for row in rows_of(STARTED, RoundStarted(1), *thought, TextDelta("Hello."), USAGE, finished()):
        answer.add(row)
    assert [item["type"] for item in whole(answer, turn_of(request()))["output"]] == ["reasoning", "message"]


def test_only_what_was_text_is_left_out_of_reasoning() -> None:
    events = of(TextDelta("ab"), TextReclassified(2), ReasoningDelta("abcd"), TextDelta("e"), USAGE, finished())
    assert [data["delta"] for data in only(events, "reasoning_summary_text.delta")] == ["cd"]


def test_a_round_begins_a_message() -> None:
    events = of(TextDelta("One."), RoundStarted(2), TextDelta("Two."), USAGE, finished())
    assert [item["content"][0]["text"] for item in events[-1][1]["response"]["output"]] == ["One.", "Two."]


def test_white_space_before_a_call_is_no_message() -> None:
    events = blocks(stream(ROWS["a call handed over"]))
    assert [item["type"] for item in events[-1][1]["response"]["output"]] == ["reasoning", "function_call"]
    assert events[-1][1]["response"]["output"][1] == {
        "id": "fc_00000000000000000001_1",
        "type": "function_call",
        "status": "completed",
        "call_id": "c1",
        "name": "get_weather",
        "arguments": '{"city": "K\u00f6ln"}',
    }


def test_white_space_between_a_thought_and_text_is_left_out() -> None:
    events = of(ReasoningDelta("Hm."), TextDelta("\n"), TextDelta("\n  Yes. "), TextDelta("No."), USAGE, finished())
    assert [data["delta"] for data in only(events, "output_text.delta")] == ["Yes. ", "No."]
    assert events[-1][1]["response"]["output"][1]["content"][0]["text"] == "Yes. No."


def test_white_space_before_text_stays() -> None:
    events = blocks(stream(ROWS["white space first"]))
    assert events[-1][1]["response"]["output"][0]["content"][0]["text"] == "  \n text "


def test_a_tool_of_a_namespace_comes_back_with_both_names() -> None:
    item = blocks(stream(ROWS["own calls beside the client's"]))[-1][1]["response"]["output"][-1]
    assert (item["type"], item["namespace"], item["name"]) == ("function_call", "files", "read")


def test_a_custom_tool_gets_its_text() -> None:
    item = blocks(stream(ROWS["two calls in one reply, and text"]))[-1][1]["response"]["output"][-1]
    assert (item["type"], item["input"]) == ("custom_tool_call", "*** Begin\n")
    assert item["id"].startswith("ctc_")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"input": "a", "more": 1}, "a"),
        ({"patch": "a"}, "a"),
        ({"input": {"a": 1}}, '{"input": {"a": 1}}'),
        ({}, "{}"),
    ],
)
def test_the_text_of_a_custom_tool_is_found(arguments: dict[str, Any], text: str) -> None:
    events = of(ToolHanded("c1", "apply_patch", arguments, "hermes"), USAGE, finished("client_tools"))
    assert events[-1][1]["response"]["output"][0]["input"] == text


def test_own_calls_have_their_output_or_error() -> None:
    output = blocks(stream(ROWS["own calls beside the client's"]))[-1][1]["response"]["output"]
    calls = {item["name"]: item for item in output if item["type"] == "mcp_call"}
    assert (calls["grep"]["status"], calls["grep"]["output"], calls["grep"]["error"]) == ("completed", "a", None)
    assert (calls["bash"]["status"], calls["bash"]["output"]) == ("failed", None)
    assert calls["bash"]["error"]["content"][0]["text"] == "broken"
    assert json.loads(calls["bash"]["arguments"]) == {"command": "ls"}


def test_a_rejected_call_of_ours_is_shown_as_failed() -> None:
    output = blocks(stream(ROWS["rejected"]))[-1][1]["response"]["output"]
    assert [(item["name"], item["status"]) for item in output] == [("bash", "failed")]


ENDINGS = {
    "answered": ("completed", "completed", None),
    "client_tools": ("completed", "completed", None),
    "cancelled": ("incomplete", "cancelled", None),
    "round_limit": ("incomplete", "incomplete", "max_output_tokens"),
    "deadline": ("incomplete", "incomplete", "max_output_tokens"),
    "budget": ("incomplete", "incomplete", "max_output_tokens"),
    "loop_broken": ("incomplete", "incomplete", "max_output_tokens"),
    "no_answer": ("incomplete", "incomplete", "max_output_tokens"),
    "server_stopped": ("failed", "failed", None),
    "paused": ("failed", "failed", None),
    "revoked": ("failed", "failed", None),
}


@pytest.mark.parametrize("reason", ENDINGS)
def test_a_reason_has_its_event_and_status(reason: str) -> None:
    name, data = of(TextDelta("Hello."), USAGE, finished(reason))[-1]
    response = data["response"]
    incomplete = (response["incomplete_details"] or {}).get("reason")
    assert (name.removeprefix("response."), response["status"], incomplete) == ENDINGS[reason]
    assert (response["error"] is not None) is (response["status"] == "failed")


FAILURES = {
    "model_cut": (True, "server_error"),
    "model_busy": (True, "rate_limit_exceeded"),
    "model_context": (False, "context_length_exceeded"),
    "context_overflow": (False, "context_length_exceeded"),
    "interrupted": (True, "server_error"),
    "model_rejected": (False, "invalid_prompt"),
    "model_auth": (False, "invalid_prompt"),
}


@pytest.mark.parametrize("code", FAILURES)
def test_a_failure_has_the_code_by_which_codex_decides(code: str) -> None:
    retryable, expected = FAILURES[code]
    name, data = of(TextDelta("Hel"), RunFailed(code, "It broke off.", retryable))[-1]
    response = data["response"]
    assert (name, response["status"], response["error"]["code"]) == ("response.failed", "failed", expected)
    assert response["error"]["message"].endswith("It broke off.")


def test_an_answer_that_was_continued_is_one_message() -> None:
    rounds = (TextDelta("Half an "), Notice("continued", "It broke off."), RoundStarted(2), TextDelta("answer."))
    name, data = of(*rounds, USAGE, finished())[-1]
    assert name == "response.completed"
    assert [item["content"][0]["text"] for item in data["response"]["output"]] == ["Half an answer."]


def test_a_refusal_is_incomplete() -> None:
    name, data = of(TextDelta("No."), Notice("refusal", "It declined."), USAGE, finished())[-1]
    assert (name, data["response"]["incomplete_details"]) == ("response.incomplete", {"reason": "content_filter"})


def test_an_answer_that_was_cut_is_incomplete() -> None:
    cut = Notice("cut", "The answer is cut.")
    name, data = of(TextDelta("Hel"), cut, USAGE, finished())[-1]
    assert (name, data["response"]["incomplete_details"]) == ("response.incomplete", {"reason": "max_output_tokens"})
    assert of(ToolHanded("c1", "get_weather", {}, "native"), cut, finished("client_tools"))[-1][0].endswith("completed")


def test_reasoning_comes_back_sealed_if_it_is_wanted() -> None:
    asked = LaneRequest(model="tiny", messages=[], echo={"seal": True})
    events = of(ReasoningDelta("Hm. \ud800"), TextDelta("Yes."), USAGE, finished(), asked=asked)
    assert only(events, "output_item.done")[0]["item"]["encrypted_content"].startswith("dragoman1.")
    assert "encrypted_content" not in blocks(stream(ROWS["reasoning"]))[-1][1]["response"]["output"][0]


APPROVAL = (
    TextDelta("I write."),
    ApprovalRequired("c1", "write_file", {"path": "a"}, "It writes.", None),
    ApprovalResolved("c1", "approved", "local", "once"),
    ToolStarted("c1", "write_file", {"path": "a"}, "native"),
    ToolFinished("c1", "write_file", True, "Written.", 0.1),
    RoundStarted(2),
    TextDelta("Done."),
    USAGE,
    finished(),
)


def test_an_approval_ends_the_response_of_a_client_that_shows_them() -> None:
    rows = rows_of(STARTED, RoundStarted(1), *APPROVAL)
    encoder = ResponseEncoder(turn_of(request(asks=True)))
    events = blocks("".join(encoder.frames(row) for row in rows))
    assert encoder.over
    name, data = events[-1]
    assert name == "response.completed"
    assert data["response"]["output"][-1] == {
        "id": "mcpr_00000000000000000001_4_c1",
        "type": "mcp_approval_request",
        "arguments": '{"path": "a"}',
        "name": "write_file",
        "server_label": "dragoman",
    }


def test_the_response_behind_an_approval_has_an_id_of_its_own_and_the_rest() -> None:
    asked = request(asks=True)
    asked.echo = ECHO | {"approvals": {"c1": "mcpr_00000000000000000001_4_c1"}}
    encoder = ResponseEncoder(replace(turn_of(asked), after=4))
    rows = rows_of(STARTED, RoundStarted(1), *APPROVAL)
    response = blocks("".join(map(encoder.frames, rows)))[-1][1]["response"]
    assert response["id"] == "resp_00000000000000000001s4"
    assert [item["type"] for item in response["output"]] == ["mcp_call", "message"]
    assert response["output"][0]["approval_request_id"] == "mcpr_00000000000000000001_4_c1"
    assert response["output"][0]["id"] == "mcp_00000000000000000001s4_0"


def test_an_approval_is_not_shown_to_a_client_that_knows_none() -> None:
    events = of(*APPROVAL)
    assert [item["type"] for item in events[-1][1]["response"]["output"]] == ["message", "mcp_call", "message"]


def test_nothing_is_shown_of_a_call_that_was_only_thought() -> None:
    """What a model drafts in its thoughts, or makes twice, is no call."""
    thought = ToolRejected("This call stood in the model's thoughts: it was not run.", "c1", "bash")
    events = of(ToolDelta("c1", "{}", "bash"), thought, TextDelta("Hi."), USAGE, finished())
    assert [item["type"] for item in events[-1][1]["response"]["output"]] == ["message"]
