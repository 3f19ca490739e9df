"""AG-UI streams obey the rules that @ag-ui/client checks, and say what the log says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from app.core.events import (
    AgentEvent,
    ApprovalRequired,
    ApprovalResolved,
    ContextTrimmed,
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
from app.storage.runs import EventRow
from routes.lanes.ag_ui.stream import AGUIEncoder
from routes.lanes.catalogue import LANES
from routes.lanes.lane import LaneRequest, Turn
from routes.protocol.errors import Refused
from tests.support.lanes.ag_ui_streams import ag_ui_streams, check_ag_ui, turn_of
from tests.support.lanes.logs import (
    LOGS,
    RUN,
    STARTED,
    USAGE,
    data_of,
    finished,
    golden_rows,
    handed,
    rows_of,
    texts,
)

FORM = {"message": "Who?", "schema": {"type": "object", "properties": {"name": {"type": "string"}}}}


def encoded(*events: AgentEvent) -> list[dict[str, Any]]:
    """The events of one stream, without the first and the last; they are checked."""
    encoder = AGUIEncoder(turn_of())
    found = data_of("".join(map(encoder.frames, rows_of(STARTED, *events, finished()))))
    check_ag_ui(found)
    return found[1:-1]


@pytest.mark.parametrize("name", LOGS)
def test_golden_logs_keep_the_rules_and_every_text(name: str) -> None:
    rows = golden_rows(name)
    streams = ag_ui_streams(rows)
    for events in streams:
        check_ag_ui(events)
    events = [event for stream in streams for event in stream]
    role = {event["messageId"]: event["role"] for event in events if event["type"] == "TEXT_MESSAGE_START"}
    text = [event for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
    answer = "".join(one["delta"] for one in text if role[one["messageId"]] == "assistant")
    assert "".join(answer.split()) == "".join(texts(rows, "text.delta").split())
    ids = [one["messageId"] for one in events if one["type"] in ("TEXT_MESSAGE_START", "REASONING_START")]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", LOGS)
def test_every_call_of_the_server_has_one_start_and_one_result(name: str) -> None:
    """A call without a result is the client's to run; one that is started again gets its arguments twice."""
    rows = golden_rows(name)
    events = [event for stream in ag_ui_streams(rows) for event in stream]
    started = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
    ended = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert len(started) == len(set(started))
    assert sorted(started) == sorted([*ended, *handed(rows)])


def test_blocks_are_ascii_with_data_alone_and_end_with_an_empty_line() -> None:
    rows = rows_of(STARTED, RoundStarted(1), TextDelta("\u2028\ud83d\n\nö"), finished())
    frames = "".join(map(AGUIEncoder(turn_of()).frames, rows))
    assert frames.isascii()
    assert "\r" not in frames
    assert all(block.startswith("data: {") and "\n" not in block for block in frames.split("\n\n")[:-1])
    assert frames.endswith("}\n\n")


