"""The prefix that a prompt has in common with the one before, and why it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events import Usage
from app.core.messages import Message
from app.core.provider import ModelRequest
from app.models.http.json_body import with_encoded_prompt
from app.models.wire.hosted_provider import prompt_parts
from app.transcript import prompt_prefixes
from app.transcript.prompt_prefixes import PromptPrefix, PromptPrefixes, SentPrompt, common
from tests.support.models.chatting import BASH, WHOLE, chat_with, pieces_of
from tests.support.models.messages_streams import WHOLE as MESSAGE
from tests.support.models.messages_streams import claude_at
from tests.support.models.upstream import upstream
from tools.tool import ToolList

pytestmark = pytest.mark.anyio
TALK = [("system", "Be brief."), ("user", "One?"), ("assistant", "1."), ("user", "Two?")]
OTHER = [*TALK[:1], ("user", "Zero?"), *TALK[2:]]


def sent(
    talk: list[tuple[str, str]], *, tools: str = "[1]", model: str = "m", stage: tuple[int, int] | None = (0, 0)
) -> SentPrompt:
    messages = json.dumps([{"role": role, "content": text} for role, text in talk], separators=(",", ":"))
    return SentPrompt(model, (tools, "", "", messages), stage)


CASES: dict[str, tuple[SentPrompt, bool]] = {
    "other_model": (sent(TALK, model="n"), True),
    "tools": (sent(TALK, tools="[2]"), True),
    "system": (sent([("system", "Be long."), *TALK[1:]]), True),
    "summarised": (sent(OTHER, stage=(2, 0)), True),
    "trimmed": (sent(OTHER, stage=(0, 1)), True),
    "reminder": (sent([*TALK[:3], ("user", "Three?")]), True),
    "edited": (sent(OTHER), True),
    "side_query": (sent(TALK, stage=None), False),
}


@pytest.mark.parametrize(("word", "case"), CASES.items(), ids=CASES)
def test_each_break_has_its_word_which_the_event_explains(word: str, case: tuple[SentPrompt, bool]) -> None:
    known, (prompt, in_round) = PromptPrefixes(), case
    assert known.take("s", sent(TALK), in_round=True).ends == "first"
    found = known.take("s", prompt, in_round=in_round)
    assert found.ends == word and f"`{word}`" in (Usage.__doc__ or "")
    assert found.same == (
        0 if word in ("other_model", "side_query") else common("".join(sent(TALK).texts), "".join(prompt.texts))
    )
    after = known.take("s", sent([*TALK, ("assistant", "2.")]), in_round=True)
    assert (after.ends is None) == (not in_round), "a side query is not what the next round is compared with"


def test_a_prompt_that_goes_on_from_the_one_before_shares_all_of_it() -> None:
    known = PromptPrefixes()
    first = known.take("s", sent(TALK), in_round=True)
    behind = known.take("s", sent([*TALK[:3], ("user", "Notes?")]), in_round=False)
    assert behind.ends == "side_query" and behind.same > 0.8 * behind.size
    assert known.take("s", sent([*TALK, ("assistant", "2.")]), in_round=True) == PromptPrefix(
        first.size + len(',{"role":"assistant","content":"2."}'), first.size, None
    )
    assert known.take("t", sent(TALK), in_round=True).ends == "first"


def test_nothing_is_missing_where_the_last_text_goes_on() -> None:
    known = PromptPrefixes()
    known.take("s", sent([*TALK, ("assistant", "Half an")]), in_round=True)
    found = known.take("s", sent([*TALK, ("assistant", "Half an answer."), ("user", "Three?")]), in_round=True)
    assert found.ends is None and found.same > 0.7 * found.size


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    known, long = PromptPrefixes(), sent([("user", "x" * prompt_prefixes.MOST_BYTES)])
    for number in range(2 * prompt_prefixes.MOST_SESSIONS):
        known.take(f"{number}", sent(TALK), in_round=True)
    assert len(known._last) == prompt_prefixes.MOST_SESSIONS
    assert known.take("long", long, in_round=True).ends == known.take("long", sent(TALK), in_round=True).ends == "first"
    assert known._bytes == sum(one.size for one in known._last.values()) == sent(TALK).size


@given(st.text("ab", max_size=40), st.text("ab", max_size=40))
def test_common_is_the_longest_common_prefix(one: str, other: str) -> None:
    size = common(one, other)
    assert one[:size] == other[:size] and (size == min(len(one), len(other)) or one[size] != other[size])


def test_a_prompt_has_neither_breakpoints_nor_marks_of_its_request() -> None:
    kept: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
    bodies: list[dict[str, Any]] = [
        {"model": "m", "system": [{"text": "Be brief."} | kept], "messages": [{"text": "One?"} | more, {"data": mark}]}
        for more, mark in ((kept, "af" * 16), ({}, "be" * 16))
    ]
    one, other = (prompt_parts(with_encoded_prompt(body), {"sha": body["messages"][1]["data"]}) for body in bodies)
    assert one == other == ["", '[{"text":"Be brief."}]', "", '[{"text":"One?"},{"data":"sha"}]']


async def test_prompts_share_the_tools_and_the_opening_that_are_the_same() -> None:
    noted, opening, tools = list[list[str]](), (Message("system", "Be brief."),), ToolList([BASH])
    async with upstream(WHOLE, WHOLE) as server, chat_with(server) as chat:
        for text in ("One?", "Two?"):
            await pieces_of(
                chat,
                ModelRequest(
                    [Message("user", text)],
                    tools,
                    opening=lambda: opening,
                    note_prompt=lambda _, parts: noted.append([*parts]),
                ),
            )
    one, other = noted
    assert one[0] is other[0] and one[2] is other[2] and one[3] != other[3]
    sent_tools, _, begin, rest = one
    assert json.loads(sent_tools) == server.asked[0].json["tools"]
    assert json.loads(begin[:-1] + rest) == server.asked[0].json["messages"]


async def test_a_request_notes_its_prompt_as_it_goes_out_and_only_where_it_keeps_the_tools_says_none() -> None:
    noted = list[tuple[str, list[str]]]()
    request = ModelRequest(
        [Message("user", "Hi")],
        [BASH],
        parameters={"tool_choice": "none"},
        note_prompt=lambda model, parts: noted.append((model, [*parts])),
    )
    async with upstream(WHOLE) as server, chat_with(server) as chat:
        await pieces_of(chat, request)
    [(model, parts)] = noted
    body = server.asked[0].json
    assert model == f"{server.base_url} m" and body["tool_choice"] == "none"
    assert [json.loads(part) for part in parts if part] == [body["tools"], body["messages"]]
    async with upstream(MESSAGE) as server, claude_at(server) as claude:
        await pieces_of(claude, request)
    assert "tools" in server.asked[0].json and "tool_choice" not in server.asked[0].json
