"""Answers without end: cut at a bound, whatever they are made of; the process stays small, and its history whole."""

from __future__ import annotations

import asyncio
import json
import re
from asyncio import StreamReader, StreamWriter
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import Finished, Piece, ProviderNotice, TextChunk
from app.models.endpoints.answer_limit import AnswerLimit
from app.models.wire.native_calls import NATIVE
from app.transcript.reply import MOST_BEGINNINGS
from parsing import BadCall, Call, CallDelta, CallOpened, Thought
from tests.support.models.chatting import DONE, WHOLE, chunk, says
from tests.support.models.upstream import Act, stream, upstream
from tests.support.nightly import at_night
from tests.support.sandbox.processes import endless
from tests.support.server.dragoman_process import server
from tests.support.server.serving import events_of, serving

pytestmark = pytest.mark.anyio
MOST = 100_000
ENDLESS_BYTES = 268_000_000  # more than is ever read, so the server hangs up first
MOST_GROWTH = 120 * 1024  # KiB of memory; it was gigabytes
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
WORDS = "word " * 4000
CALLED = '\n<tool_call>{"name": "list_files", "arguments": {}}</tool_call>'
# Of 100 bytes a chunk a million come until the bound on bytes, which takes 20 s: that is for the night.
FILLED: dict[str, Any] = at_night({}, {"filler": "x" * 4000})


def native(arguments: str, index: int = 0, id: str = "c1", **more: object) -> str:
    return chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments, **more}, "id": id}]})


