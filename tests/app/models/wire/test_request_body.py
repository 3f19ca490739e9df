"""The history as a request body: what strict chat templates and strict servers need."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.data_delimiters import framed
from app.core.messages import AskedCall, Message
from app.core.provider import ModelRequest
from app.models.http.json_body import encodable, encode, encoded
from app.models.wire.openai.history import ENOUGH, INTERRUPTED, OpeningCache, wire_messages
from tests.support.models.chatting import BASH, WHOLE, chat_with, pieces_of
from tests.support.models.upstream import upstream

pytestmark = pytest.mark.anyio

SYSTEM, USER = Message("system", "Be brief."), Message("user", "List the files.")
NATIVE = AskedCall("c1", "bash", {"command": "ls"}, "native")
SECOND = AskedCall("c2", "read_file", {"path": "a"}, "native")
FENCED = AskedCall("c3", "bash", {"command": "ls"}, "fence")
FRAMED = framed("a.txt", call="c1", name="bash")
RESULT = f"{FRAMED}\n\n{ENOUGH}"
BARE = f"Result of bash:\na.txt\n\n{ENOUGH}"
FENCE = "```bash\nls\n```"


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_a_call_in_text_stays_text_and_its_result_is_the_users() -> None:
    history = [SYSTEM, USER, Message("assistant", FENCE, (FENCED,)), Message("tool", "a.txt", call="c3", name="bash")]
    assert wire_messages(history, native=True) == [
        said("system", "Be brief."),
        said("user", "List the files."),
        said("assistant", FENCE),
        said("user", f"{framed('a.txt', call='c3', name='bash')}\n\n{ENOUGH}"),
    ]


def test_native_calls_are_followed_by_their_results_in_order() -> None:
    history = [
        USER,
        Message("assistant", "", (NATIVE, SECOND)),
        Message("tool", "hello", call="c2", name="read_file"),
        Message("user", "Faster, please."),
        Message("tool", "a.txt", call="c1", name="bash"),
    ]
    functions = [
        {"name": "bash", "arguments": '{"command": "ls"}'},
        {"name": "read_file", "arguments": '{"path": "a"}'},
    ]
    calls = [
        {"id": id, "type": "function", "function": function}
        for id, function in zip(("c1", "c2"), functions, strict=True)
    ]
    assert wire_messages(history, native=True) == [
        said("user", "List the files."),
        said("assistant", "") | {"tool_calls": calls},
        said("tool", FRAMED) | {"tool_call_id": "c1"},
        said("tool", framed("hello", call="c2", name="read_file")) | {"tool_call_id": "c2"},
        said("user", "Faster, please."),
    ]


def test_a_native_call_without_a_result_gets_one() -> None:
    sent = wire_messages([USER, Message("assistant", "", (NATIVE,))], native=True)
    assert sent[-1] == said("tool", INTERRUPTED) | {"tool_call_id": "c1"}


def test_a_result_whose_call_was_trimmed_away_is_the_users() -> None:
    sent = wire_messages([Message("tool", "a.txt", call="c1", name="bash")], native=True)
    assert sent == [said("user", RESULT)]


def test_several_results_in_text_are_told_once_that_they_may_be_enough() -> None:
    results = [Message("tool", text, call=call, name="bash") for text, call in (("a", "c3"), ("b", "c4"))]
    (sent,) = wire_messages(results, native=False)
    first, second = (framed(result.text, call=result.call or "", name="bash") for result in results)
    assert sent == said("user", f"{first}\n\n{second}\n\n{ENOUGH}")


@pytest.mark.parametrize(
    ("untrusted", "bare", "content"),
    [
        (False, False, RESULT),
        (False, True, BARE),
        (True, False, f"{framed('a.txt', call='c1', name='bash', untrusted=True)}\n\n{ENOUGH}"),
        (True, True, f"{framed('a.txt', call='c1', name='bash', untrusted=True)}\n\n{ENOUGH}"),
    ],
    ids=["framed", "bare", "untrusted", "untrusted, where bare was wanted"],
)
def test_only_a_trusted_result_in_text_may_be_bare(untrusted: bool, bare: bool, content: str) -> None:
    result = Message("tool", "a.txt", call="c1", name="bash", untrusted=untrusted)
    assert wire_messages([result], native=False, bare=bare) == [said("user", content)]
    asked = Message("assistant", "", (NATIVE,))
    native = wire_messages([USER, asked, result], native=True, bare=bare)[-1]
    assert native["content"] == framed("a.txt", call="c1", name="bash", untrusted=untrusted)


def test_a_result_is_framed_alike_in_every_round() -> None:
    history = [USER, Message("assistant", FENCE, (FENCED,)), Message("tool", "a.txt", call="c3", name="bash")]
    later = [*history, Message("assistant", "One file."), Message("user", "Thanks.")]
    before, after = wire_messages(history, native=False), wire_messages(later, native=False)
    assert after[: len(before)] == before


def test_native_calls_become_text_for_a_server_without_tools() -> None:
    history = [USER, Message("assistant", "I look.", (NATIVE,)), Message("tool", "a.txt", call="c1", name="bash")]
    written = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
    assert wire_messages(history, native=False) == [
        said("user", "List the files."),
        said("assistant", f"I look.\n{written}"),
        said("user", RESULT),
    ]


def test_roles_alternate_and_one_system_message_comes_first() -> None:
    late = Message("system", "Today is Monday.")
    history = [SYSTEM, late, USER, USER, late, Message("assistant", ""), Message("assistant", "Yes."), USER]
    assert wire_messages(history, native=True) == [
        said("system", "Be brief.\n\nToday is Monday."),
        said("user", "List the files.\n\nList the files.\n\nToday is Monday."),
        said("assistant", "Yes."),
        said("user", "List the files."),
    ]


RESULTS = [USER, Message("assistant", "", (NATIVE,)), Message("tool", "a.txt", call="c1", name="bash")]


def test_words_before_a_native_call_belong_to_it() -> None:
    """A model that only said what it was about to do was asked to do it, in a note that is not kept."""
    history = [USER, Message("assistant", "I look."), *RESULTS[1:]]
    sent = wire_messages(history, native=True)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[1]["content"] == "I look." and [call["id"] for call in sent[1]["tool_calls"]] == ["c1"]


@pytest.mark.parametrize(
    ("model", "roles"),
    [("gpt-5", ["tool", "user"]), ("mistral-medium-latest", ["tool", "assistant", "user"])],
)
async def test_mistral_s_models_speak_between_a_result_and_a_person(model: str, roles: list[str]) -> None:
    request = ModelRequest([*RESULTS, Message("user", "Faster, please.")], [BASH])
    async with upstream(WHOLE, chats=True) as server, chat_with(server, model=model) as provider:
        assert await pieces_of(provider, request)
    assert [message["role"] for message in server.asked[0].json["messages"]][2:] == roles


MESSAGES = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.text(max_size=8),
    st.lists(st.sampled_from([NATIVE, SECOND, FENCED]), max_size=2, unique_by=lambda call: call.id).map(tuple),
    st.sampled_from([None, "c1", "c2", "c3"]),
)


@given(st.lists(MESSAGES, max_size=12), st.booleans(), st.booleans())
def test_any_history_becomes_one_that_strict_templates_take(
    history: list[Message], native: bool, bridged: bool
) -> None:
    sent = wire_messages(history, native=native, bridged=bridged)
    json.loads(encode({"messages": sent}))
    roles = [message["role"] for message in sent]
    assert "system" not in roles[1:]
    for earlier, later in pairwise(sent):
        joinable = later["role"] != "tool" and "tool_calls" not in earlier
        assert earlier["role"] != later["role"] or not joinable
        assert not bridged or (earlier["role"], later["role"]) != ("tool", "user")
    if not native:
        assert not {"tool"} & set(roles)
    for at, message in enumerate(sent):
        calls = message.get("tool_calls", [])
        answers = [answer.get("tool_call_id") for answer in sent[at + 1 : at + 1 + len(calls)]]
        assert answers == [call["id"] for call in calls]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain é 😀", "plain é 😀"), ("\ud83d\ude00", "😀"), ("a\ud83d", "a\ufffd"), ("\ude00\ud83d", "\ufffd\ufffd")],
)
def test_surrogates_are_paired_or_replaced(text: str, expected: str) -> None:
    assert encodable(text) == expected


def test_no_lone_surrogate_hides_in_the_arguments_of_a_call() -> None:
    """A server that reads them would refuse the whole session from then on."""
    call = AskedCall("c1", "bash", {"a\ud83d": ["\ud83d\ude00", "\ude00"]}, "native")
    [asked, _] = wire_messages([Message("assistant", "", calls=(call,))], native=True)
    assert json.loads(asked["tool_calls"][0]["function"]["arguments"]) == {"a\ufffd": ["😀", "\ufffd"]}


OPENINGS = [
    (),
    (SYSTEM,),
    (SYSTEM, USER, Message("assistant", FENCE, (FENCED,)), Message("tool", "a", call="c3"), Message("assistant", "a.")),
]


@given(st.lists(MESSAGES, max_size=6), st.sampled_from(OPENINGS), st.booleans(), st.booleans(), st.booleans())
def test_an_opening_that_was_encoded_before_is_sent_as_if_it_were_new(
    history: list[Message], opening: tuple[Message, ...], native: bool, bridged: bool, bare: bool
) -> None:
    openings = OpeningCache(bare=bare)
    for _ in range(2):
        begun = openings.wired(opening)
        sent = wire_messages(history, native=native, bare=bare, bridged=bridged, before=begun.wired)
        whole = wire_messages([*opening, *history], native=native, bare=bare, bridged=bridged)
        assert json.loads(begun.with_rest(sent)) == whole


def test_an_opening_that_may_change_is_not_kept() -> None:
    openings, opening = OpeningCache(bare=False), [SYSTEM]
    assert openings.wired(opening).json == encoded([said("system", "Be brief.")])
    opening[0] = Message("system", "Be kind.")
    assert openings.wired(opening).json == encoded([said("system", "Be kind.")])