def test_texts_and_thoughts_are_opened_once_and_empty_deltas_left_out() -> None:
    events = encoded(
        RoundStarted(1), ReasoningDelta(""), ReasoningDelta("Hm"), TextDelta(""), ReasoningDelta("."), TextDelta("A"),
        TextDelta(""), TextDelta("B"),
    )  # fmt: skip
    thought, text = f"{RUN}-1", f"{RUN}-2"
    assert events == [
        {"type": "REASONING_START", "messageId": thought},
        {"type": "REASONING_MESSAGE_START", "messageId": thought, "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": thought, "delta": "Hm"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": thought, "delta": "."},
        {"type": "REASONING_MESSAGE_END", "messageId": thought},
        {"type": "REASONING_END", "messageId": thought},
        {"type": "TEXT_MESSAGE_START", "messageId": text, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": text, "delta": "A"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": text, "delta": "B"},
        {"type": "TEXT_MESSAGE_END", "messageId": text},
    ]


def test_messages_do_not_begin_with_line_ends_nor_consist_of_white_space() -> None:
    events = encoded(
        RoundStarted(1), ReasoningDelta("\n"), TextDelta("\n"), TextDelta("a"), RoundStarted(2), TextDelta("\n")
    )
    assert [one["type"] for one in events] == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
    assert events[1]["delta"] == "a"


def test_a_call_of_the_server_has_its_result_and_its_progress() -> None:
    events = encoded(
        RoundStarted(1), TextDelta("I look."), ToolStarted("c1", "bash", {"command": "ls"}, "native"),
        ToolProgress("c1", 0.5, ["a"], 1, 2), ToolProgress("c1", 1.0, ["a", "b"], 2, 4),
        ToolFinished("c1", "bash", True, "a\nb", 1.0), RoundStarted(2), TextDelta("Done."),
    )  # fmt: skip
    progress = {"messageId": "c1-progress", "activityType": "tool.progress"}
    content = {"call": "c1", "elapsed_s": 0.5, "tail": ["a"], "lines": 1, "bytes": 2}
    patch = [("elapsed_s", 1.0), ("tail", ["a", "b"]), ("lines", 2), ("bytes", 4)]
    assert events[3:9] == [
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "bash", "parentMessageId": f"{RUN}-1"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"command": "ls"}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {"type": "ACTIVITY_SNAPSHOT", **progress, "content": content},
        {
            "type": "ACTIVITY_DELTA",
            **progress,
            "patch": [{"op": "replace", "path": f"/{name}", "value": value} for name, value in patch],
        },
        {"type": "TOOL_CALL_RESULT", "messageId": "c1-result", "toolCallId": "c1", "content": "a\nb", "role": "tool"},
    ]
    assert [one["messageId"] for one in events if one["type"] == "TEXT_MESSAGE_START"] == [f"{RUN}-1", f"{RUN}-2"]


def test_a_clients_call_has_no_result_and_is_named_at_the_end() -> None:
    own = ToolStarted("c1", "bash", {}, "native"), ToolFinished("c1", "bash", True, "ok", 0.1)
    rows = rows_of(STARTED, RoundStarted(1), *own, ToolHanded("c2", "weather", {"a": 1}, "hermes"), USAGE,
                   finished("client_tools"))  # fmt: skip
    (events,) = ag_ui_streams(rows)
    check_ag_ui(events)
    assert [one["toolCallId"] for one in events if one["type"] == "TOOL_CALL_RESULT"] == ["c1"]
    starts = [one for one in events if one["type"] == "TOOL_CALL_START"]
    assert [one["toolCallName"] for one in starts] == ["bash", "weather"]
    assert len({one["parentMessageId"] for one in starts}) == 1  # the calls of one reply are of one message
    assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c2"]}


def test_a_rejected_call_has_the_reason_as_its_result() -> None:
    events = encoded(RoundStarted(1), ToolRejected("It may not run.", "c1", "bash"))
    assert [one["type"] for one in events] == [
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"),
        "TOOL_CALL_RESULT",
    ]
    assert (events[1]["delta"], events[-1]["content"]) == ("{}", "It may not run.")


def test_a_call_that_could_not_be_read_is_a_custom_event() -> None:
    (event,) = encoded(RoundStarted(1), ToolRejected("It could not be read."))
    assert event == {"type": "CUSTOM", "name": "tool.rejected", "value": {"reason": "It could not be read."}}


