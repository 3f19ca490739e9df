"""The grammar of a model whose server shows its template: derived once, and only where the table needs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec
import pytest

from app.core.events import ToolDelta
from app.core.provider import BaseProvider, CallForm, ModelRequest, Piece, TextChunk
from app.models.capabilities.abilities import LOCAL_AGE_S, AbilityCache
from app.models.http.client import model_client
from app.models.templates.reading import read_template
from app.models.wire.openai.provider import OpenAIChat
from app.runs.recording.parts import ModelPart
from app.runs.recording.values import model_part
from app.transcript.reply import Reply
from parsing.templates.derive import TemplateGrammar, derive
from parsing.templates.probes import TOOLS
from tests.support.models.abilities import MISSING, PROPS, endpoint, models, said
from tests.support.models.templates import AS_OBJECT
from tests.support.models.upstream import Act
from tests.support.parsing.held_out import TEMPLATES

pytestmark = pytest.mark.anyio
CALL = '<|zz|>zq_lookup<|args|>{"zk_place": "Ulm"}<|zz_end|>'


def acts(template: str) -> dict[str, Act]:
    return {
        "/v1/models": models(),
        "/props?model=m": said(PROPS | {"chat_template": template}),
        "/apply-template": MISSING,
    }


async def test_a_template_that_no_row_knows_gives_a_grammar() -> None:
    now = 0.0
    paths = acts(AS_OBJECT)
    async with endpoint(paths) as (one, _):
        abilities = AbilityCache(clock=lambda: now)
        assert abilities.grammar(one) is None  # not asked yet
        await abilities.window(one)
        grammar = abilities.grammar(one)
        assert grammar is not None and grammar.begin == "<|zz|>NAME<|args|>"
        async with model_client(one.base_url) as client:
            assert OpenAIChat(client, one.base_url, "m", abilities=abilities).grammar() is grammar
        paths["/props?model=m"] = acts(TEMPLATES["hermes"].read_text("utf-8"))["/props?model=m"]
        now = LOCAL_AGE_S
        await abilities.window(one)
        assert abilities.grammar(one) is None  # another model


@pytest.mark.parametrize("template", [TEMPLATES["hermes"].read_text("utf-8"), "{{ 'a' * 10**9 }}", "{% for %}", ""])
async def test_other_templates_give_none(template: str) -> None:
    async with endpoint(acts(template)) as (one, _):
        abilities = AbilityCache()
        assert await abilities.window(one) == 4096
        assert abilities.grammar(one) is None


@pytest.mark.parametrize(("template", "calls"), [(AS_OBJECT, 1), ("", 0)])
def test_a_reply_is_read_by_the_grammar_of_the_model_that_answers(template: str, calls: int) -> None:
    grammar = read_template(template).grammar
    reply = Reply(TOOLS, fences=lambda: False, new_id=lambda: "c1", grammar=lambda: grammar)
    events = [event for piece in (CALL[:9], CALL[9:]) for event in reply.add(TextChunk(piece))]
    events += reply.end()
    assert len(reply.found_calls.made) == calls
    assert any(isinstance(event, ToolDelta) for event in events) is bool(calls)


class Derived(BaseProvider):
    """A model with a derived grammar."""

    model = "m"
    call_form = CallForm.TAGGED

    def grammar(self) -> TemplateGrammar | None:
        return read_template(AS_OBJECT).grammar

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        yield TextChunk(CALL)

    async def close(self) -> None:
        """Nothing is open."""


def test_a_recorded_grammar_is_derived_again() -> None:
    part = msgspec.json.decode(msgspec.json.encode(model_part(Derived())), type=ModelPart)
    assert derive(part.probes).begin == "<|zz|>NAME<|args|>"
