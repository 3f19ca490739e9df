"""Text that a run handles in the callback that reads it: the same events in the same order as through the generator."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.core.events import AgentEvent, Delta, fields_of
from app.core.messages import Message
from app.redaction.redactor import Redactor
from app.storage.principals import LOCAL_USER as LOCAL
from app.transcript.conversation import Conversation
from app.transcript.inbox import Inbox
from routes.protocol.requests import ChatRequest
from tests.support.models.chatting import DONE, LIMIT_S, chunk
from tests.support.models.histories import store_nothing
from tests.support.models.upstream import Act, upstream
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":90}}\n\n'


def pieces(text: str, field: str = "content") -> list[str]:
    """A chunk for every three characters."""
    return [chunk({field: text[at : at + 3]}) for at in range(0, len(text), 3)]


def slowly(*chunks: str) -> Act:
    """An answer whose chunks come one by one, as from a model."""

    async def act(_: StreamReader, writer: StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for one in [*chunks, chunk(finish="stop"), USAGE, DONE]:
            data = one.encode()
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
            for _turn in range(6):  # turns of the loop, in which it is read
                await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")

    return act


CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "no.txt"}}\n</tool_call>'
END = pieces("That is all.")
# The answers of one run each.
RUNS: dict[str, list[list[str]]] = {
    "text": [pieces('It is "noon",\nin Rome 😀 and é\\n.')],
    "reasoning": [[*pieces("I look at it.", "reasoning_content"), *pieces("It is noon.")]],
    "reasoning in the text": [pieces("I look at it.</think>It is noon.")],
    "a call": [pieces(f"I read it.\n{CALL}"), END],
    "a fence": [pieces("So:\n```python\nprint(1)\n```\nDone.")],
    "a native call": [
        [
            *pieces("I read it."),
            chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "read_file", "arguments": ""}}]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"path": "no.txt"}'}}]}),
        ],
        END,
    ],
    "half a character": [[chunk({"content": half}) for half in ("a", "b", "\ud83d", "\ude00", "c")]],
    "too long": [pieces("word " * 1000)],
}


@dataclass(slots=True)
class Sink:
    """A consumer that is `full` in turns."""

    turns: Sequence[bool]
    events: list[AgentEvent] = field(default_factory=list)
    added: int = 0
    _asked: int = 0

    @property
    def full(self) -> bool:
        self._asked += 1
        return self.turns[self._asked % len(self.turns)]

    def add(self, event: AgentEvent) -> None:
        self.events.append(event)
        self.added += 1


def comparable(events: Sequence[AgentEvent]) -> list[dict[str, Any]]:
    """The events: neighbouring deltas joined, calls by their order, without times."""
    rows, ids = list[dict[str, Any]](), dict[str, str]()
    for event in events:
        row = {name: value for name, value in fields_of(event).items() if name not in ("duration_s", "run", "timing")}
        if "usage" in row:
            row["usage"] = {name: value for name, value in row["usage"].items() if name != "timing"}
        if "call" in row:
            row["call"] = ids.setdefault(row["call"], f"call {len(ids)}")
        last = rows[-1] if rows else {}
        if isinstance(event, Delta) and (last.get("type"), last.get("call")) == (row["type"], row.get("call")):
            last["text"] += row["text"]
        else:
            rows.append(row)
    return rows


async def events_of_run(
    folder: Path, answers: Sequence[list[str]], sink: Sink | None, most: int = 100_000
) -> Sequence[AgentEvent]:
    """All events of a run, those of the sink and those of the generator in the order in which they came."""
    events = sink.events if sink else list[AgentEvent]()
    async with asyncio.timeout(LIMIT_S), upstream(*(slowly(*one) for one in answers), chats=True) as server:
        model = {"model_url": server.base_url, "model": "m"}
        async with serving(folder, None, None, **model, max_answer_characters=str(most)) as served:
            agent = await served.services.factory.agent(LOCAL, ChatRequest(message="x"))
            history = [Message("user", "x", at=0)]
            conversation = Conversation(
                "s", history, lambda *_: None, lambda _: None, store_nothing, redactor=Redactor()
            )
            inbox = Inbox("run_1", lambda _: None)
            async with aclosing(agent.run("r", conversation, inbox, None, sink)) as generated:
                async for event in generated:
                    events.append(event)
            assert conversation.messages[1:]
    return events


@pytest.mark.parametrize("turns", [[False], [False, True], [False, False, False, True]], ids=str)
@pytest.mark.parametrize("name", RUNS)
async def test_the_events_are_the_same(tmp_path: Path, name: str, turns: list[bool]) -> None:
    most = 3000 if name == "too long" else 100_000
    sink = Sink(turns)
    direct = await events_of_run(tmp_path, RUNS[name], sink, most)
    plain = await events_of_run(tmp_path, RUNS[name], None, most)
    assert comparable(direct) == comparable(plain)
    assert sink.added


async def test_a_full_sink_is_given_nothing(tmp_path: Path) -> None:
    sink = Sink([True])
    direct = await events_of_run(tmp_path, RUNS["text"], sink)
    assert comparable(direct) == comparable(await events_of_run(tmp_path, RUNS["text"], None))
    assert not sink.added
