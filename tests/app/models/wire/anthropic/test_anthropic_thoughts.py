"""Thoughts of earlier replies: they go back as they came, and only behind what they followed, in any history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.data_delimiters import framed
from app.core.messages import AskedCall, Message, OpaqueMetadata, Role, dump, load
from app.models.wire.anthropic.history import EncodedHistory
from app.models.wire.anthropic.reasoning import reasoning_in, sealed
from tests.support.models.messages_rules import broken_rules
from tests.support.models.messages_wire import (
    FRAMED,
    LS,
    ORIGIN,
    PDF,
    PNG,
    READ,
    SYSTEM,
    USER,
    answer,
    body_of,
    said,
    turn,
    use,
    written,
)
from tests.support.trimming import History, histories


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": f"signed {text}"}


def replied(before: Sequence[Message], text: str, calls: Sequence[AskedCall] = (), **options: Any) -> Message:
    """The model's reply to that, with a thought, as it comes out of the store."""
    content = [thought(text), {"type": "text", "characters": len(text)}]
    content += [{"type": "tool_use", "id": f"toolu_{call.id}"} for call in calls]
    seal = sealed(ORIGIN, written(before, **options).before, content)
    return load(dump(Message("assistant", text, tuple(calls), sealed=seal)))


def thoughts(one: EncodedHistory) -> list[str]:
    blocks = [block for message in one.messages for block in message["content"]]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]


HISTORY = [SYSTEM, USER]
HISTORY.append(replied(HISTORY, "I look.", [LS, READ]))
HISTORY += [Message("tool", "a.txt", call="c1", name="bash"), Message("tool", "x", call="c2", name="read_file")]
HISTORY.append(replied(HISTORY, "One file."))
HISTORY.append(Message("user", "Thanks."))


def test_a_reply_goes_back_as_it_came_under_the_ids_it_came_with() -> None:
    one = written(HISTORY)
    assert one.messages[1:4] == [
        turn("assistant", thought("I look."), said("I look."), use(LS, "toolu_c1"), use(READ, "toolu_c2")),
        turn("user", answer("toolu_c1", FRAMED), answer("toolu_c2", framed("x", call="c2", name="read_file"))),
        turn("assistant", thought("One file."), said("One file.")),
    ]
    assert one.with_reasoning and broken_rules(body_of(one)) == []


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        (lambda history: history, ["I look.", "One file."]),
        (lambda history: [*history, Message("assistant", "You are welcome."), USER], ["I look.", "One file."]),
        (lambda history: [replace(SYSTEM, text="Be long."), *history[1:]], []),
        (lambda history: [SYSTEM, replace(USER, text="[cut]"), *history[2:]], []),
        (lambda history: [SYSTEM, *history[3:]], []),
        (lambda history: [*history[:3], replace(history[3], text="[cut]"), *history[4:]], ["I look."]),
        (lambda history: [*history[:2], replace(history[2], text="[cut]"), *history[3:]], []),
        (lambda history: [*history[:5], replace(history[5], text="[cut]"), *history[6:]], ["I look."]),
        (lambda history: [*history[:2], replace(history[2], sealed=None), *history[3:]], []),
    ],
    ids=["nothing", "more", "system", "request", "trimmed", "result", "reply", "last reply", "lost thought"],
)
def test_thoughts_go_back_behind_exactly_what_they_followed(changed: Any, kept: list[str]) -> None:
    one = written(changed(HISTORY))
    assert thoughts(one) == kept and broken_rules(body_of(one)) == []


def test_thoughts_stay_here_for_another_model_and_where_none_are_wanted() -> None:
    for options in ({"origin": ""}, {"origin": "claude-2 at api.example.com, messages"}, {"native": False}):
        one = written(HISTORY, **options)
        assert thoughts(one) == [] and not one.with_reasoning and '"toolu_' not in json.dumps(one.messages)
    assert reasoning_in(HISTORY[2], ORIGIN) == "I look."
    assert reasoning_in(HISTORY[2], "another") == reasoning_in(USER, ORIGIN) == ""


