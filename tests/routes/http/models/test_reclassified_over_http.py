"""Thoughts in hindsight through a whole server: events, replays, history, the final text, hints of servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.deltas import MAX_DELTA
from app.core.provider import ProviderFailed
from app.models.capabilities.prompt_prefill import ONE_WORD, WORD
from app.models.http.client import model_client
from app.models.scripted import Pause, Raise, Reply, Scripted
from app.models.wire.openai.provider import OpenAIChat
from app.redaction.redactor import MARK
from app.transcript.reply_calls import THOUGHT
from tests.support.models.abilities import SLOT, models, said
from tests.support.models.chatting import DONE, LIMIT_S, chunk, says
from tests.support.models.upstream import Act, Paths, stream, upstream
from tests.support.server.events import Event, of_kind
from tests.support.server.histories import messages_of
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio
DRAFT = '<tool_call>\n{"name": "bash", "arguments": {"command": "touch draft"}}\n</tool_call>'
RUN = "```bash\ntouch ran\n```\n"
LOST = Raise(ProviderFailed("model_cut", "The connection was lost.", retryable=True))
TEXTS = ("text.delta", "reasoning.delta", "text.reclassified")


def read(events: Sequence[Event]) -> tuple[str, str]:
    """The text and the reasoning that a client has in the end."""
    text, reasoning = "", ""
    for event in events:
        match event["type"]:
            case "text.delta":
                text += event["text"]
            case "reasoning.delta":
                reasoning += event["text"]
            case "text.reclassified":
                assert 0 < event["characters"] <= len(text)
                text = text[: -event["characters"]]
    return text, reasoning


async def test_events_history_and_the_final_text_agree(tmp_path: Path) -> None:
    provider = Scripted([["They greet", " me 😀.", "</think>", "Hello."], "Again."])
    async with serving(tmp_path, provider) as served:
        events = await served.chat()
        await served.chat("And now?", session=events[0]["session"])
        _, message, _, _ = await messages_of(served, events)
    assert [event["type"] for event in events if event["type"] in TEXTS][-3:] == [*reversed(TEXTS[1:]), "text.delta"]
    assert read(events) == ("Hello.", "They greet me 😀.") == (message["shown"], message["reasoning"])
    assert events[-1]["text"] == "Hello."
    sent = provider.requests[1].messages[1]
    assert (sent.text, sent.shown) == ("They greet me 😀.</think>Hello.", "Hello.")


async def test_who_comes_back_anywhere_in_it_reads_the_same(tmp_path: Path) -> None:
    shown, closed = Pause(asyncio.Event()), Pause(asyncio.Event())
    provider = Scripted([[*"They greet me.", shown, "</think>", closed, "Hello."]])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        turn = served.turn(message="Hello")
        events = [await anext(turn)]
        while read(events)[0] != "They greet me.":
            events.append(await anext(turn))
        run, session = events[0]["run"], events[0]["session"]
        early = (await served.client.get(f"/sessions/{session}/log")).json()["runs"][0]["events"]
        shown.event.set()
        events.append(await until(turn, "text.reclassified"))
        closed.event.set()
        events += [event async for event in turn]
        whole = await served.events(run)
        assert read(whole) == read(events) == ("Hello.", "They greet me.")
        assert read(early) == ("They greet me.", ""), "a page that is loaded before sees the text"
        for event in whole[:-1]:
            later = await served.events(run, event["seq"])
            assert read([*(one for one in whole if one["seq"] <= event["seq"]), *later]) == read(whole)
        log = (await served.client.get(f"/sessions/{session}/log")).json()["runs"][0]["events"]
        assert read(log) == read(whole), "rows are joined in the log"


async def test_a_draft_is_not_run_and_the_call_behind_the_thought_is(tmp_path: Path) -> None:
    provider = Scripted([["I may. ", DRAFT, "</think>I run it.\n", RUN], "Done."])
    async with serving(tmp_path, provider) as served:
        events = await served.chat(tools=["bash"], approval="auto")
        messages = await messages_of(served, events)
    assert (tmp_path / "work/ran").exists() and not (tmp_path / "work/draft").exists()
    assert [(one["reason"], one["name"]) for one in of_kind(events, "tool.rejected")] == [(THOUGHT, "bash")]
    assert (events[-1]["calls"], events[-1]["rounds"], len(messages)) == (1, 2, 4)
    assert [call["arguments"] for call in messages[1]["calls"]] == [{"command": "touch ran"}]


async def test_a_reply_of_nothing_but_a_draft_ends_the_run_like_one_without_words(tmp_path: Path) -> None:
    provider = Scripted([["I may. ", DRAFT, "</think>"], "Hello."])
    async with serving(tmp_path, provider) as served:
        events = await served.chat(tools=["bash"], approval="auto")
    assert not of_kind(events, "tool.started")
    assert (events[-1]["reason"], events[-1]["text"], events[-1]["calls"]) == ("answered", "Hello.", 0)


# replies -> the answer, the reasoning
BROKEN: dict[str, tuple[Sequence[Reply], str, str]] = {
    "behind the thought": ([["Hm.</think>Half an ", LOST], ["answer."]], "Half an answer.", "Hm."),
    "in the thought": ([["They ", LOST], ["greet me.</think>Hello."]], "Hello.", "They greet me."),
    "in the thought, twice": ([["They ", LOST], ["greet ", LOST], ["me.</think>Hello."]], "Hello.", "They greet me."),
    "in both": ([["A", LOST], ["B.</think>Half ", LOST], ["C.</think>an answer."]], "Half an answer.", "AB.C."),
    "twice": ([["A.</think>Half an ", LOST], ["B.</think>answer."]], "Half an answer.", "A.B."),
}


@pytest.mark.parametrize(("replies", "answer", "reasoning"), BROKEN.values(), ids=BROKEN)
async def test_an_answer_that_broke_off_and_went_on(
    tmp_path: Path, replies: Sequence[Reply], answer: str, reasoning: str
) -> None:
    async with serving(tmp_path, Scripted(replies)) as served:
        events = await served.chat()
    assert (events[-1]["reason"], events[-1]["text"]) == ("answered", answer)
    assert read(events) == (answer, reasoning)


async def test_the_answer_is_without_a_draft_of_a_thought_that_broke_off(tmp_path: Path) -> None:
    provider = Scripted([["I may:\n", RUN.replace("ran", "draft"), "or ", LOST], ["not.</think>So:\n", RUN], "Done."])
    async with serving(tmp_path, provider) as served:
        events = await served.chat(tools=["bash"], approval="auto")
    assert [one["arguments"] for one in of_kind(events, "tool.started")] == [{"command": "touch ran"}]
    assert events[-1]["text"] == f"{RUN}\nDone."


async def test_a_secret_in_a_thought_that_broke_off_is_counted_as_its_mark(tmp_path: Path) -> None:
    key = "sk-canary-4711-Zeisig"
    provider = Scripted([["Well. ", f"The key is {key}, ", LOST], ["so.</think>Hello."]])
    async with serving(tmp_path, provider) as served:
        served.services.redactor.add(key)
        events = await served.chat()
    assert read(events) == ("Hello.", f"Well. The key is {MARK}, so.")
    assert events[-1]["text"] == "Hello."


async def test_a_long_thought_is_repeated_in_events_of_bounded_size(tmp_path: Path) -> None:
    thought = "I think. 😀 " * (1 << 16)
    async with serving(tmp_path, Scripted([[thought, "</think>", "Hello."]])) as served:
        events = await served.chat()
    assert read(events) == ("Hello.", thought)
    assert max(len(event.get("text", "")) for event in events) <= MAX_DELTA


async def test_a_document_in_a_thought_ends_with_it(tmp_path: Path) -> None:
    code = "".join(f"line {number}\n" for number in range(40))
    async with serving(
        tmp_path, Scripted([[f"```py\n{code}```\n", "So.</think>", "Hello."]]), documents=True
    ) as served:
        events = await served.chat()
    documents = of_kind(events, "document.updated")
    assert "".join(one["text"] for one in documents) == code and documents[-1]["done"]
    assert read(events)[0] == "Hello."


# --- where the hint comes from ---

THINKS = "<|im_end|>\n<|im_start|>assistant\n<think>\n"
MUSED = stream(says("They greet me.</think>"), says("Hello."), chunk(finish="stop"), DONE)
# what the server shows of its template -> whether the text had to be reclassified
TEMPLATES: dict[str, tuple[dict[str, Act], bool]] = {
    "it opens the thought": ({"/apply-template": said({"prompt": f"<|im_start|>user\n{WORD}{THINKS}"})}, False),
    "it is not shown": ({}, True),
}


@pytest.mark.parametrize(("shown", "hindsight"), TEMPLATES.values(), ids=TEMPLATES)
async def test_a_hosted_server_that_shows_its_template_needs_no_hindsight(
    tmp_path: Path, shown: dict[str, Act], hindsight: bool
) -> None:
    probed = said({"choices": [{"message": {"role": "assistant", "content": WORD}}]})

    async def chats(reader: Any, writer: Any) -> None:
        asked = paths.server.asked[-1].json
        await (probed if ONE_WORD.items() <= asked.items() else MUSED)(reader, writer)

    paths = Paths({"/v1/models": models(), "/props?model=m": SLOT, "/v1/chat/completions": chats} | shown)
    async with asyncio.timeout(LIMIT_S), upstream(paths, repeat=True) as server:
        paths.server = server
        provider = OpenAIChat(model_client(server.base_url), server.base_url, "m")
        async with serving(tmp_path, provider) as served:
            events = await served.chat()
    assert read(events) == ("Hello.", "They greet me.")
    assert bool(of_kind(events, "text.reclassified")) is hindsight
    assert events[-1]["text"] == "Hello."


NOT_TOLD = said({"choices": [{"message": {"role": "assistant", "content": "?"}}]})
PLAIN = stream(says("Four."), chunk(finish="stop"), DONE)


async def test_an_answer_that_ended_an_open_thought_is_a_hint_for_the_next(tmp_path: Path) -> None:
    answers = iter([MUSED, MUSED, PLAIN, PLAIN])

    async def chats(reader: Any, writer: Any) -> None:
        await (NOT_TOLD if ONE_WORD.items() <= paths.server.asked[-1].json.items() else next(answers))(reader, writer)

    paths = Paths({"/v1/models": models(), "/props?model=m": SLOT, "/v1/chat/completions": chats})
    async with asyncio.timeout(LIMIT_S), upstream(paths, repeat=True) as server:
        paths.server = server
        provider = OpenAIChat(model_client(server.base_url), server.base_url, "m")
        async with serving(tmp_path, provider) as served:
            turns = [await served.chat() for _ in range(4)]
    assert [bool(of_kind(events, "text.reclassified")) for events in turns] == [True, False, False, False]
    assert [read(events)[0] for events in turns] == ["Hello.", "Hello.", "Four.", "Four."]
    # The third came without a thought: it is shown all the same, and the hint is gone.
    assert [bool(of_kind(events, "reasoning.delta")) for events in turns] == [True, True, True, False]
