"""Whatever a log holds, streams keep the rules of their clients, also behind any approval."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.core.events import (
    AgentEvent,
    ApprovalRequired,
    ApprovalResolved,
    MessageAdded,
    Notice,
    ReasoningDelta,
    RoundStarted,
    RunFailed,
    TextDelta,
    TextReclassified,
    ToolDelta,
    ToolFinished,
    ToolHanded,
    ToolProgress,
    ToolRejected,
    ToolStarted,
)
from tests.support.lanes.ag_ui_streams import ag_ui_streams, check_ag_ui
from tests.support.lanes.logs import STARTED, USAGE, finished, rows_of
from tests.support.lanes.ui_chunks import ui_streams

calls = st.sampled_from(["c1", "c2", "c1~2", "q1"])
words = st.sampled_from(["", "a", "\u2028", "\ud83d", "\n\n"])
arguments: st.SearchStrategy[dict[str, Any]] = st.sampled_from([{}, {"a": None}, {"schema": {}, "message": "?"}])
reasons = st.sampled_from(["answered", "client_tools", "cancelled", "deadline", "paused"])
notices = st.sampled_from(["retry", "cut", "refusal", "continued"])
events = st.one_of(
    words.map(TextDelta),
    words.map(ReasoningDelta),
    st.builds(TextReclassified, st.integers(1, 3)),
    st.builds(RoundStarted, st.integers(1, 3)),
    words.map(MessageAdded),
    st.builds(Notice, notices, words),
    st.builds(ToolDelta, calls, words),
    st.builds(ToolStarted, calls, st.just("bash"), arguments, st.just("native")),
    st.builds(ToolProgress, calls, st.just(0.5), st.lists(words, max_size=2), st.just(1), st.just(2)),
    st.builds(ToolFinished, calls, st.just("bash"), st.booleans(), words, st.just(1.0)),
    st.builds(ToolRejected, words, st.none() | calls, st.none() | st.just("bash")),
    st.builds(ToolHanded, st.sampled_from(["h1", "h2"]), st.just("weather"), arguments, st.just("native")),
    st.builds(ApprovalRequired, calls, st.just("bash"), arguments, words, st.none() | st.just(1e9)),
    st.builds(ApprovalResolved, calls, st.sampled_from(["approved", "denied", "expired"]), st.just("me")),
    st.just(USAGE),
)
ends: st.SearchStrategy[AgentEvent] = st.one_of(reasons.map(finished), st.just(RunFailed("internal", "A bug.", False)))
logs = st.tuples(st.lists(events, max_size=24), ends).map(lambda log: rows_of(STARTED, *log[0], log[1]))


@given(logs)
def test_ag_ui_keeps_its_rules(rows: list[Any]) -> None:
    started, answered = set[str](), list[str]()
    for stream in ag_ui_streams(rows):
        check_ag_ui(stream)
        for event in stream:
            if event["type"] == "TOOL_CALL_START" and event["toolCallName"] == "bash":
                assert event["toolCallId"] not in started
                started.add(event["toolCallId"])
        answered += [event["toolCallId"] for event in stream if event["type"] == "TOOL_CALL_RESULT"]
    assert sorted(started) == sorted(answered)


@given(logs)
def test_the_ui_stream_keeps_its_rules(rows: list[Any]) -> None:
    ui_streams(rows)