@pytest.mark.parametrize(
    "event", [Notice("retry", "Once more."), ContextTrimmed(1, 0, 10, 5)], ids=["notice", "context.trimmed"]
)
def test_notices_are_custom_events_and_part_no_text(event: AgentEvent) -> None:
    events = encoded(RoundStarted(1), TextDelta("a"), event, TextDelta("b"))
    assert [one["type"] for one in events] == [
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"),
        "CUSTOM",
        *("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
    ]
    assert events[2]["name"] == event.type
    assert "type" not in events[2]["value"]


def test_text_that_turns_out_to_be_a_thought_is_not_repeated() -> None:
    events = encoded(
        RoundStarted(1), TextDelta("Hm. "), TextReclassified(4), ReasoningDelta("Hm"), ReasoningDelta(". "),
        TextDelta("Yes."), ReasoningDelta("More."),
    )  # fmt: skip
    assert [one["delta"] for one in events if "delta" in one] == ["Hm. ", "Yes.", "More."]


def test_an_answer_that_goes_on_in_another_round_stays_one_message() -> None:
    events = encoded(RoundStarted(1), TextDelta("Half "), Notice("continued", ""), RoundStarted(2), TextDelta("a."))
    assert [one["type"] for one in events] == [
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"),
        "CUSTOM",
        *("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
    ]


def test_a_message_to_the_running_run_is_one_of_the_user() -> None:
    events = encoded(RoundStarted(1), TextDelta("a"), MessageAdded("Stop."))
    assert events[3:] == [
        {"type": "TEXT_MESSAGE_START", "messageId": f"{RUN}-2", "role": "user"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": f"{RUN}-2", "delta": "Stop."},
        {"type": "TEXT_MESSAGE_END", "messageId": f"{RUN}-2"},
    ]


ASKED = (
    STARTED,
    RoundStarted(1),
    TextDelta("I write."),
    Usage(100, 12, 100, 12, measured=True, cached_tokens=60),
    ApprovalRequired("c1", "write_file", {"path": "a"}, "It changes a.", 1_764_000_000.5),
    ApprovalResolved("c1", "approved", "local", "once", {"path": "b"}),
    ToolStarted("c1", "write_file", {"path": "b"}, "native"),
    ToolFinished("c1", "write_file", True, "Created b.", 0.1),
    RoundStarted(2),
    TextDelta("Done."),
    Usage(150, 8, 250, 20, measured=True, cached_tokens=90),
    finished(),
)


def test_an_approval_ends_the_stream_with_an_interrupt() -> None:
    encoder = AGUIEncoder(turn_of())
    rows = rows_of(*ASKED)
    events = data_of("".join(map(encoder.frames, rows[:5])))
    check_ag_ui(events)
    assert encoder.over
    assert "".join(map(encoder.frames, rows[5:])) == ""
    (interrupt,) = events[-1]["outcome"].pop("interrupts")
    assert events[-1]["outcome"] == {"type": "interrupt"}
    assert interrupt.pop("responseSchema")["required"] == ["approved"]
    assert interrupt == {
        "id": "c1",
        "reason": "tool_call",
        "message": "It changes a.",
        "toolCallId": "c1",
        "expiresAt": "2025-11-24T16:00:00.500000+00:00",
    }
    assert [one["toolCallId"] for one in events if one["type"] == "TOOL_CALL_START"] == ["c1"]


def test_the_next_stream_begins_behind_the_approval_and_counts_from_there() -> None:
    encoder = AGUIEncoder(turn_of(after=5, run="r2"))
    events = data_of("".join(map(encoder.frames, rows_of(*ASKED))))
    check_ag_ui(events)
    assert [one["type"] for one in events] == [
        *("RUN_STARTED", "TOOL_CALL_RESULT", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        "RUN_FINISHED",
    ]
    assert (events[0]["runId"], events[-1]["runId"]) == ("r2", "r2")
    assert events[2]["messageId"] == f"{RUN}-2"  # the first stream had the first message
    used = {"inputTokens": 150, "outputTokens": 8, "cachedInputTokens": 90, "totalTokens": 158}
    assert events[-1]["usage"] == [{"model": "scripted"} | used]


def test_a_call_that_is_asked_about_again_is_the_same_call() -> None:
    again = ApprovalRequired("c1~2", "write_file", {"path": "a"}, "It has changed.", None)
    first, second, third = ag_ui_streams(
        rows_of(*ASKED[:5], ApprovalResolved("c1", "approved", "local"), again, *ASKED[6:])
    )
    for events in (first, second, third):
        check_ag_ui(events)
    (interrupt,) = second[-1]["outcome"]["interrupts"]
    assert (interrupt["id"], interrupt["toolCallId"]) == ("c1~2", "c1")
    assert [one["type"] for one in second] == ["RUN_STARTED", "RUN_FINISHED"]


@pytest.mark.parametrize(
    "arguments, reason, interrupt, schema",
    [
        (FORM, "input_required", "form:q1", FORM["schema"]),
        ({"message": "Sign in.", "url": "https://a.example"}, "confirmation", "q1", None),
    ],
    ids=["form", "page"],
)
def test_a_question_of_a_running_call_wants_input(
    arguments: dict[str, Any], reason: str, interrupt: str, schema: Any
) -> None:
    rows = rows_of(
        STARTED, RoundStarted(1), ToolStarted("c1", "mcp", {}, "native"),
        ApprovalRequired("q1", "mcp_question", arguments, "A server asks.", None),
        ApprovalResolved("q1", "approved", "local"), ToolFinished("c1", "mcp", True, "ok", 1.0), finished(),
    )  # fmt: skip
    first, second = ag_ui_streams(rows)
    check_ag_ui(first)
    check_ag_ui(second)
    (asked,) = first[-1]["outcome"]["interrupts"]
    assert (asked["id"], asked["reason"]) == (interrupt, reason)
    assert "toolCallId" not in asked
    assert asked["metadata"]["message"] == arguments["message"]
    assert schema is None or asked["responseSchema"] == schema
    assert [one["type"] for one in second] == ["RUN_STARTED", "TOOL_CALL_RESULT", "RUN_FINISHED"]


ENDINGS = {
    "answered": ({"type": "success"}, None),
    "cancelled": ({"type": "cancelled"}, None),
    "round_limit": ({"type": "success"}, "round_limit"),
    "deadline": ({"type": "success"}, "deadline"),
    "budget": ({"type": "success"}, "budget"),
    "loop_broken": ({"type": "success"}, "loop_broken"),
    "no_answer": ({"type": "success"}, "no_answer"),
}


@pytest.mark.parametrize("reason", ENDINGS)
def test_a_run_that_ended_early_says_why_in_a_custom_event(reason: str) -> None:
    outcome, custom = ENDINGS[reason]
    (events,) = ag_ui_streams(rows_of(STARTED, RoundStarted(1), TextDelta("a"), finished(reason)))
    check_ag_ui(events)
    assert events[-1] == {"type": "RUN_FINISHED", "threadId": "t1", "runId": "r1", "outcome": outcome}
    wanted = [{"type": "CUSTOM", "name": "run.finished", "value": {"reason": custom}}] if custom else []
    assert [one for one in events if one["type"] == "CUSTOM"] == wanted


FAILED = RunFailed("model_down", "No server answers.", True)


@pytest.mark.parametrize(
    "before",
    [(), (STARTED,), (STARTED, RoundStarted(1), TextDelta("a"), ToolStarted("c1", "bash", {}, "native"), USAGE)],
    ids=["at once", "before the model", "in a call"],
)
def test_a_failure_ends_what_is_open_and_the_run(before: Sequence[AgentEvent]) -> None:
    (events,) = ag_ui_streams(rows_of(*before, FAILED))
    check_ag_ui(events)
    assert (events[-1]["type"], events[-1]["message"]) == ("RUN_ERROR", "No server answers.")
    assert events[-1]["code"] == "model_down"
    assert ("usage" in events[-1]) is (USAGE in before)


def test_nothing_follows_the_end() -> None:
    encoder = AGUIEncoder(turn_of())
    for row in rows_of(STARTED, finished()):
        encoder.frames(row)
    assert encoder.over
    assert encoder.frames(EventRow(RUN, 3, "text.delta", '{"type": "text.delta", "text": "a"}')) == ""


def test_the_name_of_the_thread_is_that_of_the_session_if_the_client_has_none() -> None:
    turn = Turn(RUN, STARTED.session, 0, "dragoman/agent", LaneRequest(model=None, messages=[]))
    (started,) = data_of(AGUIEncoder(turn).frames(rows_of(STARTED)[0]))
    assert started == {"type": "RUN_STARTED", "threadId": STARTED.session, "runId": RUN}


def test_an_error_has_type_param_and_code() -> None:
    lane = next(one for one in LANES if one.name == "ag_ui")
    status, body = lane.error(Refused(400, "invalid_request", "messages is empty.", param="messages"))
    assert status == 400
    assert isinstance(body, dict)
    assert json.loads(json.dumps(body))["error"]["param"] == "messages"
