"""A client's messages as they reach the model's server: nothing added, and nothing that a strict server refuses."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.attachments import Attachment
from app.core.clock import Clock
from app.core.messages import AskedCall, Message
from app.core.provider import ModelRequest
from app.models.http.json_body import encode
from app.models.wire.call_ids import takes_nine
from app.models.wire.client_history import EARLIER, MOST_OPEN, joined_replies, settled
from app.models.wire.openai.history import BRIDGE, INTERRUPTED
from app.models.wire.openai.template_limits import TemplateLimit, within_limits
from app.models.wire.openai.verbatim import verbatim_messages
from tests.support.models.chatting import BASH, REFUSED_TOOLS, WHOLE, chat_with, failure_of, pieces_of
from tests.support.models.histories import LS, MESSAGES, READ, TAUGHT
from tests.support.models.upstream import answer, upstream

pytestmark = pytest.mark.anyio

SYSTEM, USER = Message("system", "Be brief."), Message("user", "List the files.", at=0.0)
RESULT = Message("tool", "a.txt", call="call_1", name="bash", untrusted=True)
LATE = Message("system", "It is late.")


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def called(*calls: AskedCall, text: str = "") -> dict[str, Any]:
    return said(
        "assistant",
        text,
        tool_calls=[
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in calls
        ],
    )


def answered(id: str, text: str) -> dict[str, Any]:
    return said("tool", text, tool_call_id=id)


WRITTEN = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
ASKED = said("user", "List the files.")
HISTORY = [SYSTEM, USER, Message("assistant", "I look.", (LS,)), RESULT]
# What the client sends, and what a strict server gets that takes tools.
NATIVE = {
    "a round of calls": (
        HISTORY,
        [said("system", "Be brief."), ASKED, called(LS, text="I look."), answered("call_1", "a.txt")],
    ),
    "several system messages": ([SYSTEM, LATE, USER], [said("system", "Be brief.\n\nIt is late."), ASKED]),
    "a system message in the middle": (
        [SYSTEM, USER, LATE],
        [said("system", "Be brief."), said("user", "List the files.\n\nIt is late.")],
    ),
    "a system message behind a result": (
        [*HISTORY[1:], LATE],
        [ASKED, called(LS, text="I look."), answered("call_1", "a.txt"), said("user", "It is late.")],
    ),
    "several replies": (
        [USER, Message("assistant", "I look."), Message("assistant", "", (LS,)), Message("assistant", "", (READ,))],
        [ASKED, called(LS, READ, text="I look."), answered("call_1", INTERRUPTED), answered("call_2", INTERRUPTED)],
    ),
    "results in another order, behind other messages": (
        [
            USER,
            Message("assistant", "", (LS, READ)),
            Message("user", "Faster!"),
            Message("tool", "hello", call="call_2"),
            RESULT,
        ],
        [ASKED, called(LS, READ), answered("call_1", "a.txt"), answered("call_2", "hello"), said("user", "Faster!")],
    ),
    "a result without a call": ([RESULT], [said("user", "Result of bash:\na.txt")]),
    "a result twice": (
        [*HISTORY[1:], RESULT],
        [ASKED, called(LS, text="I look."), answered("call_1", "a.txt"), said("user", "Result of bash:\na.txt")],
    ),
    "a result without an id": (
        [USER, Message("assistant", "", (LS, READ)), Message("tool", "hello", name="read_file"), Message("tool", "a")],
        [ASKED, called(LS, READ), answered("call_1", "a"), answered("call_2", "hello")],
    ),
    "empty contents": (
        [Message("system", ""), USER, Message("assistant", ""), Message("user", "")],
        [ASKED],
    ),
    "an empty result": (
        [USER, Message("assistant", "", (LS,)), replace(RESULT, text="")],
        [ASKED, called(LS), answered("call_1", "")],
    ),
    "the beginning of an answer": ([USER, Message("assistant", "The")], [ASKED, said("assistant", "The")]),
    "an attachment that was not read": (
        [Message("user", "Look.", attachments=(Attachment("11" * 32, "image/png", 3, "cat.png"),))],
        [said("user", "[picture cat.png, image/png]\nLook.")],
    ),
}


@pytest.mark.parametrize("case", NATIVE)
def test_a_history_is_sent_as_it_is(case: str) -> None:
    history, sent = NATIVE[case]
    assert verbatim_messages([], history, native=True) == sent


def test_ids_that_come_twice_belong_to_the_calls_around_them() -> None:
    """Some servers number the calls of each reply."""
    turn = [USER, Message("assistant", "", (LS,)), RESULT]
    later = [USER, Message("assistant", "", (LS,)), replace(RESULT, text="b.txt")]
    sent = verbatim_messages([], [*turn, *later], native=True)
    ids = [message["tool_calls"][0]["id"] for message in sent if "tool_calls" in message]
    assert len({*ids}) == 2
    assert [message for message in sent if message["role"] == "tool"] == [
        answered(ids[0], "a.txt"),
        answered(ids[1], "b.txt"),
    ]
    assert verbatim_messages([], turn, native=True) == sent[:3]  # the prefix stays, for the server's cache


def test_two_calls_of_a_reply_with_one_id_get_their_results_in_order() -> None:
    history = [Message("assistant", "", (LS, replace(READ, id=LS.id))), RESULT, replace(RESULT, text="hello")]
    sent = verbatim_messages([], history, native=True)
    assert [message["content"] for message in sent[1:]] == ["a.txt", "hello"]


def test_a_server_that_takes_no_tools_gets_text() -> None:
    assert verbatim_messages([TAUGHT], HISTORY, native=False) == [
        said("system", "Be brief.\n\nTools: bash."),
        ASKED,
        said("assistant", f"I look.\n{WRITTEN}"),
        said("user", "Result of bash:\na.txt"),
    ]


def test_calls_that_the_model_wrote_in_its_text_stay_there() -> None:
    """A relay that asks once more sends the model its own words."""
    hermes = replace(LS, id="c2", dialect="hermes")
    history = [USER, Message("assistant", WRITTEN, (hermes,)), Message("tool", "It fits.", call="c2", name="bash")]
    words = [ASKED, said("assistant", WRITTEN), said("user", "Result of bash:\nIt fits.")]
    assert verbatim_messages([], history, native=True) == verbatim_messages([], history, native=False) == words
    both = [USER, Message("assistant", WRITTEN, (hermes, LS)), history[2], RESULT]
    assert verbatim_messages([], both, native=True)[1:] == [
        called(LS, text=WRITTEN),
        answered("call_1", "a.txt"),
        said("user", "Result of bash:\nIt fits."),
    ]


def test_a_model_that_is_taught_blocks_of_code_sees_its_calls_as_such() -> None:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    sent = verbatim_messages([], HISTORY, native=False, fenced={"bash": schema})
    assert sent[2] == said("assistant", "I look.\n```bash\nls\n```")
    other = [Message("assistant", "", (READ,))]
    (wired, _) = verbatim_messages([], other, native=False, fenced={})
    assert wired == said("assistant", '```read_file\n{"path": "a"}\n```')


def test_openai_gets_all_messages_as_they_are() -> None:
    history = [SYSTEM, LATE, USER, USER, LATE, Message("assistant", ""), Message("assistant", "Yes.")]
    assert verbatim_messages([], history, native=True, as_sent=True) == [
        said("system", "Be brief."),
        said("system", "It is late."),
        *([ASKED] * 2),
        said("system", "It is late."),
        said("assistant", "Yes."),
    ]


def test_mistral_gets_ids_and_an_order_that_it_takes() -> None:
    sent = verbatim_messages([], [*HISTORY, LATE], native=True, mistral=True)
    (call,) = sent[2]["tool_calls"]
    assert takes_nine(call["id"])
    assert sent[3:] == [answered(call["id"], "a.txt"), said("assistant", BRIDGE), said("user", "It is late.")]
    kept = replace(LS, id="c12345678")
    assert settled([Message("assistant", "", (kept,))], takes_nine)[0].calls == (kept,)


def test_files_of_a_result_follow_it() -> None:
    png = Attachment("11" * 32, "image/png", 3, "cat.png")
    history = [Message("assistant", "", (LS, READ)), replace(RESULT, attachments=(png,)), Message("user", "And?")]
    sent = verbatim_messages([], history, native=True, files={png.sha256: "AAAA"})
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user"]
    assert [part["type"] for part in sent[-1]["content"]] == ["image_url", "text"]


def test_replies_in_a_row_are_one() -> None:
    one = Message("assistant", "", reasoning="I muse.")
    (joined,) = joined_replies([one, Message("assistant", "Hi."), Message("assistant", "", (LS,), reasoning="More.")])
    assert (joined.text, joined.reasoning, joined.calls) == ("Hi.", "I muse.\n\nMore.", (LS,))


def test_results_without_ids_are_of_the_calls_that_wait() -> None:
    """Each takes the first open one of its name, and none is looked for among thousands."""
    calls = (LS, replace(READ, id="r1"), replace(LS, id="c2"))
    results = [Message("tool", text, name=name) for text, name in (("1", LS.name), ("2", LS.name), ("3", None))]
    sent = settled([Message("assistant", "", calls), *results])
    assert [(message.call, message.text) for message in sent[1:]] == [(LS.id, "1"), ("r1", "3"), ("c2", "2")]
    many = tuple(replace(LS, id=f"c{number}") for number in range(MOST_OPEN + 1))
    late = settled([Message("assistant", "", (*many, READ)), Message("tool", "late", name=READ.name)])
    assert late[-1] == Message("tool", "late", name=READ.name)


@given(st.lists(MESSAGES, max_size=12), st.booleans(), st.booleans())
def test_any_history_becomes_one_that_strict_servers_take(history: list[Message], native: bool, mistral: bool) -> None:
    sent = verbatim_messages([TAUGHT], history, native=native, mistral=mistral)
    json.loads(encode({"messages": sent}))
    assert "system" not in [message["role"] for message in sent[1:]]
    for earlier, later in pairwise(sent):
        assert earlier["role"] != later["role"] or later["role"] == "tool"
        assert not mistral or (earlier["role"], later["role"]) != ("tool", "user")
    assert native or not any(message["role"] == "tool" for message in sent)
    ids = [call["id"] for message in sent for call in message.get("tool_calls", [])]
    assert len(ids) == len({*ids}) and all(takes_nine(id) if mistral else 0 < len(id) <= 64 for id in ids)
    answers = []
    for at, message in enumerate(sent):
        calls = message.get("tool_calls", [])
        answers += [one.get("tool_call_id") for one in sent[at + 1 : at + 1 + len(calls)]]
        assert message["role"] != "assistant" or message["content"] or calls
    assert answers == ids == [message["tool_call_id"] for message in sent if message["role"] == "tool"]


def opening() -> list[Message]:
    return [TAUGHT]


RELAYED = ModelRequest(HISTORY, [BASH], opening=opening, verbatim=True)


async def test_a_relayed_request_has_the_client_s_words_alone() -> None:
    async with upstream(WHOLE) as server, chat_with(server, clock=Clock("UTC")) as chat:
        await pieces_of(chat, RELAYED)
    body = server.asked[0].json
    assert body["messages"] == NATIVE["a round of calls"][1]
    assert body.keys() == {"model", "messages", "stream", "stream_options", "tools"}


async def test_tools_are_taught_only_where_the_server_refuses_them() -> None:
    async with upstream(answer(REFUSED_TOOLS, 400), WHOLE) as server, chat_with(server) as chat:
        await pieces_of(chat, RELAYED)
    first, second = (asked.json for asked in server.asked)
    assert first["messages"][0] == said("system", "Be brief.")
    assert second["messages"] == verbatim_messages([TAUGHT], HISTORY, native=False)
    assert "tools" not in second


async def test_calls_stay_native_in_a_request_without_tools() -> None:
    """A client asks for a title, and sends the conversation."""
    async with upstream(WHOLE) as server, chat_with(server) as chat:
        await pieces_of(chat, replace(RELAYED, tools=()))
    assert server.asked[0].json["messages"][1:] == NATIVE["a round of calls"][1][1:]


async def test_deepseek_gets_back_the_reasoning_that_the_client_kept() -> None:
    history = [USER, Message("assistant", "", (LS,), reasoning="I muse."), RESULT]
    async with upstream(WHOLE) as server, chat_with(server, model="deepseek-chat") as chat:
        await pieces_of(chat, replace(RELAYED, messages=history))
    assert server.asked[0].json["messages"][1]["reasoning_content"] == "I muse."


LOST = {
    "DeepSeek": (
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "deepseek-chat",
        {"reasoning_content": ""},
        {},
    ),
    "another host of such a model": (
        "Missing `reasoning_content` field in the assistant message at message index 1.",
        "m",
        {"reasoning_content": " "},
        {},
    ),
    "Gemini": (
        "Function call is missing a thought_signature in functionCall parts.",
        "gemini-3-pro",
        {},
        {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}},
    ),
}


@pytest.mark.parametrize("case", LOST)
async def test_what_a_client_does_not_send_back_is_made_up_for_once_the_server_misses_it(case: str) -> None:
    words, model, of_message, of_call = LOST[case]
    refused = answer(json.dumps({"error": {"message": words, "param": None}}), 400)
    history = [USER, Message("assistant", "", (LS, READ)), RESULT]
    async with upstream(refused, WHOLE, WHOLE) as server, chat_with(server, model=model) as chat:
        for _ in range(2):
            await pieces_of(chat, replace(RELAYED, messages=history))
        assert chat.native_tools
    first, second, third = (asked.json["messages"] for asked in server.asked)
    assert first[1] == called(LS, READ) and second == third
    calls = called(LS, READ)["tool_calls"]
    assert second[1] == said("assistant", "", tool_calls=[calls[0] | of_call, calls[1]], **of_message)


async def test_a_server_that_goes_on_missing_something_fails() -> None:
    refused = answer("reasoning_content is missing", 400)
    async with upstream(*[refused] * 3) as server, chat_with(server) as chat:
        _, failure = await failure_of(chat, RELAYED)
    assert "reasoning_content" in failure.message
    assert len(server.asked) == 3  # with a blank, and without tools


GREETED = [SYSTEM, Message("assistant", "Hello!"), USER]
TEMPLATES = {
    "Gemma, of the order": (
        "Conversation roles must alternate user/assistant/user/assistant/...",
        GREETED,
        [said("system", "Be brief."), said("user", EARLIER), said("assistant", "Hello!"), ASKED],
    ),
    "Gemma, of the system message": (
        "System role not supported",
        [SYSTEM, USER],
        [said("user", "Be brief.\n\nList the files.")],
    ),
    "Qwen": ("No user query found in messages.", [SYSTEM], [said("system", "Be brief."), said("user", EARLIER)]),
}


@pytest.mark.parametrize("case", TEMPLATES)
@pytest.mark.parametrize("status", [400, 500])
async def test_what_a_template_refuses_is_sent_in_another_way_from_then_on(case: str, status: int) -> None:
    words, history, sent = TEMPLATES[case]
    refused = answer(json.dumps({"error": {"message": f"Jinja Exception: {words}"}}), status)
    async with upstream(refused, WHOLE, WHOLE) as server, chat_with(server) as chat:
        for _ in range(2):
            await pieces_of(chat, replace(RELAYED, messages=history))
        assert chat.native_tools
    assert [asked.json["messages"] for asked in server.asked][1:] == [sent, sent]


@given(st.lists(MESSAGES, max_size=8), st.sets(st.sampled_from(TemplateLimit)))
def test_any_history_keeps_the_limits_of_a_template(history: list[Message], limits: set[TemplateLimit]) -> None:
    sent = within_limits(verbatim_messages([], history, native=True), limits)
    roles = [message["role"] for message in sent if message["role"] != "tool"]
    assert TemplateLimit.NO_SYSTEM not in limits or "system" not in roles
    turns = [role for role in roles if role != "system"]
    assert TemplateLimit.USER_FIRST not in limits or not roles or turns[0] == "user"
