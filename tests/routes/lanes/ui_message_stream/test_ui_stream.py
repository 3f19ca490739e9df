"""UI message streams obey what the AI SDK's parser and `useChat` require, and say what the log says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from app.core.events import (
    AgentEvent,
    ApprovalRequired,
    ApprovalResolved,
    ContextSummarised,
    MessageAdded,
    Notice,
    ReasoningDelta,
    RoundStarted,
    RunFailed,
    TextDelta,
    TextReclassified,
    ToolFinished,
    ToolHanded,
    ToolProgress,
    ToolRejected,
    ToolStarted,
    Usage,
)
from routes.lanes.catalogue import LANES
from routes.lanes.lane import LaneRequest, Turn
from routes.lanes.ui_message_stream.stream import UIStreamEncoder
from routes.protocol.errors import Refused
from tests.support.lanes.logs import (
    LOGS,
    RUN,
    STARTED,
    USAGE,
    finished,
    golden_rows,
    handed,
    rows_of,
    texts,
)
from tests.support.lanes.ui_chunks import check_rules, chunks_of, turn_of, ui_streams


def encoded(*events: AgentEvent, end: str = "answered") -> list[dict[str, Any]]:
    """The chunks of the first step."""
    (chunks,) = ui_streams(rows_of(STARTED, RoundStarted(1), *events, finished(end)))
    assert [one["type"] for one in chunks[:2]] == ["start", "start-step"]
    assert [one["type"] for one in chunks[-2:]] == ["finish-step", "finish"]
    return chunks[2:-2]


@pytest.mark.parametrize("name", LOGS)
def test_golden_logs_keep_the_rules_and_every_text(name: str) -> None:
    rows = golden_rows(name)
    chunks = [chunk for stream in ui_streams(rows) for chunk in stream]
    text = "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")
    assert "".join(text.split()) == "".join(texts(rows, "text.delta").split())


@pytest.mark.parametrize("name", LOGS)
def test_every_call_of_the_server_is_dynamic_executed_there_and_ends(name: str) -> None:
    """The client runs a call that the provider has not executed, and waits for one without an end."""
    rows = golden_rows(name)
    theirs = handed(rows)
    chunks = [one for stream in ui_streams(rows) for one in stream if one.get("toolCallId") not in theirs]
    assert all(one["dynamic"] and one["providerExecuted"] for one in chunks if "toolName" in one)
    ends = ("tool-output-available", "tool-output-error", "tool-output-denied", "tool-input-error")
    ended = [one["toolCallId"] for one in chunks if one["type"] in ends and not one.get("preliminary")]
    assert sorted(ended) == sorted({one["toolCallId"] for one in chunks if "toolName" in one})


def test_blocks_are_ascii_with_data_alone_and_end_with_done() -> None:
    rows = rows_of(STARTED, RoundStarted(1), TextDelta("\u2028\ud83d\n\nö"), finished())
    frames = "".join(map(UIStreamEncoder(turn_of()).frames, rows))
    assert frames.isascii()
    assert "\r" not in frames
    assert all(block.startswith("data: ") and "\n" not in block for block in frames.split("\n\n")[:-1])
    assert frames.endswith("}\n\ndata: [DONE]\n\n")


def test_texts_and_thoughts_are_opened_once_and_empty_deltas_left_out() -> None:
    assert encoded(ReasoningDelta(""), ReasoningDelta("Hm"), TextDelta(""), TextDelta("A"), TextDelta("B")) == [
        {"type": "reasoning-start", "id": "1"},
        {"type": "reasoning-delta", "id": "1", "delta": "Hm"},
        {"type": "reasoning-end", "id": "1"},
        {"type": "text-start", "id": "2"},
        {"type": "text-delta", "id": "2", "delta": "A"},
        {"type": "text-delta", "id": "2", "delta": "B"},
        {"type": "text-end", "id": "2"},
    ]


def test_parts_do_not_begin_with_line_ends_nor_consist_of_white_space() -> None:
    chunks = encoded(
        ReasoningDelta("\n"), TextDelta("\n"), TextDelta("\n  "), TextDelta("code\n"), ReasoningDelta(" \n"),
        TextDelta("more"), ToolFinished("c1", "bash", True, "ok", 0.1), TextDelta("\n"),
    )  # fmt: skip
    assert [one["delta"] for one in chunks if "delta" in one] == ["  code\n", "more"]
    assert [one["type"] for one in chunks if one["type"].endswith("-start")] == ["text-start", "tool-input-start"]


def test_each_round_is_a_step() -> None:
    chunks = encoded(TextDelta("a"), RoundStarted(2), TextDelta("b"))
    assert [one["type"] for one in chunks] == [
        *("text-start", "text-delta", "text-end", "finish-step"),
        *("start-step", "text-start", "text-delta", "text-end"),
    ]


def test_an_answer_that_goes_on_in_another_round_stays_one_text() -> None:
    chunks = encoded(
        TextDelta("Half "), Notice("cut", ""), Notice("continued", ""), RoundStarted(2), TextDelta("an answer.")
    )
    assert [one["type"] for one in chunks] == [
        *("text-start", "text-delta", "data-notice", "data-notice", "text-delta", "text-end"),
    ]


def test_a_call_of_the_server_has_its_tail_and_its_output() -> None:
    own = {"dynamic": True, "providerExecuted": True}
    assert encoded(
        ToolStarted("c1", "bash", {"command": "ls"}, "native"),
        ToolProgress("c1", 0.5, ["a", "b"], 2, 4),
        ToolFinished("c1", "bash", True, "a\nb\nc", 1.0),
    ) == [
        {"type": "tool-input-start", "toolCallId": "c1", "toolName": "bash", **own},
        {"type": "tool-input-available", "toolCallId": "c1", "toolName": "bash", "input": {"command": "ls"}, **own},
        {"type": "tool-output-available", "toolCallId": "c1", "output": "a\nb", "preliminary": True, **own},
        {"type": "tool-output-available", "toolCallId": "c1", "output": "a\nb\nc", **own},
    ]


def test_a_call_that_failed_has_its_error() -> None:
    chunks = encoded(
        ToolStarted("c1", "bash", {}, "native"), ToolFinished("c1", "bash", False, "[exit code 3]", 1.0, 3)
    )
    assert (chunks[-1]["type"], chunks[-1]["errorText"]) == ("tool-output-error", "[exit code 3]")


def test_a_rejected_call_has_the_reason_as_its_error() -> None:
    (chunk,) = encoded(ToolRejected("It may not run.", "c1", "bash"))
    assert (chunk["type"], chunk["toolName"], chunk["errorText"]) == ("tool-input-error", "bash", "It may not run.")


def test_a_clients_call_is_a_part_of_its_own_type_without_output() -> None:
    rows = rows_of(
        STARTED, RoundStarted(1), ToolHanded("c1", "weather", {"city": "Bonn"}, "hermes"), finished("client_tools")
    )
    (chunks,) = ui_streams(rows)
    assert chunks[2:4] == [
        {"type": "tool-input-start", "toolCallId": "c1", "toolName": "weather"},
        {"type": "tool-input-available", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Bonn"}},
    ]
    assert chunks[-1]["finishReason"] == "tool-calls"


NOTICED = {
    "notice": (Notice("retry", "Once more."), {"code": "retry", "message": "Once more."}),
    "context": (
        ContextSummarised(4, 100, 10),
        {"code": "context.summarised", "messages": 4, "before": 100, "after": 10},
    ),
    "unreadable call": (ToolRejected("No JSON."), {"code": "tool.rejected", "reason": "No JSON."}),
}


@pytest.mark.parametrize("event, data", NOTICED.values(), ids=NOTICED)
def test_notices_are_data_that_no_message_keeps(event: AgentEvent, data: dict[str, Any]) -> None:
    assert encoded(event) == [{"type": "data-notice", "data": data, "transient": True}]


def test_a_message_to_the_running_run_is_data() -> None:
    assert encoded(MessageAdded("Stop.")) == [
        {"type": "data-message", "data": {"role": "user", "text": "Stop."}, "transient": True}
    ]


def test_text_that_turns_out_to_be_a_thought_is_not_repeated() -> None:
    chunks = encoded(TextDelta("Hm. "), TextReclassified(4), ReasoningDelta("Hm. "), TextDelta("Yes."))
    assert [one["delta"] for one in chunks if "delta" in one] == ["Hm. ", "Yes."]


ASKED = (
    STARTED,
    RoundStarted(1),
    TextDelta("I write."),
    ApprovalRequired("c1", "write_file", {"path": "a"}, "It changes a.", None),
)


def test_an_approval_ends_the_stream_with_a_request() -> None:
    encoder = UIStreamEncoder(turn_of())
    chunks = chunks_of("".join(map(encoder.frames, rows_of(*ASKED, TextDelta("later")))))
    assert encoder.over
    assert chunks[-3:] == [
        {"type": "tool-approval-request", "approvalId": "c1", "toolCallId": "c1", "reason": "It changes a."},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "tool-calls"},
    ]


@pytest.mark.parametrize(
    "decision, events, types",
    [
        (
            "approved",
            (
                ToolStarted("c1", "write_file", {"path": "a"}, "native"),
                ToolFinished("c1", "write_file", True, "ok", 0.1),
            ),
            ["tool-output-available"],
        ),
        (
            "changed",
            (
                ToolStarted("c1", "write_file", {"path": "b"}, "native"),
                ToolFinished("c1", "write_file", True, "ok", 0.1),
            ),
            ["tool-input-available", "tool-output-available"],
        ),
        ("denied", (ToolRejected("local denied this call.", "c1", "write_file"),), ["tool-output-denied"]),
        ("expired", (ToolRejected("It has expired.", "c1", "write_file"),), ["tool-output-error"]),
    ],
)
def test_the_next_stream_goes_on_in_the_same_message(
    decision: str, events: Sequence[AgentEvent], types: list[str]
) -> None:
    resolved = ApprovalResolved("c1", "approved" if decision == "changed" else decision, "local")
    rows = rows_of(*ASKED, resolved, *events, RoundStarted(2), TextDelta("Done."), finished())
    encoder = UIStreamEncoder(turn_of(after=4, message="m7"))
    chunks = chunks_of("".join(map(encoder.frames, rows)))
    assert chunks[0] == {"type": "start", "messageId": "m7"}
    assert [one["type"] for one in chunks[1:-1]] == [
        *types,
        *("start-step", "text-start", "text-delta", "text-end", "finish-step"),
    ]
    ui_streams(rows)


def test_a_call_that_is_asked_about_again_is_the_same_part() -> None:
    again = ApprovalRequired("c1~2", "write_file", {"path": "a"}, "It has changed.", None)
    rejected = ToolRejected("local denied this call.", "c1", "write_file")
    denied = ApprovalResolved("c1~2", "denied", "local")
    streams = ui_streams(
        rows_of(*ASKED, ApprovalResolved("c1", "approved", "local"), again, denied, rejected, finished())
    )
    request = {"type": "tool-approval-request", "approvalId": "c1~2", "toolCallId": "c1", "reason": "It has changed."}
    assert [one for one in streams[1] if one["type"] != "finish"] == [{"type": "start", "messageId": RUN}, request]
    assert streams[2][1] == {"type": "tool-output-denied", "toolCallId": "c1"}


def test_a_stream_that_shows_no_questions_goes_on_behind_them() -> None:
    events = ToolStarted("c1", "write_file", {"path": "a"}, "native"), ToolFinished("c1", "write_file", True, "ok", 0.1)
    rows = rows_of(*ASKED, ApprovalResolved("c1", "approved", "local"), *events, finished())
    turn = Turn(RUN, STARTED.session, 0, "dragoman/agent", LaneRequest(model=None, messages=[]))
    chunks = chunks_of("".join(map(UIStreamEncoder(turn).frames, rows)))
    check_rules(chunks, set())
    assert [one["type"] for one in chunks if "toolCallId" in one] == [
        *("tool-input-start", "tool-input-available", "tool-output-available"),
    ]


def test_a_question_of_a_running_call_is_a_step_of_its_own() -> None:
    """The SDK sends the next request once all calls of the last step are decided: the running one is none of them."""
    rows = rows_of(
        STARTED, RoundStarted(1), ToolStarted("c1", "mcp", {}, "native"), ToolProgress("c1", 0.5, ["a"], 1, 2),
        ApprovalRequired("q1", "mcp_question", {"message": "Who?"}, "A server asks.", None),
        ApprovalResolved("q1", "approved", "local"), ToolFinished("c1", "mcp", True, "ok", 1.0), finished(),
    )  # fmt: skip
    first, second = ui_streams(rows)
    steps = [at for at, one in enumerate(first) if one["type"] == "start-step"]
    assert [one["toolCallId"] for one in first[steps[-1] :] if "toolCallId" in one] == ["q1", "q1", "q1"]
    assert [one["toolCallId"] for one in second if one["type"] == "tool-output-available"] == ["q1", "c1"]


ENDS = {
    "answered": "stop",
    "loop_broken": "stop",
    "client_tools": "tool-calls",
    "round_limit": "length",
    "call_limit": "length",
    "token_limit": "length",
    "deadline": "length",
    "budget": "length",
    "no_answer": "other",
    "cancelled": "other",
}


@pytest.mark.parametrize("reason", ENDS)
def test_the_finish_reason_is_one_of_the_sdks(reason: str) -> None:
    (chunks,) = ui_streams(rows_of(STARTED, RoundStarted(1), finished(reason)))
    assert chunks[-1] == {"type": "finish", "finishReason": ENDS[reason]}
    assert ({"type": "abort"} in chunks) is (reason == "cancelled")


@pytest.mark.parametrize("code, reason", [("cut", "length"), ("refusal", "content-filter"), ("retry", "stop")])
def test_a_notice_of_the_last_round_is_the_finish_reason(code: str, reason: str) -> None:
    (chunks,) = ui_streams(rows_of(STARTED, RoundStarted(1), Notice(code, ""), finished()))
    assert chunks[-1]["finishReason"] == reason
    (chunks,) = ui_streams(rows_of(STARTED, RoundStarted(1), Notice(code, ""), RoundStarted(2), finished()))
    assert chunks[-1]["finishReason"] == "stop"


def test_the_end_has_the_tokens_of_all_rounds() -> None:
    second = Usage(150, 8, 250, 20, measured=True, cached_tokens=100)
    (chunks,) = ui_streams(rows_of(STARTED, RoundStarted(1), USAGE, RoundStarted(2), second, finished()))
    usage = {"inputTokens": 250, "outputTokens": 20, "totalTokens": 270, "cachedInputTokens": 164}
    assert chunks[-1]["messageMetadata"] == {"usage": usage}


@pytest.mark.parametrize(
    "before",
    [(), (STARTED,), (STARTED, RoundStarted(1), TextDelta("a"), ToolStarted("c1", "bash", {}, "native"))],
    ids=["at once", "before the model", "in a call"],
)
def test_a_failure_is_an_error_behind_what_is_open(before: Sequence[AgentEvent]) -> None:
    """What follows an error is not read, so what was open would stay so."""
    (chunks,) = ui_streams(rows_of(*before, RunFailed("model_down", "No server answers.", True)))
    at = chunks.index({"type": "error", "errorText": "No server answers."})
    assert {one["type"] for one in chunks[at + 1 :]} <= {"finish-step", "finish"}


def test_the_lane_has_the_header_that_names_the_format() -> None:
    lane = next(one for one in LANES if one.name == "ui_message_stream")
    assert lane.headers == {"x-vercel-ai-ui-message-stream": "v1"}


def test_an_error_before_the_stream_is_its_message_alone() -> None:
    """`useChat` makes the body of an answer that is no success its error's message."""
    lane = next(one for one in LANES if one.name == "ui_message_stream")
    assert lane.error(Refused(401, "unauthorized", "Send a token.")) == (401, "Send a token.")
    assert json.dumps(lane.error(Refused(422, "invalid_request", "messages is empty."))[0]) == "400"
