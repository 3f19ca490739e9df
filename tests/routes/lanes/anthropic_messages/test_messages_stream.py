"""Anthropic's Messages as a stream and as a whole: the rules of clients, each a test or a row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events import (
    TERMINAL,
    AgentEvent,
    Notice,
    ReasoningDelta,
    RoundStarted,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    TextReclassified,
    ToolDelta,
    ToolFinished,
    ToolHanded,
    ToolRejected,
    ToolStarted,
    Usage,
    encode,
)
from app.core.messages import Message
from app.storage.runs import EventRow
from routes.lanes.answer import Answer
from routes.lanes.anthropic_messages.answer import whole_message
from routes.lanes.anthropic_messages.blocks import is_our_signature
from routes.lanes.anthropic_messages.stream import MessagesEncoder
from routes.lanes.lane import LaneRequest, Turn
from tests import ROOT
from tests.support.lanes.logs import handed

RUNS = sorted((ROOT / "fixtures" / "runs").glob("*.sse"))
STARTED = RunStarted("run_1a", "ses_1", "m", [], {})
FINISHED = RunFinished("answered", "", 1, 0, {})
HANDED = RunFinished("client_tools", "", 1, 1, {})
CALL = ToolHanded("c1", "get_weather", {"city": 'Bob\'s "Bay"\u2028'}, "hermes")
Fields = dict[str, Any]


def turn(*, own_tools: bool = False) -> Turn:
    request = LaneRequest(
        model="m", messages=[Message("user", "x" * 400)], echo={"dragoman": True} if own_tools else {}
    )
    return Turn("run_1a", "ses_1", 1, "m", request)


def rows_of(*events: AgentEvent) -> list[EventRow]:
    return [EventRow("run_1a", seq, event.type, encode(event)) for seq, event in enumerate(events, 1)]


def golden(path: Path) -> list[EventRow]:
    rows = []
    for block in path.read_text().split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            rows.append(EventRow("run_1a", int(fields["id"]), fields["event"], fields["data"]))
            if fields["event"] in TERMINAL:
                break  # some logs have a further run
    return rows


def streamed(rows: Sequence[EventRow], *, own_tools: bool = False) -> list[Fields]:
    """The events of a stream, whose frames are as all clients can read them."""
    encoder = MessagesEncoder(turn(own_tools=own_tools))
    text = "".join(map(encoder.frames, rows))
    assert text.isascii()
    assert "\r" not in text
    return list(parsed(text))


def parsed(text: str) -> Iterator[Fields]:
    for block in text.split("\n\n")[:-1]:
        event, data = block.split("\n")
        fields = json.loads(data.removeprefix("data: "))
        assert event == f"event: {fields['type']}"
        yield fields
    assert text.endswith("\n\n")


def assembled(events: Sequence[Fields]) -> Fields:
    """The message that a strict client makes of a stream."""
    assert [one["type"] for one in events[:2]] == ["message_start", "ping"]
    message: Fields = events[0]["message"]
    blocks, opened = list[Fields](), False
    for event in events[2:-2]:
        match event:
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert not opened
                assert index == len(blocks)
                blocks.append(dict(block))
                opened = True
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                assert opened
                assert index == len(blocks) - 1
                extend(blocks[-1], delta)
            case {"type": "content_block_stop", "index": index}:
                assert opened
                assert index == len(blocks) - 1
                opened = False
            case _:
                raise AssertionError(event)
    assert not opened
    ends, last = events[-2:]
    assert last == {"type": "message_stop"}
    assert ends["type"] == "message_delta"
    ended: Fields = ends["delta"]
    return message | ended | {"content": blocks, "usage": ends["usage"]}


def extend(block: Fields, delta: Fields) -> None:
    match delta:
        case {"type": "text_delta", "text": str(text)}:
            block["text"] += text
        case {"type": "thinking_delta", "thinking": str(text)}:
            block["thinking"] += text
        case {"type": "signature_delta", "signature": str(signature)}:
            block["signature"] += signature
        case {"type": "input_json_delta", "partial_json": str(text)}:
            assert block["input"] == {}
            block["input"] = json.loads(text)
        case _:
            raise AssertionError(delta)


def whole(rows: Sequence[EventRow], *, own_tools: bool = False) -> Fields:
    answer = Answer()
    for row in rows:
        answer.add(row)
    return whole_message(answer, turn(own_tools=own_tools))


def content(*events: AgentEvent, own_tools: bool = False) -> list[Fields]:
    """The blocks of a stream, which are those of the whole answer, too."""
    rows = rows_of(STARTED, RoundStarted(1), *events)
    message = assembled(streamed(rows, own_tools=own_tools))
    assert in_order(message) == in_order(whole(rows, own_tools=own_tools))
    blocks: list[Fields] = message["content"]
    return blocks


def in_order(message: Fields) -> Fields:
    """With results behind their calls: in a stream they come when they are there."""
    blocks = message["content"]
    results = {block["tool_use_id"]: block for block in blocks if block["type"] == "mcp_tool_result"}
    behind = {
        at: results.get(block.get("id", "")) for at, block in enumerate(blocks) if block["type"] != "mcp_tool_result"
    }
    return message | {"content": [[blocks[at], result] for at, result in behind.items()]}


@pytest.mark.parametrize("own_tools", [False, True], ids=["hidden", "shown"])
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_every_golden_log_is_a_valid_stream(path: Path, own_tools: bool) -> None:
    rows = golden(path)
    events = streamed(rows, own_tools=own_tools)
    if rows[-1].type == RunFailed.type:
        assert [one["type"] for one in events].count("error") == 1
        assert events[-1]["type"] == "error"
        return
    message = assembled(events)
    if all(row.type != TextReclassified.type for row in rows):  # a stream cannot take back what it has sent
        assert in_order(message) == in_order(whole(rows, own_tools=own_tools))
    types = {block["type"] for block in message["content"]}
    allowed = {"text", "thinking"} | ({"mcp_tool_use", "mcp_tool_result"} if own_tools else set())
    assert types <= allowed | ({"tool_use"} if handed(rows) else set())


def test_message_start_has_the_tokens_that_are_known() -> None:
    start, ping = streamed(rows_of(STARTED))
    assert ping == {"type": "ping"}
    message = start["message"]
    assert message["usage"]["input_tokens"] == 100  # an estimate: 400 characters
    assert message | {"usage": None} == {
        "id": "msg_1a",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": None,
    }


def test_text_and_thoughts_are_blocks_with_growing_indexes() -> None:
    thought, text = content(
        ReasoningDelta("Let "), ReasoningDelta("me."), TextDelta("Hi \ud83d"), TextDelta("\ude00"), FINISHED
    )
    assert thought["type"] == "thinking"
    assert thought["thinking"] == "Let me."
    assert text["text"].encode("utf-16", "surrogatepass").decode("utf-16") == "Hi \N{GRINNING FACE}"


def test_a_signature_is_never_empty_and_known_again() -> None:
    thought, _ = content(ReasoningDelta("Hm."), TextDelta("Hi"), FINISHED)
    assert is_our_signature(thought["signature"])


def test_tool_use_has_an_empty_input_first_and_the_whole_json_in_one_delta() -> None:
    events = streamed(rows_of(STARTED, CALL, HANDED))
    start, delta, stop = events[2:5]
    assert start["content_block"] == {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {}}
    assert json.loads(delta["delta"]["partial_json"]) == CALL.arguments
    assert stop["type"] == "content_block_stop"


def test_calls_in_parallel_and_text_between_them_are_blocks_of_their_own() -> None:
    other = ToolHanded("c2", "get_time", {}, "native")
    blocks = content(TextDelta("I look."), CALL, other, TextDelta("More."), HANDED)
    assert [block["type"] for block in blocks] == ["text", "tool_use", "tool_use", "text"]
    assert blocks[2]["input"] == {}


def test_white_space_alone_is_no_block_but_in_front_of_text_it_stays() -> None:
    blocks = content(ReasoningDelta("\n"), TextDelta("\n"), TextDelta("\n"), CALL, HANDED)
    assert [block["type"] for block in blocks] == ["tool_use"]
    [text] = content(TextDelta("\n"), TextDelta("    x = 1"), FINISHED)
    assert text["text"] == "\n    x = 1"


def test_no_white_space_stands_around_thoughts_and_calls() -> None:
    thought = ReasoningDelta("\nHm."), ReasoningDelta("\n"), TextDelta("\n\n"), TextDelta("I look.")
    blocks = content(*thought, TextDelta(" \n"), TextDelta("\n"), CALL, HANDED)
    assert [block.get("text") or block.get("thinking") for block in blocks] == ["\nHm.", "I look. ", None]


def test_white_space_of_the_other_kind_parts_no_words() -> None:
    rows = rows_of(STARTED, ReasoningDelta("Let me "), TextDelta("\n"), ReasoningDelta("see."), FINISHED)
    assert [block["thinking"] for block in whole(rows)["content"]] == ["Let me see."]
    assert assembled(streamed(rows))["content"] == whole(rows)["content"]


def test_white_space_between_words_stays() -> None:
    words = "a", " ", "b\n", "", "\t", "\\n", "c", "\u00a0", "d"
    [text] = content(*map(TextDelta, words), FINISHED)
    assert text["text"] == "".join(words)


def test_deltas_of_arguments_are_never_shown() -> None:
    [text] = content(TextDelta("Hi"), ToolDelta("c1", "<parameter=x>", "bash"), FINISHED)
    assert text["text"] == "Hi"


def test_later_rounds_begin_a_new_text_block_and_own_tools_are_hidden() -> None:
    ran = (ToolStarted("c1", "bash", {"command": "ls"}, "native"), ToolFinished("c1", "bash", True, "a.txt", 0.1))
    blocks = content(TextDelta("I look."), *ran, RoundStarted(2), TextDelta("One file."), FINISHED)
    assert [block["text"] for block in blocks] == ["I look.", "One file."]


def test_own_tools_are_mcp_tool_use_for_clients_that_read_it() -> None:
    blocks = content(
        TextDelta("I look."),
        ToolStarted("c1", "bash", {"command": "ls"}, "native"),
        ToolStarted("c2", "bash", {}, "native"),
        ToolFinished("c1", "bash", True, "a.txt", 0.1),
        ToolRejected("Not allowed.", "c2", "bash"),
        ToolRejected("No call at all."),
        RoundStarted(2),
        FINISHED,
        own_tools=True,
    )
    kinds = ["text", "mcp_tool_use", "mcp_tool_use", "mcp_tool_result", "mcp_tool_result"]
    assert sorted(block["type"] for block in blocks) == sorted(kinds)


def test_a_reclassified_thought_is_not_sent_again() -> None:
    repeated = ReasoningDelta("They greet"), ReasoningDelta(" me."), ReasoningDelta("Native."), TextDelta("Hi")
    rows = rows_of(STARTED, TextDelta("They greet me."), TextReclassified(14), *repeated, FINISHED)
    blocks = assembled(streamed(rows))["content"]
    assert [block.get("text") or block["thinking"] for block in blocks] == ["They greet me.", "Native.", "Hi"]
    assert [block["type"] for block in whole(rows)["content"]] == ["thinking", "text"]  # right at once


CUT, DECLINED = Notice("cut", "The model reached its limit."), Notice("refusal", "The model declined to answer.")


def test_a_round_that_continues_a_broken_answer_continues_its_block() -> None:
    [text] = content(
        TextDelta("The tide "), Notice("continued", "It broke off."), RoundStarted(2), TextDelta("turns."), FINISHED
    )
    assert text["text"] == "The tide turns."


STOPS = {
    "answered": ([TextDelta("Hi")], "answered", "end_turn"),
    "calls handed over": ([CALL], "client_tools", "tool_use"),
    "calls handed over, then cut": ([CALL, CUT], "client_tools", "tool_use"),
    "length limit": ([TextDelta("Hi"), CUT], "answered", "max_tokens"),
    "cut in an earlier round": ([CUT, RoundStarted(2), TextDelta("Hi")], "answered", "end_turn"),
    "declined": ([DECLINED], "answered", "refusal"),
    "cancelled": ([TextDelta("Hi")], "cancelled", "end_turn"),
    "rounds": ([TextDelta("Hi")], "round_limit", "max_tokens"),
    "budget": ([], "budget", "max_tokens"),
    "deadline": ([], "deadline", "max_tokens"),
    "no answer": ([TextDelta("I have none.")], "no_answer", "max_tokens"),
    "a reason to come": ([], "something_new", "max_tokens"),
}


@pytest.mark.parametrize("events, reason, stop", STOPS.values(), ids=STOPS)
def test_stop_reason_is_one_that_clients_know(events: list[AgentEvent], reason: str, stop: str) -> None:
    rows = rows_of(STARTED, RoundStarted(1), *events, RunFinished(reason, "", 1, 0, {}))
    assert assembled(streamed(rows))["stop_reason"] == stop
    assert whole(rows)["stop_reason"] == stop


def test_usage_at_the_end_is_the_sum_with_cached_tokens_apart() -> None:
    rounds = Usage(100, 10, 100, 10, True, cached_tokens=60), Usage(200, 5, 300, 15, True, cached_tokens=90)
    message = assembled(streamed(rows_of(STARTED, *rounds, FINISHED)))
    assert message["usage"] == {
        "input_tokens": 150,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 150,
        "output_tokens": 15,
    }
    assert whole(rows_of(STARTED, *rounds, FINISHED))["usage"] == message["usage"]


FAILURES = {
    "model_context": ("invalid_request_error", "prompt is too long: No."),  # Claude Code shortens the conversation
    "model_down": ("overloaded_error", "No."),  # and waits here
    "model_busy": ("rate_limit_error", "No."),
    "internal": ("api_error", "No."),
}


@pytest.mark.parametrize("code", FAILURES)
def test_a_failure_is_an_error_event_in_words_that_clients_know(code: str) -> None:
    *_, error = streamed(rows_of(STARTED, TextDelta("Hi"), RunFailed(code, "No.", True)))
    kind, message = FAILURES[code]
    assert error == {"type": "error", "error": {"type": kind, "message": message}}


WORDS = st.sampled_from([" ", "\n", "\n\n", "a", "b \n", " c", "n", "\\n", "\u2028", "\U0001f30a", '"', ""])
OWN = st.sampled_from(["o1", "o2"])
EVENTS = st.one_of(
    st.builds(TextDelta, WORDS),
    st.builds(ReasoningDelta, WORDS),
    st.just(CALL),
    st.builds(ToolStarted, OWN, st.just("bash"), st.just({"command": "ls"}), st.just("native")),
    st.builds(ToolFinished, OWN, st.just("bash"), st.booleans(), st.just("a.txt"), st.just(0.1)),
    st.builds(ToolRejected, st.just("No."), st.none() | OWN, st.just("bash")),
    st.builds(RoundStarted, st.integers(2, 9)),
    st.sampled_from([CUT, DECLINED, Notice("continued", "It broke off."), Usage(5, 1, 5, 1, True)]),
)


@given(st.lists(EVENTS, max_size=30), st.booleans())
def test_any_log_is_a_valid_stream_with_the_text_of_the_whole_answer(log: list[AgentEvent], own_tools: bool) -> None:
    rows = rows_of(STARTED, RoundStarted(1), *log, FINISHED)
    stream, answer = assembled(streamed(rows, own_tools=own_tools)), whole(rows, own_tools=own_tools)
    assert stream["stop_reason"] == answer["stop_reason"]
    for kind in ("text", "thinking"):
        shown = [block[kind] for block in stream["content"] if block["type"] == kind]
        assert all(text.strip(" \n") for text in shown)
        meant = [block[kind] for block in answer["content"] if block["type"] == kind]
        assert "".join("".join(shown).split()) == "".join("".join(meant).split())
