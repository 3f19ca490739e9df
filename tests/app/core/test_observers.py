"""Observers see each event of a run but the pieces of answers, and each model request however it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import Struct, field

from app.core.events import AgentEvent
from app.core.observers import ObservedRequest, ObservedRun
from app.core.provider import Finished, Piece, ProviderFailed, TextChunk, TokenUsage
from app.models.scripted import Raise, Scripted
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
DOWN = ProviderFailed("model_refused", "It does not answer that. Ask another model.", retryable=False)
CALL = "```write_file\nnote.txt\nfirst\n```"


class Seen(Struct):
    events: list[tuple[ObservedRun, AgentEvent]] = field(default_factory=list)
    requests: list[ObservedRequest] = field(default_factory=list)

    def observe_event(self, run: ObservedRun, event: AgentEvent) -> None:
        self.events.append((run, event))

    def observe_request(self, request: ObservedRequest) -> None:
        self.requests.append(request)


async def test_what_observers_see(tmp_path: Path) -> None:
    answer: list[Piece] = [TextChunk("Two "), TextChunk("words."), TokenUsage(20, 3), Finished("stop")]
    async with asyncio.timeout(30), serving(tmp_path, Scripted([CALL, answer, [Raise(DOWN)]])) as served:
        served.services.runs.ledger.observers.all.append(seen := Seen())
        events = await served.chat()
        failed = await served.chat()
    deltas = {"text.delta", "reasoning.delta", "tool.delta"}
    expected = [event["type"] for event in (*events, *failed) if event["type"] not in deltas]
    assert [event.type for _, event in seen.events] == expected
    first, last = seen.events[0][0], seen.events[-1][0]
    assert (first.id, first.session) == (events[0]["run"], events[0]["session"])
    assert (last.id, last.unlisted) == (failed[0]["run"], False)
    _, written, broken = seen.requests
    assert (written.run, written.prompt_tokens, written.completion_tokens) == (first.id, 20, 3)
    assert written.in_round and written.measured and written.error is None
    assert written.first is not None and written.sent <= written.first <= written.ended
    assert (broken.run, broken.error, broken.first) == (last.id, "model_refused", None)


async def test_events_are_observed_redacted(tmp_path: Path) -> None:
    secret = "sk-" + "a1B2c3D4" * 6
    provider = Scripted([f"```bash\necho {secret}\n```", "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider, model_key=secret) as served:
        served.services.runs.ledger.observers.all.append(seen := Seen())
        await served.chat()
    assert seen.events
    assert not any(secret in repr(event) for _, event in seen.events)
