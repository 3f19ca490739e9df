"""A real model server that cannot see: what it says of itself, and what it answers to a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.core.provider import Ability
from app.models.embedded.supervisor import SMOLLM2
from app.models.http.client import model_client
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.openai.provider import OpenAIChat
from tests.support.models.pictures import CAT, LAW, image_part, text_part
from tests.support.models.real_models import embedded
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

MESSAGE = [image_part(CAT, name="cat.png"), text_part("Say yes.")]
SHORT = RequestDefaults(max_tokens=4, temperature=0.0)


class Unsure(OpenAIChat):
    """Believes nothing but what answers show."""

    def abilities(self) -> Sequence[Ability]:
        return [one for one in super().abilities() if one.source == "answer"]

    def ability(self, name: str) -> Ability:
        known = super().ability(name)
        return known if known.source == "answer" else Ability(name, None, "unknown")


async def test_a_real_server_says_that_its_model_cannot_see(tmp_path: Path) -> None:
    async with embedded() as (_, provider), serving(tmp_path, provider) as served:
        failed = (await served.chat(MESSAGE, tools=[]))[-1]
        assert (failed["type"], failed["code"]) == ("run.failed", "no_vision")
        assert "Its server said" not in failed["message"], "it was not even asked"
        law = (await served.chat([image_part(LAW)], tools=[]))[-1]
        assert law["code"] == "no_vision"


async def test_a_real_server_refuses_a_picture_and_reads_the_words(tmp_path: Path) -> None:
    async with embedded() as (model, _):
        url = await model.start()
        unsure = Unsure(model_client(url), url, SMOLLM2.name, model.key, defaults=SHORT)
        async with serving(tmp_path, unsure) as served:
            events = await served.chat(MESSAGE, tools=[], without_vision="describe")
            assert events[-1]["type"] == "run.finished", events[-1]
            assert "no_vision" in [event.get("code") for event in events]
            assert [(one.name, one.value) for one in unsure.abilities()] == [("images", False)]
            again = (await served.chat(MESSAGE, tools=[]))[-1]
            assert (again["code"], "Its server said" in again["message"]) == ("no_vision", False)
