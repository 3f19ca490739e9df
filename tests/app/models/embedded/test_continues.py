"""The embedded model goes on with an answer that another model has begun."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import FallbackUsed, ModelRequest, ProviderFailed, TextChunk
from app.models.scripted import Raise
from tests.support.models.real_models import embedded, need_embedded, pieces_of
from tests.support.models.targets import Time, model, said

pytestmark = pytest.mark.anyio
GO_ON = "Go on."
BEGUN = "one, two, three, fo"
ASKED = ModelRequest([Message("user", "Count from one to ten in words, separated by commas.")], max_tokens=12)


@pytest.fixture(autouse=True)
def installed() -> None:
    need_embedded()


async def test_the_embedded_model_goes_on_within_a_word() -> None:
    lost = Raise(ProviderFailed("model_cut", "The connection was lost.", retryable=True))
    time = Time()
    async with embedded() as (_, small):
        await small.window()
        route = time.route(time.handle(model([BEGUN, lost])), time.handle(small, time.server("embedded")))
        with pytest.raises(ProviderFailed) as failed:
            async with aclosing(route.stream(ASKED)) as pieces:
                assert [piece async for piece in pieces if isinstance(piece, TextChunk)] == [TextChunk(BEGUN)]
        assert failed.value.successor == FallbackUsed("local/m", f"embedded/{small.model}", "model_cut")
        assert route.continues
        broken = Message("assistant", BEGUN, shown=BEGUN, cut=True)
        again = replace(ASKED, messages=[*ASKED.messages, broken, Message("user", GO_ON)], go_on=GO_ON)
        rest = await pieces_of(route, again)
    assert failed.value.successor in rest
    assert said(rest).startswith(", four, five, six"), "it writes no comma without a word before"
