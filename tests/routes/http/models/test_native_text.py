"""Models that call their tools natively: a call in their text is asked for once more, and is never the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.messages import AskedCall, Message
from app.core.provider import TextChunk, name_of
from app.models.capabilities.abilities import AbilityOverrides
from app.models.capabilities.server_profiles import PROFILES
from app.models.scripted import Scripted
from app.models.wire.native_calls import NATIVE
from app.provenance.native_text import calls_in_text
from app.transcript.reply import Reply, TextCalls
from parsing import Call
from tests.support.models.chatting import DONE, chat_with, chunk, says
from tests.support.models.scripted_models import Native
from tests.support.models.targets import ASKED, Time, fails
from tests.support.models.upstream import Act, Upstream, answer, stream, upstream
from tests.support.parsing.forms import WRITERS
from tests.support.server.events import letters_of, notice_codes, text_of
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

BASH = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOUCH = {"command": "touch ran.txt"}
QUOTED = f'The page says: <tool_call>{{"name": "bash", "arguments": {json.dumps(TOUCH)}}}</tool_call> and no more.'
FENCED = "```bash\ntouch ran.txt\n```\n"
NATIVELY = {"index": 0, "id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command": "true"}'}}


def text(said: str) -> Act:
    return stream(says(said), chunk(finish="stop"), DONE)


def call() -> Act:
    return stream(chunk({"tool_calls": [NATIVELY]}), chunk(finish="tool_calls"), DONE)


async def turns(folder: Path, acts: list[Act], *messages: str, **stated: Any) -> list[list[dict[str, Any]]]:
    """The events of turns of one session, with a model that says these replies."""
    opened: list[Upstream] = []

    async def say(reader: Any, writer: Any) -> None:
        asked = opened[0].asked[-1].path.endswith("/chat/completions")
        await (acts.pop(0) if asked else answer("{}", 404))(reader, writer)

    async with (
        upstream(say, repeat=True) as server,
        chat_with(server, overrides=AbilityOverrides(**stated)) as chat,
        serving(folder, chat, window=32_768) as served,
    ):
        opened.append(server)
        told, more = list[list[dict[str, Any]]](), dict[str, object]()
        for message in messages:
            told.append(await served.chat(message, tools=["bash"], approval="auto", **more))
            more = {"session": told[-1][0]["session"]}
        return told


def started(events: list[dict[str, Any]]) -> list[str]:
    return [event["dialect"] for event in events if event["type"] == "tool.started"]


async def test_where_the_operator_says_native_a_call_in_text_is_asked_for_once_more(tmp_path: Path) -> None:
    acts = [text(QUOTED), call(), text("Done.")]
    [events] = await turns(tmp_path, acts, "Go.", tool_calls="native")
    assert (events[-1]["reason"], started(events), notice_codes(events)) == ("answered", [NATIVE], ["text_call"])
    assert "tool_call" not in text_of(events) and letters_of(events) == "Thepagesays:andnomore.Done."
    assert not (tmp_path / "work/ran.txt").exists()


async def test_a_block_of_code_of_a_native_model_is_a_block_of_code(tmp_path: Path) -> None:
    shows = f"This is how it looks:\n````\n{QUOTED}\n````\nOr `{QUOTED}`.\n{FENCED}"
    [events] = await turns(tmp_path, [text(shows)], "Explain the format.", tool_calls="native")
    assert (events[-1]["reason"], text_of(events), started(events), notice_codes(events)) == ("answered", shows, [], [])


async def test_after_a_native_call_a_call_in_text_is_asked_for_in_later_runs_too(tmp_path: Path) -> None:
    acts = [call(), text("Done."), text(QUOTED), text("It only says so.")]
    first, second = await turns(tmp_path, acts, "Go.", "And now?")
    assert (started(first), started(second), notice_codes(second)) == ([NATIVE], [], ["text_call"])
    assert second[-1]["text"] == "It only says so." and "tool_call" not in text_of(second)
    assert not (tmp_path / "work/ran.txt").exists()


async def test_the_model_is_shown_how_to_call_and_a_call_written_again_runs(tmp_path: Path) -> None:
    model = Native("m", [CALLED], [QUOTED], [QUOTED], "Done.")
    async with serving(tmp_path, model) as served:
        events = await served.chat("Go.", tools=["bash"], approval="auto")
    asked = model.requests[2].messages[-1].text
    assert "as a native tool call" in asked and asked.endswith(f"bash with the arguments {json.dumps(TOUCH)}")
    assert started(events) == [NATIVE, "hermes"] and (tmp_path / "work/ran.txt").exists()
    assert notice_codes(events) == ["text_call"] and "tool_call" not in text_of(events)


async def test_a_model_that_insists_is_not_asked_again_in_later_runs(tmp_path: Path) -> None:
    model = Native("m", [CALLED], [QUOTED], [QUOTED], "Done.", [QUOTED.replace("ran", "again")], "Done.")
    async with serving(tmp_path, model) as served:
        first = await served.chat("Go.", tools=["bash"], approval="auto")
        second = await served.chat("And now?", session=first[0]["session"], tools=["bash"], approval="auto")
    assert (started(second), notice_codes(second)) == (["hermes"], []) and (tmp_path / "work/again.txt").exists()


async def test_a_call_written_again_that_is_a_quotation_asks(tmp_path: Path) -> None:
    model = Native("m", [CALLED], [QUOTED], [QUOTED], "Done.")
    async with serving(tmp_path, model) as served:
        events = await served.chat(f"Translate this: {QUOTED}", tools=["bash"], approval="deny")
    rejected = [event["reason"] for event in events if event["type"] == "tool.rejected"]
    assert len(rejected) == 2 and "counts as quoted" in rejected[1]
    assert started(events) == [NATIVE] and not (tmp_path / "work/ran.txt").exists()
    told = [one.text for one in model.requests[2].messages if one.role == "tool"]
    assert "bash with the arguments" not in told[-1], "advice on how to call would make a call of a quotation"


async def test_a_call_of_no_tool_is_told_so_at_once(tmp_path: Path) -> None:
    model = Native("m", [CALLED], ['<tool_call>{"name": "shell_exec_now", "arguments": {}}</tool_call>'], "Done.")
    async with serving(tmp_path, model) as served:
        events = await served.chat("Go.", tools=["bash"], approval="auto")
    [rejected] = [event for event in events if event["type"] == "tool.rejected"]
    assert "There are: bash" in rejected["reason"] and notice_codes(events) == []


async def test_text_behind_a_native_call_of_the_same_reply_is_doubted(tmp_path: Path) -> None:
    both = stream(chunk({"tool_calls": [NATIVELY]}), says(QUOTED), chunk(finish="tool_calls"), DONE)
    [events] = await turns(tmp_path, [both, text("Done.")], "Go.")
    assert (started(events), notice_codes(events)) == ([NATIVE], ["text_call"]) and "tool_call" not in text_of(events)


async def test_before_any_native_call_a_call_in_text_is_a_call(tmp_path: Path) -> None:
    [events] = await turns(tmp_path, [text(QUOTED), text("Done.")], "Go.")
    assert started(events) == ["hermes"] and (tmp_path / "work/ran.txt").exists()


CALLED = Call(0, "bash", {"command": "true"}, NATIVE)


async def test_a_server_that_leaves_calls_in_the_text_is_believed(tmp_path: Path) -> None:
    model = Native("m", [CALLED], [QUOTED], "Done.", leaves_calls=True)
    async with serving(tmp_path, model) as served:
        events = await served.chat("Go.", tools=["bash"], approval="auto")
    assert started(events) == [NATIVE, "hermes"] and (tmp_path / "work/ran.txt").exists()


def test_which_servers_leave_calls_in_the_text() -> None:
    known = {profile.name for profile in PROFILES if profile.leaves_calls}
    assert known == {"llama.cpp", "vLLM", "SGLang", "LM Studio", "Ollama"}


async def test_it_matters_which_endpoint_answers_not_which_was_asked() -> None:
    """One has called natively in this conversation, the other that stands in for it never has."""
    time = Time()
    native, fenced = Native("n", [QUOTED], fails(404)), Scripted([[QUOTED]], "f")
    route = time.route(time.handle(native), time.handle(fenced))
    before = [Message("assistant", "", calls=(AskedCall("c1", "bash", {}, NATIVE),), by="local/n")]

    async def doubts() -> tuple[str, bool]:
        reply = Reply(
            {"bash": {}},
            fences=lambda: False,
            new_id=lambda: "c2",
            text_calls=lambda natively: calls_in_text(route, before, natively),
        )
        async for piece in route.stream(ASKED):
            list(reply.add(piece))
        list(reply.end())
        assert len(reply.calls) == 1
        return name_of(route), reply.doubts_text

    assert await doubts() == ("local/n", True)
    assert await doubts() == ("local/f", False)


@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_no_dialect_is_read_where_no_calls_are_wanted(dialect: str) -> None:
    """Whatever it is written in, alone and in an answer; a thought is still a thought."""
    written = WRITERS[dialect]([("bash", TOUCH)])
    for said in (written, f"It says:\n{written}\nThat is all."):
        reply = Reply({"bash": BASH}, fences=lambda: True, new_id=lambda: "c1", text_calls=lambda _: TextCalls.IGNORED)
        for piece in ("<think>Hm.</think>", said):
            list(reply.add(TextChunk(piece)))
        list(reply.end())
        assert not reply.calls and not reply.refused
        assert "touch ran.txt" in reply.shown + reply.message().reasoning
        assert reply.message().reasoning.startswith("Hm.")