@pytest.mark.parametrize(
    "content",
    [
        *(None, "x", [], [7], [{}], [{"type": "thinking"}, {"type": "hologram"}]),
        [thought("a")],
        [{"type": "text", "characters": 7}, thought("a")],
        [thought("a"), {"type": "text", "characters": 7}, {"type": "tool_use", "id": "t"}],
        [thought("a"), {"type": "text", "characters": 6}],
        [thought("a"), {"type": "tool_use", "id": ""}, {"type": "text", "characters": 7}],
    ],
)
def test_a_seal_that_does_not_fit_its_message_is_left_out(content: Any) -> None:
    message = Message(
        "assistant", "I look.", sealed=OpaqueMetadata(ORIGIN, {"before": written([USER]).before, "content": content})
    )
    one = written([USER, message, USER])
    assert one.messages[1] == turn("assistant", said("I look.")) and not one.with_reasoning


TEXTS = st.sampled_from(["", " ", "\n\n", "Hello", "\ud83d", "漢字 😀"])
FILES = {PNG.sha256: "YQ=="}
ROLES: list[Role] = ["system", "user", "assistant", "assistant", "tool"]


@st.composite
def odd_histories(draw: st.DrawFn) -> list[Message]:
    """Roles in any order, with empty words, odd names, files, thoughts; the ids of calls are unique, as ours are."""
    history: list[Message] = []
    for number in range(draw(st.integers(0, 12))):
        role = draw(st.sampled_from(ROLES))
        calls = [
            AskedCall(f"c{number}-{one}", draw(st.sampled_from(["bash", "", "a b"])), {"a": draw(TEXTS)}, dialect)
            for one, dialect in enumerate(draw(st.lists(st.sampled_from(["native", "fence"]), max_size=3)))
        ]
        call = draw(st.sampled_from([None, "nobody", *(call.id for message in history for call in message.calls)]))
        files = draw(st.sampled_from([(), (PNG,), (PDF, PNG)]))
        match role:
            case "assistant" if draw(st.booleans()):
                history.append(thinking(history, draw(TEXTS), calls))
            case "assistant":
                history.append(Message("assistant", draw(TEXTS), tuple(calls)))
            case "tool":
                history.append(Message("tool", draw(TEXTS), call=call))
            case _:
                history.append(Message(role, draw(TEXTS), attachments=files if role == "user" else ()))
    return history


def thinking(before: Sequence[Message], text: str, calls: Sequence[AskedCall]) -> Message:
    native = [{"type": "tool_use", "id": f"toolu_{call.id}"} for call in calls if call.dialect == "native"]
    content = [thought("hm"), {"type": "text", "characters": len(text)}, *native]
    return Message("assistant", text, tuple(calls), sealed=sealed(ORIGIN, written(before, files=FILES).before, content))


@given(odd_histories(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_history_becomes_one_that_the_api_takes(history: list[Message], native: bool) -> None:
    assert broken_rules(body_of(written(history, native=native, files=FILES))) == []


@given(histories(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_conversation_does(history: History, native: bool) -> None:
    assert broken_rules(body_of(written(history.messages, native=native))) == []


def flat(messages: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(message["role"], block) for message in messages for block in message["content"]]


@given(odd_histories(), st.data())
@settings(max_examples=80, deadline=None)
def test_thoughts_never_follow_what_they_did_not_follow(history: list[Message], data: st.DataObject) -> None:
    """With whatever left out before them: each goes back only behind the blocks that were there when it was thought."""
    kept = [message for message in history if data.draw(st.integers(0, 9))]
    one = written(kept, files=FILES)
    told = flat(one.messages)
    for place, (_, block) in enumerate(told):
        if block["type"] == "thinking":
            assert any(
                told[:place] == flat(written(history[:n], files=FILES).messages)[:place]
                for n in range(len(history) + 1)
            )
    assert broken_rules(body_of(one)) == []
