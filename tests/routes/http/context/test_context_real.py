"""The embedded model in a window that its conversation outgrows, for real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import Finished, ModelRequest, Piece, TokenUsage
from app.models.embedded.provider import EmbeddedProvider
from app.models.embedded.supervisor import SMOLLM2, EmbeddedModel
from app.models.http.client import model_client
from app.models.scripted import Scripted
from tests.support.models.real_models import need_embedded
from tests.support.nightly import at_night
from tests.support.server.events import notices
from tests.support.server.long_conversations import GOAL, LIMIT_S
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
WINDOW, TURNS = at_night((512, 15), (256, 8))


async def test_the_embedded_model_goes_on_and_on_in_a_small_window(tmp_path: Path) -> None:
    """Real counts, a real window: no request is refused, whatever the model makes of the conversation."""
    need_embedded()
    small = EmbeddedModel(replace(SMOLLM2, context=WINDOW), slots=1)
    model = Brief(EmbeddedProvider(model_client("http://127.0.0.1"), small))
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        session: dict[str, Any] = {}
        told = []
        for number in range(TURNS):
            text = (
                f"{'' if session else GOAL} Part {number}: the engine weaves algebra, as looms weave leaves. Say yes."
            )
            events = await served.chat(text, tools=[], **session)
            session = {"session": events[0]["session"]}
            assert events[-1]["type"] == "run.finished", events[-1]
            told += events
    assert {event["type"] for event in told} & {"context.trimmed", "context.summarised"}
    assert max(model.prompts) <= WINDOW and not [one for one in notices(told) if "refused" in one[1]]


class Brief(Scripted):
    """The embedded model, with short answers. `prompts` are the tokens of each prompt, as it counted them."""

    def __init__(self, inner: EmbeddedProvider) -> None:
        super().__init__([])
        self.inner = inner
        self.model = inner.model
        self.prompts: list[int] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        short = replace(request, max_tokens=3, temperature=0.0)
        async with aclosing(self.inner.stream(short)) as pieces:
            async for piece in pieces:
                if isinstance(piece, TokenUsage):
                    self.prompts.append(piece.prompt_tokens)
                yield Finished("stop") if isinstance(piece, Finished) else piece

    async def window(self) -> int | None:
        return await self.inner.window()

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        return await self.inner.count_tokens(texts)

    def added(self, message: Message) -> str:
        return self.inner.added(message)

    async def close(self) -> None:
        await self.inner.close()
