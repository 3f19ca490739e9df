"""What a server could have in its cache: each request begins as an earlier one did, byte for byte."""

from __future__ import annotations

import asyncio
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.context.compaction.summarise import BEHIND
from app.models.capabilities.abilities import AbilityOverrides
from app.transcript.prompt_prefixes import common
from tests.support.models.chatting import DONE, chat_with, chunk, says
from tests.support.models.upstream import Act, Upstream, stream, upstream
from tests.support.server.events import of_kind
from tests.support.server.long_conversations import SUMMARISING
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
LIMIT_S = 100
NOTES = "What was done: the harbour's notes were read. Current state: all is written down. Pending: nothing."
ROUNDS, TURNS = 40, 10
END = (chunk(finish="stop"), DONE)
# As many tools as two or three MCP servers bring.
FIELDS = {name: {"type": "string", "description": f"The {name}, as it is in the book."} for name in ("quay", "boat")}
BOOKING = {"type": "object", "properties": FIELDS}
TOOLS = [
    {"name": f"book_{at}", "description": f"Books berth {at} of the harbour.", "parameters": BOOKING}
    for at in range(100)
]


@dataclass(slots=True)
class Keeper:
    """A model that reads a file in three rounds of each turn and answers in the fourth; it writes notes if asked to."""

    natively: bool
    server: Upstream = field(default_factory=Upstream)
    rounds: int = 0

    async def act(self, reader: StreamReader, writer: StreamWriter) -> None:
        await self._next()(reader, writer)

    def _next(self) -> Act:
        if SUMMARISING in self.server.asked[-1].json["messages"][-1]["content"]:
            return stream(says(NOTES), *END)
        self.rounds += 1
        if self.rounds % (ROUNDS // TURNS) == 0:
            return stream(says(f"That was part {self.rounds}."), *END)
        arguments = json.dumps({"path": f"note{self.rounds % 3}.txt"})
        if not self.natively:
            return stream(says(f'<tool_call>\n{{"name": "read_file", "arguments": {arguments}}}\n</tool_call>'), *END)
        function = {"name": "read_file", "arguments": arguments}
        call = {"index": 0, "id": f"call_{self.rounds:06}", "type": "function", "function": function}
        return stream(chunk({"tool_calls": [call]}), chunk(finish="tool_calls"), DONE)


def prompt_of(body: dict[str, Any]) -> str:
    """The tools and the messages as they went out, without the end of their list."""
    tools, messages = (json.dumps(body.get(name), separators=(",", ":")) for name in ("tools", "messages"))
    return f"{tools[:-1] if 'tools' in body else ''}{messages[:-1]}"


@dataclass(slots=True)
class Sent:
    """The prompts of a session in their order; `notes` are the places of those that ask for notes."""

    prompts: list[str]
    notes: list[int]
    usages: list[dict[str, Any]]

    def new(self, at: int, earlier: Sequence[str]) -> int:
        """Return how many bytes of a prompt no earlier one has begun with."""
        return len(self.prompts[at]) - max(common(self.prompts[at], one) for one in (*earlier, *self.prompts[:at]))

    def check(self) -> None:
        """Only what was never sent is new, but once behind each summary."""
        before: str | None = None
        behind = len(f"{SUMMARISING}{BEHIND}")
        for at, (prompt, usage) in enumerate(zip(self.prompts, self.usages, strict=True)):
            ledger = tuple(usage.get(name) for name in ("prompt_bytes", "prefix_bytes", "prefix_break"))
            same = common(before, prompt) if before else 0
            assert ledger[:2] == (len(prompt), same), at
            if at in self.notes:
                assert ledger[2] == "side_query" and self.new(at, ()) < behind
                continue
            after_notes = at - 1 in self.notes
            assert ledger[2] == ("first" if before is None else "summarised" if after_notes else None), at
            assert before is None or after_notes or prompt.startswith(before)
            before = prompt


async def conversed(
    folder: Path, form: Any, *, compacts: bool = False, tools: Sequence[Any] = (), **flags: Any
) -> tuple[Sent, list[str]]:
    """Forty rounds in ten turns, and the prompts of another conversation before it."""
    (folder / "work").mkdir()
    for at in range(3):
        (folder / "work" / f"note{at}.txt").write_text(f"{at}: the Halcyon went out at tide {at}.\n" * 4)
    model, usages = Keeper(form != "tagged"), list[dict[str, Any]]()
    async with asyncio.timeout(LIMIT_S), upstream(model.act, repeat=True, chats=True) as model.server:
        async with (
            chat_with(model.server, overrides=AbilityOverrides(form)) as chat,
            serving(folder, chat, **flags) as served,
        ):
            await served.chat("Read the notes.", client_tools=tools)
            first, session = len(model.server.asked), dict[str, str]()
            for turn in range(TURNS):
                events = await served.chat(f"Part {turn}: read all notes.", client_tools=tools, **session)
                usages += of_kind(events, "usage")
                session = {"session": events[0]["session"]}
                if compacts and turn in (2, 5, 8):
                    answer = await served.client.post(f"/sessions/{session['session']}/compact")
                    usages += of_kind(await served.events(answer.json()["run"]), "usage")
    bodies = [one.json for one in model.server.asked]
    prompts = [prompt_of(one) for one in bodies]
    notes = [at for at, body in enumerate(bodies[first:]) if SUMMARISING in body["messages"][-1]["content"]]
    for at in notes:
        body = bodies[first + at]
        assert body.get("tools") == bodies[first].get("tools")
        assert body.get("tool_choice") == ("none" if "tools" in body else None)
    return Sent(prompts[first:], notes, usages), prompts[:first]


async def test_of_forty_rounds_with_three_summaries_nearly_all_was_read_before(tmp_path: Path) -> None:
    sent, earlier = await conversed(tmp_path, "native", compacts=True, tools=TOOLS)
    sent.check()
    assert len(sent.notes) == 3 and len(sent.prompts) == ROUNDS + 3
    new = sum(sent.new(at, earlier) for at in range(len(sent.prompts)))
    assert 1 - new / sum(map(len, sent.prompts)) >= 0.97


@pytest.mark.parametrize(("form", "window"), [("native", 3_600), ("tagged", 3_300)])
async def test_when_the_window_is_full_only_what_follows_the_summary_is_read_anew(
    tmp_path: Path, form: str, window: int
) -> None:
    sent, _ = await conversed(tmp_path, form, window=window)
    sent.check()
    assert sent.notes


async def test_a_lesson_stays_in_a_conversation_whose_model_calls_natively(tmp_path: Path) -> None:
    model = Keeper(natively=True)
    async with asyncio.timeout(LIMIT_S), upstream(model.act, repeat=True, chats=True) as model.server:
        async with chat_with(model.server) as chat, serving(tmp_path, chat) as served:
            events = await served.chat("Read all notes.")
            await served.chat("Once more.", session=events[0]["session"])
            taught = [prompt_of(one.json) for one in model.server.asked]
            await served.chat("Read all notes.")
    for before, prompt in pairwise(taught):
        assert prompt.startswith(before)
    assert "<tool_call>" in taught[-1] and "<tool_call>" not in prompt_of(model.server.asked[-1].json)


async def test_relayed_requests_displace_no_conversation(tmp_path: Path) -> None:
    model = Keeper(natively=True)
    async with asyncio.timeout(LIMIT_S), upstream(model.act, repeat=True, chats=True) as model.server:
        async with chat_with(model.server) as chat, serving(tmp_path, chat) as served:
            session = (await served.chat("Read all notes."))[0]["session"]
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
            relayed = await served.client.post("/v1/chat/completions", json=body)
            kept = [*served.services.runs.ledger.prefixes._last]
    assert relayed.is_success and kept == [session], "each of them is a session of its own"
