"""A run up to one of its events, where rounds have more or fewer replies than one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.core.messages import AskedCall, Message
from app.runs.branching.run_cut import Edit, Unfit, cut_run, edited, renumbered
from app.storage.runs import EventRow

Kind = str | tuple[str, dict[str, Any]]


def log_of(*kinds: Kind) -> list[EventRow]:
    events = [(kind, dict[str, Any]()) if isinstance(kind, str) else kind for kind in kinds]
    return [
        EventRow("run_1", number, kind, json.dumps({"type": kind} | fields))
        for number, (kind, fields) in enumerate(events, start=1)
    ]


STARTED: Kind = "run.started", {"run": "run_1", "session": "ses_1", "model": "m", "limits": {"approval": "auto"}}
SUMMARY: Kind = "usage"  # of a request beside the run's own
CALL = AskedCall("c1", "bash", {"command": "a"}, "native")
REQUEST, FIRST, RESULT = (
    Message("user", "Go."),
    Message("assistant", "", calls=(CALL,)),
    Message("tool", "1", call="c1"),
)
EMPTY, LAST = Message("assistant", "Once more."), Message("assistant", "Done.")


def test_each_event_has_the_messages_that_were_there() -> None:
    first: list[Kind] = [STARTED, "round.started", SUMMARY, "tool.delta", "usage"]  # 1 to 5
    call: list[Kind] = [("tool.started", {"call": "c1"}), ("tool.finished", {"call": "c1", "text": "1"})]  # 6, 7
    no_reply: list[Kind] = ["round.started", "usage", ("notice", {"code": "synthesis"}), "usage", "text.delta"]  # to 12
    last: list[Kind] = [("message.added", {"text": "And?"}), "round.started", SUMMARY, "text.delta", "usage"]  # to 17
    log = log_of(*first, *call, *no_reply, *last, "run.finished")
    steered = Message("user", "And?")
    messages = [REQUEST, FIRST, RESULT, EMPTY, steered, LAST]
    expected = {1: 1, **dict.fromkeys(range(2, 5), 1), 5: 2, 6: 2, 7: 3, **dict.fromkeys(range(8, 13), 3)}
    expected |= {13: 3, **dict.fromkeys(range(14, 17), 5), 17: 6, 18: 6}
    for at, count in expected.items():
        cut = cut_run(log, messages, at)
        assert list(cut.messages) == messages[:count], at
        assert [call.id for call in cut.open_calls] == (["c1"] if at in (5, 6) else [])
        assert all(row.type != "run.finished" and (row.seq <= at) for row in cut.events)
        assert not cut.open_calls or all(row.type != "tool.started" for row in cut.events)
        rows = renumbered(cut, "run_2", {"run": "run_2"}, "ask")
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        if rows:
            assert (
                json.loads(rows[0].data)["run"] == "run_2" and json.loads(rows[0].data)["limits"]["approval"] == "ask"
            )


def test_words_that_a_person_says_twice_are_kept_as_often_as_by_then() -> None:
    again: Kind = ("message.added", {"text": "Go on."})
    finished: Kind = ("tool.finished", {"call": "c1", "text": "1"})
    first: list[Kind] = [STARTED, again, "round.started", "tool.delta", "usage", finished]
    later: list[Kind] = [again, "round.started", "text.delta", "usage"]
    log = log_of(*first, *later, *later)
    said = Message("user", "Go on.")
    messages = [REQUEST, said, FIRST, RESULT, said, EMPTY, said, LAST]
    for at, count in {1: 1, 2: 2, 3: 2, 6: 4, 7: 5, 8: 5, 9: 5, 10: 6, 11: 7, 13: 7, 14: 8}.items():
        assert list(cut_run(log, messages, at).messages) == messages[:count], at


def test_joined_deltas_keep_their_numbers_behind_a_cut() -> None:
    log = [
        *log_of(STARTED, "round.started"),
        EventRow("run_1", 7, "text.delta", '{"text": "abcde"}', "[1, 1, 1, 1, 1]"),
    ]
    log += [EventRow("run_1", 8, "usage", "{}")]
    cut = cut_run(log, [REQUEST, LAST], 8)
    assert [row.seq for row in renumbered(cut, "run_2", {}, "ask")] == [1, 2, 7, 8]
    assert [row.seq for row in cut_run(log, [REQUEST, LAST], 5).events] == [1, 2]


@pytest.mark.parametrize("at", [0, -1, 9])
def test_an_event_that_there_is_not_is_named(at: int) -> None:
    with pytest.raises(Unfit, match="events 1 to 2"):
        cut_run(log_of(STARTED, "round.started"), [REQUEST], at)


def test_an_edit_of_a_call_that_was_refused_is_refused() -> None:
    log = log_of(STARTED, "round.started", ("tool.rejected", {"call": "c1", "reason": "No."}), "usage")
    cut = cut_run(log, [REQUEST, FIRST], 4)
    assert cut.open_calls
    with pytest.raises(Unfit, match="no call comes next"):
        edited(cut, Edit(arguments={}), {})