def unbounded(first: str, again: str, body: bytes = HEAD) -> Act:
    """An answer that goes on for as long as somebody reads it."""
    block = again.encode()

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(body + first.encode())
        for _ in range(ENDLESS_BYTES // len(block)):
            writer.write(block)
            await writer.drain()  # raises when nobody reads any more, which ends it

    return act


ANSWERS = {
    "text": unbounded("", says(WORDS)),
    "thoughts": unbounded("", chunk({"reasoning_content": WORDS})),
    "arguments": unbounded(native('{"command": "', name="bash"), native(WORDS)),
    "a call in the text": unbounded(says("So:\n```bash\n"), says(WORDS)),
    "a name again and again": unbounded(native('{"', name="bash"), native("", name="bash", **FILLED) * 100),
}
# Of these nothing can be used: no word of them is whole.
UNUSABLE = {
    "one line": unbounded('data: {"choices":[{"delta":{"content":"', WORDS),
    "one body": unbounded('{"choices":[{"message":{"content":"', WORDS, HEAD.replace(b"event-stream", b"plain")),
    "a call without a name": unbounded("", native(WORDS)),
    "a name": unbounded("", native("", name=WORDS) + native("", name=WORDS.upper())),
    "chunks of nothing": unbounded("", chunk({"tool_calls": [], **FILLED}) * 100),
}


async def memory(pid: int) -> int:
    """The most that the process has had in memory, in KiB."""
    status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
    found = re.search(r"VmHWM:\s+(\d+)", status)
    assert found
    return int(found[1])


@pytest.mark.parametrize("kind", [*ANSWERS, *UNUSABLE])
async def test_an_answer_of_268_mb_is_cut_and_costs_no_memory(kind: str, tmp_path: Path) -> None:
    await asyncio.to_thread((tmp_path / "work").mkdir)
    acts = [WHOLE, (ANSWERS | UNUSABLE)[kind], WHOLE, WHOLE]
    limit = ("--max-answer-characters", str(MOST))
    async with asyncio.timeout(120), upstream(*acts, chats=True) as model:
        async with server(tmp_path, model.base_url, *limit) as (client, process):

            async def turn(session: str | None = None) -> list[dict[str, Any]]:
                body = {"message": "Go", **({"session": session} if session else {})}
                async with client.stream("POST", "/chat", json=body) as response:
                    async with aclosing(events_of(response)) as events:
                        return [event async for event in events]

            session = (await turn())[0]["session"]
            before = await memory(process.pid)
            events = await turn(session)
            assert await memory(process.pid) - before < MOST_GROWTH
            if kind in UNUSABLE:
                assert (events[-1]["type"], events[-1]["code"]) == ("run.failed", "model_too_long")
            else:
                [notice] = [event for event in events if event["type"] == "notice" and event["code"] == "cut"]
                assert f"{MOST:,} characters" in notice["message"]
                assert events[-1]["type"] == "run.finished"
                told = ("text.delta", "reasoning.delta", "tool.delta")
                twice = 2 * MOST  # a call that is cut is shown as the text that it was
                assert sum(len(event["text"]) for event in events if event["type"] in told) <= twice + 1000
            assert not [event for event in events if event["type"] == "tool.started"]
            assert (await turn(session))[-1]["text"] == "Hi", "the session goes on, and so does the server"


@pytest.mark.parametrize("size", [65, 6500])
async def test_an_answer_that_begins_calls_without_end_is_cut(size: int, tmp_path: Path) -> None:
    text = "<tool_call>x " * 2 * MOST_BEGINNINGS
    pieces = [says(text[at : at + size]) for at in range(0, len(text), size)]
    acts = [stream(*pieces, says(CALLED), chunk(finish="stop"), DONE), *[WHOLE] * 12]  # a summary asks as well
    async with asyncio.timeout(60), upstream(*acts, chats=True) as model:
        async with serving(tmp_path, None, None, model_url=model.base_url, model="m") as served:
            events = await served.chat("Go")
            [notice] = [event["message"] for event in events if event["type"] == "notice" and event["code"] == "cut"]
            assert f"more than {MOST_BEGINNINGS:,} times" in notice
            assert not [event for event in events if event["type"] == "tool.started"], "nothing behind it is read"
            assert events[-1]["type"] == "run.finished"
            shown = "".join(event["text"] for event in events if event["type"] == "text.delta")
            assert len(text) * 0.49 < len(shown) < len(text) * 0.51 + 4096
            again = await served.chat("Go on", session=events[0]["session"])
            assert again[-1]["text"] == "Hi"


async def test_a_call_that_was_being_written_is_answered_and_not_run(tmp_path: Path) -> None:
    sleeper = endless()
    acts = [
        stream(
            native("{}", name="list_files"),
            native('{"command": "', index=1, id="c2", name="bash"),
            native(f"{sleeper}\\n" * 200 + '"}', index=1, id="c2"),
            chunk(finish="tool_calls"),
            DONE,
        ),
        stream(says("I see."), chunk(finish="stop"), DONE),
    ]
    async with asyncio.timeout(60), upstream(*acts, chats=True) as model:
        flags = {"model_url": model.base_url, "model": "m", "max_answer_characters": "1000", "tool_calls": "native"}
        async with serving(tmp_path, None, None, **flags) as served:
            events = await served.chat("Go")
            assert not [event for event in events if event["type"] == "tool.started"]
            rejected = [event["reason"] for event in events if event["type"] == "tool.rejected"]
            assert len(rejected) == 2 and all("nothing was run" in reason for reason in rejected)
            assert (events[-1]["reason"], events[-1]["text"]) == ("answered", "I see.")
    sent = json.loads(model.asked[-1].body)["messages"]
    asked = [call["id"] for message in sent for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert len(asked) == 2 and asked == answered, "each call has its answer"


def test_what_fits_and_what_does_not() -> None:
    whole: list[Piece] = [
        TextChunk("12345"),
        Thought("123"),
        CallOpened(0, "bash"),
        CallDelta(0, "{}"),
        Finished("stop"),
    ]
    limit = AnswerLimit(14)
    assert not any(limit.cut(piece) for piece in whole), "exactly so long is not too long"
    limit = AnswerLimit(13)
    *before, opened, delta = whole[:4]
    assert not any(limit.cut(piece) for piece in (*before, opened))
    cut, call, told, stopped = limit.cut(delta)
    assert (cut, stopped) == (CallDelta(0, "{"), Finished("too_long"))
    assert (
        isinstance(call, BadCall) and "bash" in call.reason and isinstance(told, ProviderNotice) and told.code == "cut"
    )


def test_a_whole_call_is_not_cut() -> None:
    limit = AnswerLimit(8)
    for piece in (CallOpened(0, "bash"), CallDelta(0, "{}"), Call(0, "bash", {}, NATIVE)):
        assert not limit.cut(piece)
    assert [type(piece) for piece in limit.cut(TextChunk("12345"))] == [TextChunk, ProviderNotice, Finished]


def test_names_are_counted_too() -> None:
    limit = AnswerLimit(600)
    assert not limit.cut(CallOpened(0, "x" * 256)) and not limit.cut(CallOpened(1, "x" * 256))
    opened, first, second, third, _, stopped = limit.cut(CallOpened(2, "x" * 256))
    assert isinstance(opened, CallOpened) and stopped == Finished("too_long")
    assert [piece.index for piece in (first, second, third) if isinstance(piece, BadCall)] == [0, 1, 2]
