"""Every request begins as the one before it did: across rounds, turns and a restart only new messages are added."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import pairwise, takewhile
from operator import eq
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.clock import Clock
from app.core.messages import dump
from app.core.provider import CallForm, ModelRequest, Piece, ProviderFailed
from app.models.embedded.supervisor import EmbeddedModel
from app.models.http.json_body import encode
from app.models.scripted import Pause, Raise, Reply, Scripted
from app.models.wire.native_calls import NATIVE
from app.models.wire.openai.history import WireMessage, wire_messages
from parsing import Call
from tests import ROOT
from tests.support.models.real_models import need_embedded
from tests.support.server.serving import answer_in, serving, until

pytestmark = pytest.mark.anyio
LIMIT_S = 100
CUT = ProviderFailed("model_cut", "The connection was lost.", retryable=False)
TOOLS = ["bash", "write_file"]  # few: a real model is to read them in a few seconds
TEMPLATE_TAIL = 8  # tokens at the end of a prompt that the next one need not share

FENCED: dict[str, Reply] = {
    "one": "I look.\n```bash\necho hello\n```\n",
    "two": "```bash\necho one\n```\n```write_file\nnote.txt\ntwo\n```\n",
    "unknown": '<tool_call>\n{"name": "fly", "arguments": {"to": "Rome"}}\n</tool_call>',
}
CALLED: dict[str, Reply] = {
    "one": ("I look.", Call(0, "bash", {"command": "echo hello"}, NATIVE)),
    "two": (
        Call(0, "bash", {"command": "echo one"}, NATIVE),
        Call(1, "write_file", {"path": "note.txt", "content": "two"}, NATIVE),
    ),
    "unknown": (Call(0, "fly", {"to": "Rome"}, NATIVE),),
}


class Wired(Scripted):
    """Keeps what each request would say on the wire, as it was when it was made."""

    def __init__(self, replies: Sequence[Reply], *, native: bool) -> None:
        super().__init__(replies, call_form=CallForm.NATIVE if native else CallForm.FENCED)
        self.native = native
        self.sent: list[list[WireMessage]] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        self.sent.append(wire_messages(request.whole(), native=self.native, clock=Clock("Europe/Berlin")))
        async with aclosing(super().stream(request)) as pieces:
            async for piece in pieces:
                yield piece


async def conversation(folder: Path, *, native: bool) -> list[list[WireMessage]]:
    """What the requests of four turns say, the last of them to a server that was started anew."""
    says = CALLED if native else FENCED
    heard = asyncio.Event()
    first: list[Reply] = [
        *[says["one"], "It says hello."],
        *[("I ", Pause(heard), "wait."), "Steered."],
        *[says["two"], says["unknown"], ("Cut of", Raise(CUT))],
    ]
    before, after = Wired(first, native=native), Wired([says["one"], "Done."], native=native)
    async with asyncio.timeout(LIMIT_S):
        async with serving(folder, before) as served:
            session = (await served.chat("Say hello.", tools=TOOLS))[0]["session"]
            async with aclosing(served.turn(message="Wait.", session=session, tools=TOOLS)) as turn:
                run = (await until(turn, "run.started"))["run"]
                await until(turn, "text.delta")
                assert (await served.client.post(f"/runs/{run}/messages", json={"message": "More."})).is_success
                heard.set()
                assert (await until(turn, "run.finished"))["text"] == "Steered."
            await served.chat("Do both.", session=session, tools=TOOLS)
        async with serving(folder, after) as served:
            assert answer_in((await served.chat("Once more.", session=session, tools=TOOLS))[-1]["text"]) == "Done."
    assert (len(before.sent), len(after.sent)) == (7, 2)
    return [*before.sent, *after.sent]


@pytest.mark.parametrize("native", [True, False], ids=["native", "fenced"])
async def test_a_request_begins_with_all_that_the_one_before_it_said(tmp_path: Path, native: bool) -> None:
    bodies = [encode({"messages": sent}) for sent in await conversation(tmp_path, native=native)]
    for earlier, later in pairwise(bodies):
        shared = sum(1 for _ in takewhile(bool, map(eq, earlier, later)))
        assert shared >= len(earlier) - len('"}]}'), (earlier[shared - 60 :], later[shared - 60 : shared + 60])
    assert b"[end " in bodies[0] or native, "the examples are framed"
    assert b"[end " in bodies[-1], "and so are results"


SAID = """
import sys
from datetime import date
from app.core.clock import Clock
from app.core.messages import load
from app.context.prompt import opening
from app.core.provider import CallForm
from app.models.http.json_body import encode
from app.models.wire.openai.history import wire_messages
from tools.catalogue import TOOLS

first = opening(TOOLS, call_form=CallForm.FENCED, workspace=None, today=date(2026, 11, 22))
history = [*first, *map(load, sys.stdin)]
for native in (True, False):
    print(encode({"messages": wire_messages(history, native=native, clock=Clock("UTC"))}).decode())
"""


async def test_another_process_says_what_is_stored_in_the_same_words(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Wired([FENCED["two"], "Done."], native=False)) as served:
        session = (await served.chat("Do both."))[0]["session"]
        stored = "\n".join(map(dump, await served.services.store.messages(session)))
        said = [
            await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", SAID], cwd=ROOT, input=stored, capture_output=True, text=True
            )
            for _ in range(2)
        ]
    assert said[0].stdout == said[1].stdout, said
    assert said[0].stdout.count("Result of ") == 8, "two of the examples and two of the conversation, each time"


async def test_a_real_server_finds_all_but_the_new_messages_in_its_cache(tmp_path: Path) -> None:
    need_embedded()
    first, second, *_, last = await conversation(tmp_path, native=False)
    requests = [first, second, last]  # a round more, then three turns and a restart
    model = EmbeddedModel(slots=1)
    headers = {"authorization": f"Bearer {model.key}"}
    try:
        async with asyncio.timeout(LIMIT_S), httpx2.AsyncClient(headers=headers, timeout=LIMIT_S) as client:
            url = f"{await model.start()}/chat/completions"
            counted = [await read_by(client, url, messages) for messages in requests]
    finally:
        await model.close()
    for (earlier, _), (later, cached) in pairwise(counted):
        assert later > earlier
        assert cached >= earlier - TEMPLATE_TAIL, counted


async def read_by(client: httpx2.AsyncClient, url: str, messages: list[WireMessage]) -> tuple[int, int]:
    """The tokens of these messages, and how many of them the server had in its cache."""
    answer = await client.post(url, json={"messages": messages, "max_tokens": 1})
    timings: dict[str, Any] = answer.json()["timings"]
    return timings["cache_n"] + timings["prompt_n"], timings["cache_n"]
