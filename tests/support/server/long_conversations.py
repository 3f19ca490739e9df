"""Conversations that outgrow a window, and a model that keeps notes of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from app.context.compaction.summarise import BEHIND
from app.core.messages import Message
from app.core.provider import CallForm, Finished, ModelRequest, Piece, TextChunk
from app.models.scripted import Scripted
from tests.support.server.serving import Served

LIMIT_S = 100
GOAL = "Sort the letters of Ada Lovelace by the year they were written in."
CHATTER = "And then she wrote of engines, of numbers and of music, at length. " * 12
SUMMARISING = BEHIND.partition("{")[0]
TOOLS = ["read_file", "recall_history"]


class Secretary(Scripted):
    """Answers each turn with some chatter, and each request for notes with `notes`."""

    def __init__(self, notes: Sequence[Any] = ("What was done: letters were sorted.",)) -> None:
        super().__init__([], call_form=CallForm.NATIVE)
        self.notes = notes
        self.chatter = CHATTER
        self.asked: list[ModelRequest] = []  # for notes
        self.sent: list[list[Message]] = []  # the messages of each other request

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        messages = request.whole()
        if not asks_for_notes(request):
            self.sent.append(messages)
            yield TextChunk(f"Answer {len(self.sent)}. {self.chatter}")
            yield Finished("stop")
            return
        self.asked.append(request)
        async with aclosing(Scripted([self.notes]).stream(request)) as pieces:
            async for piece in pieces:
                yield piece


def asks_for_notes(request: ModelRequest) -> bool:
    return request.messages[-1].text.startswith(SUMMARISING) or "keep the notes" in request.messages[0].text


async def chat_turns(
    served: Served, count: int, session: str | None = None, chatter: str = CHATTER
) -> list[list[dict[str, Any]]]:
    """So many turns of one session, the first of which names the goal; none fails."""
    told = []
    for number in range(count):
        text = f"{GOAL} {chatter}" if session is None else f"Question {number}. {chatter}"
        events = await served.chat(text, tools=TOOLS, **({"session": session} if session else {}))
        assert events[-1]["type"] == "run.finished" and events[-1]["reason"] == "answered", events[-1]
        session = events[0]["session"]
        told.append(events)
    return told
