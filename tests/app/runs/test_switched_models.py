"""A model server dies within an answer, and a model of another dialect goes on with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from app.core.events import (
    TERMINAL,
    AgentEvent,
    Notice,
    RunFinished,
    TextDelta,
    TextReclassified,
    ToolDelta,
    ToolFinished,
    ToolRejected,
    ToolStarted,
    Usage,
)
from app.core.messages import Message
from app.models.endpoints.failover import ModelRoute
from app.models.endpoints.model_handle import ModelHandle
from app.models.endpoints.server_state import ServerState
from app.models.tokens.counter import TokenCounter
from app.redaction.redactor import Redactor
from app.runs.discipline.limit_enforcer import BROKEN_OFF
from app.runs.run_options import RunOptions
from app.storage.principals import LOCAL_USER
from app.transcript.conversation import Conversation
from app.transcript.inbox import Inbox
from routes.services import Services
from tests.support.models.switching import (
    ARGUMENTS,
    FIRST,
    LAST,
    NAME,
    RESULT,
    SCHEMA,
    THOUGHT,
    Client,
    Model,
    Server,
    provider_of,
    script,
)
from tests.support.models.targets import Time
from tests.support.server.serving import serving
from tools.base.rights import Risk
from tools.tool import Tool, ToolList, answering
from tools.toolbox import Toolbox

pytestmark = pytest.mark.anyio
LIMIT_S = 240
CUTS = 500
VLLM, LLAMA, OTHER = "http://127.0.0.1:8000/v1", "http://127.0.0.1:8080/v1", "http://127.0.0.1:9999/v1"
CLAUDE, MISTRAL = "https://api.anthropic.com/v1", "https://api.mistral.ai/v1"
# The server that dies, and the one that goes on.
PAIRS = {
    "native, hermes": (Server(VLLM, "native"), Server(LLAMA, "hermes")),
    "hermes, native": (Server(LLAMA, "hermes"), Server(VLLM, "native")),
    "DSML, Messages API": (Server(OTHER, "dsml_v32", thought=THOUGHT), Server(CLAUDE, "native", model="claude-3-5")),
    "Kimi, fenced": (Server(OTHER, "kimi_k2"), Server(OTHER, "fenced", "obedient")),
    "XML, native": (Server(LLAMA, "qwen3_coder"), Server(OTHER, "native", "anew", thought=THOUGHT)),
    "Messages API, brackets": (
        Server(CLAUDE, "native", thought=THOUGHT),
        Server(MISTRAL, "mistral_args", "repeated", model="mistral-small"),
    ),
}


@dataclass
class Stage:
    """Two models, and what happens between them."""

    services: Services
    handles: list[ModelHandle]
    clients: list[Client]

    async def run(self, dies_after: int | None) -> tuple[list[AgentEvent], list[Message], Counter[str]]:
        """One run, in which the first model dies after so many characters."""
        kept, self.ran = Counter[str](), list[Any]()

        async def keep(arguments: Any, _: Any) -> str:
            self.ran.append(arguments)
            return RESULT

        for client, most in zip(self.clients, (dies_after, None), strict=True):
            client.of = Model(client.of.server, most)
        agent = await self.services.factory.agent(LOCAL_USER, RunOptions())
        agent.provider = agent.view.model = ModelRoute(self.handles, "local", Time().backoff)
        tool = Tool(NAME, "Keeps a note.", SCHEMA, Risk.READ, answering(keep))
        agent.scope.toolbox = Toolbox(ToolList([tool]), agent.scope.gate.decide, "local", agent.scope.gate.offer)
        ids = count()
        agent.new_id = lambda: f"c{next(ids):08}"

        async def stored() -> None:
            kept["stored"] += 1

        logged = list[AgentEvent]()
        conversation = Conversation(
            "s", [], lambda *_: None, lambda _: None, stored, redactor=Redactor(), log_event=logged.append
        )
        conversation.append(Message("user", "Keep a note of the journey."))
        inbox = Inbox("run_1", lambda _: None)
        async with aclosing(agent.run("r", conversation, inbox)) as run:
            events = [event async for event in run]
        kept["usage"] = sum(isinstance(one, Usage) for one in (*events, *logged))
        return events, conversation.messages, kept


@asynccontextmanager
async def stage(folder: Path, *servers: Server) -> AsyncGenerator[Stage, None]:
    made = [provider_of(server) for server in servers]
    handles = [
        ModelHandle(name, provider, TokenCounter(provider, 32_768), server=ServerState(name))
        for name, (provider, _) in zip(("wanted", "other", "third"), made, strict=False)
    ]
    async with serving(folder, None) as served:
        yield Stage(served.services, handles, [client for _, client in made])
        for provider, _ in made:
            await provider.close()


def text_of(events: list[AgentEvent]) -> str:
    text = ""
    for event in events:
        match event:
            case TextDelta(piece, None):
                text += piece
            case TextReclassified(characters):
                text = text[: len(text) - characters]
    return text


def check(events: list[AgentEvent], messages: list[Message], ran: list[Any], *, exact: bool) -> None:
    """One stream, no doubled text, no half call run, one notice, one terminal event, a valid history."""
    switches = [event for event in events if isinstance(event, Notice)]
    assert [(one.code, one.reason) for one in switches] == [("continued", "model_cut")], switches
    assert (switches[0].wanted, switches[0].answered_by) == ("wanted/m", "other/m") or switches[0].answered_by
    assert [type(event) for event in events if event.type in TERMINAL] == [RunFinished]
    assert isinstance(finished := events[-1], RunFinished) and finished.reason == "answered"
    text, whole = text_of(events), FIRST + LAST
    if exact:
        assert (text, finished.text) == (whole, LAST)
    else:  # the call is a block of its own, which the text around makes room for
        assert text.split() == whole.split() and finished.text.endswith(LAST)
    assert ran == [ARGUMENTS]
    begun = {event.call for event in events if isinstance(event, ToolDelta)}
    started = [event.call for event in events if isinstance(event, ToolStarted)]
    ended = [event.call for event in events if isinstance(event, ToolFinished)]
    rejected = [event.call for event in events if isinstance(event, ToolRejected)]
    assert len(started) == 1 and ended == started
    assert sorted(begun | set(started)) == sorted([*started, *filter(None, rejected)]), "each draft is closed once"
    results = [one.call for one in messages if one.role == "tool"]
    assert results == [call.id for one in messages for call in one.calls], "each call has one result"
    assert all(one.text == BROKEN_OFF for one in messages if one.role == "tool" and one.call not in started)


@pytest.mark.parametrize("pair", PAIRS)
async def test_another_model_goes_on_wherever_the_answer_is_cut(tmp_path: Path, pair: str) -> None:
    wanted, other = PAIRS[pair]
    lengths = [len(script(wanted.form, called=called, thought=wanted.thought)) for called in (False, True)]
    cuts = sorted({1 + at * (sum(lengths) - 1) // CUTS for at in range(CUTS)})
    assert len(cuts) == CUTS
    async with asyncio.timeout(LIMIT_S), stage(tmp_path, wanted, other) as both:
        for cut in cuts:
            events, messages, kept = await both.run(cut)
            try:
                check(events, messages, both.ran, exact="fenced" not in (wanted.form, other.form))
                assert kept["usage"] == sum(len(client.of.asked) for client in both.clients)
            except AssertionError as error:
                error.add_note(f"cut after {cut} of {lengths}")
                raise
