"""What holds however a model behaves: it ends, with words, within its limits, and leaves a history that is valid."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import (
    BaseProvider,
    CallForm,
    Finished,
    ModelRequest,
    Piece,
    ProviderFailed,
    TextChunk,
    TokenUsage,
)
from parsing import Call, Thought
from tests.support.server.events import of_kind
from tests.support.server.histories import ending_of, whole_history
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
RUNS, LIMIT_S = 40, 100
FENCES = (
    "```list_files\n```",
    "```bash\nls\n```",
    "```bash\nexit 3\n```",
    "```nothing\n```",
    "<tool_call>{",
    "```bash\nls",
)
WORDS = ("", " \n", "Hm.", "I look.\n", "x" * 700, "SUCCESS", "FAIL: more.", "SAFE")


class Fickle(BaseProvider):
    """A Provider that says anything, by chance; while it is `stubborn`, the same for ever."""

    model, call_form = "fickle", CallForm.FENCED

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.requests: list[ModelRequest] = []
        self.stubborn = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.stubborn:
            yield TextChunk(FENCES[0])
            yield Finished("stop")
            return
        if self.chance.random() < 0.3:
            yield Thought("So.")
        yield TextChunk(self.chance.choice(WORDS))
        if self.chance.random() < 0.6:
            yield TextChunk(self.chance.choice(FENCES))
        elif self.chance.random() < 0.3:
            yield Call(0, "bash", {"command": f"echo {self.chance.randrange(3)}"}, "native")
        if self.chance.random() < 0.04:
            raise ProviderFailed("model_cut", "The connection was lost.", retryable=True)
        yield TokenUsage(self.chance.randrange(300), self.chance.randrange(100))
        yield Finished(self.chance.choice(("stop", "stop", "tool_calls", "length", "odd")))

    async def close(self) -> None:
        """Nothing is open."""


def limits(chance: random.Random) -> dict[str, Any]:
    most = {"max_rounds": (1, 9), "max_calls": (1, 9), "max_tokens": (100, 4000)}
    return {name: chance.randint(*span) for name, span in most.items() if chance.random() < 0.6}


async def test_every_run_ends_in_words_within_its_limits(tmp_path: Path) -> None:
    provider, reasons = Fickle(7), set[str]()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, verify="true") as served:
        for _ in range(RUNS):
            given, provider.requests = limits(provider.chance), []
            provider.stubborn = provider.chance.random() < 0.2
            events = await served.chat("Look.", **given)
            await whole_history(served, events)
            if events[-1]["type"] == "run.failed":
                assert events[-1]["code"] == "model_cut"
                continue
            reasons.add(ending_of(events)[0])
            assert events[-1]["text"].strip(), (given, events)
            assert events[-1]["rounds"] <= given.get("max_rounds", 20)
            assert len(of_kind(events, "tool.started")) <= given.get("max_calls", 200)
            assert sum(bool(request.tools) for request in provider.requests) < given.get("max_rounds", 20)
            codes = [event["code"] for event in of_kind(events, "notice")]
            assert max(codes.count(code) for code in ("loop_broken", "synthesis", "verifier")) <= 1
            assert codes.count("nudge") <= 2 + 4
    assert reasons - {"no_answer"} == {"answered", "round_limit", "call_limit", "token_limit", "loop_broken"}
