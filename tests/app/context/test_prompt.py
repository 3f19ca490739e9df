"""The prompt: its pieces, its stable head, its size, and whether the embedded model does what it teaches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.context.persona import MOST, Persona
from app.context.prompt import (
    ABOUT,
    BUDGETS,
    EXAMPLES,
    IDENTITY,
    TEACHINGS,
    Example,
    Override,
    Teaching,
    opening,
    signature,
    within,
    worked_examples,
)
from app.core.data_delimiters import RULE, framed
from app.core.messages import AskedCall, Message
from app.core.provider import CallForm, ModelRequest, TextChunk
from app.models.capabilities.abilities import AbilityOverrides
from app.models.embedded.provider import EmbeddedProvider
from app.models.embedded.supervisor import EmbeddedModel
from app.models.http.client import model_client
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.openai.history import ENOUGH, wire_messages
from app.models.wire.openai.provider import BareChat
from app.transcript.reply import Reply
from parsing import parse
from tests.support.catalogues import grown
from tests.support.models.real_models import embedded, pieces_of
from tests.support.nightly import only_at_night
from tools.catalogue import TOOLS
from tools.tool import Tool

pytestmark = pytest.mark.anyio

WORKSPACE = Path("/home/ann/workspace")
MORNING = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
REQUEST = "Print hello world with the shell."
REST_TOKENS, TOKENS_PER_TOOL = 312, 24  # of the opening without its list of tools, and of a line of that list
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}


def prompt(tools: Sequence[Tool] = TOOLS, *, call_form: CallForm = CallForm.FENCED, now: datetime = MORNING) -> str:
    return beginning(tools, call_form=call_form, now=now)[0].text


def beginning(
    tools: Sequence[Tool] = TOOLS, *, call_form: CallForm = CallForm.FENCED, now: datetime = MORNING, **more: Any
) -> Sequence[Message]:
    return opening(tools, call_form=call_form, workspace=WORKSPACE, today=now.date(), **more)


def named(*names: str) -> list[Tool]:
    return [tool for tool in TOOLS if tool.name in names]


def test_every_round_of_a_day_has_the_same_prompt() -> None:
    assert prompt(now=MORNING + timedelta(hours=15)) == prompt()


def test_the_next_day_changes_nothing_but_the_end() -> None:
    today, tomorrow = prompt(), prompt(now=MORNING + timedelta(days=1))
    assert today.endswith("\n\nToday is Saturday, 2026-11-21.")
    assert tomorrow.endswith("\n\nToday is Sunday, 2026-11-22.")
    assert today.rpartition("\n\n")[0] == tomorrow.rpartition("\n\n")[0]


CALLER = "Never repeat this code: GHIJ"
SOUL, PERSON = "You are Ann's gardener.", "Grows roses."
PERSONA = Persona(SOUL, PERSON)
FIRST = Override("Speak of roses.")
ALONE = Override("You are a cook.", replaces=True)
BEGINNINGS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "plain": ({}, [IDENTITY]),
    "soul": ({"persona": Persona(soul=SOUL)}, [SOUL]),
    "user": ({"persona": Persona(user=PERSON)}, [IDENTITY, f"{ABOUT}{PERSON}"]),
    "both": ({"persona": PERSONA}, [SOUL, f"{ABOUT}{PERSON}"]),
    "prepend": ({"override": FIRST}, [FIRST.text, IDENTITY]),
    "prepend to a persona": ({"persona": PERSONA, "override": FIRST}, [FIRST.text, SOUL, f"{ABOUT}{PERSON}"]),
    "replace": ({"persona": PERSONA, "override": ALONE}, [ALONE.text]),
}


@pytest.mark.parametrize("guards", ["", CALLER])
@pytest.mark.parametrize("call_form", CallForm)
@pytest.mark.parametrize(("changes", "first"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_who_speaks_can_be_changed_and_what_keeps_tools_safe_cannot(
    changes: dict[str, Any], first: list[str], call_form: CallForm, guards: str
) -> None:
    usual = beginning(call_form=call_form)
    changed = beginning(call_form=call_form, guards=guards, **changes)
    kept, _, date = usual[0].text.removeprefix(f"{IDENTITY}\n\n").rpartition("\n\n")
    assert changed[0].text == "\n\n".join([*first, kept, *([guards] if guards else []), date])
    assert changed[1:] == usual[1:]


TOO_LONG: dict[str, dict[str, Any]] = {
    "override": {"override": Override("o" * 10**6)},
    "identity": {"persona": Persona(soul="s" * 10**6)},
    "user": {"persona": Persona(user="u" * 10**6)},
    "tools": {"tools": [replace(TOOLS[0], description="t" * 10**6)]},
    "workspace": {"workspace": Path("/" + "w" * 10**6)},
    "secrets": {"secrets": "s" * 10**6},
    "guards": {"guards": "g" * 10**6},
}


@pytest.mark.parametrize(("piece", "changes"), TOO_LONG.items(), ids=TOO_LONG)
def test_a_piece_beyond_its_budget_is_shortened_and_says_so(piece: str, changes: dict[str, Any]) -> None:
    usual: dict[str, Any] = {
        "tools": TOOLS[:1],
        "call_form": CallForm.FENCED,
        "workspace": WORKSPACE,
        "today": MORNING.date(),
    }
    short, long = opening(**usual)[0].text, opening(**usual | changes)[0].text
    assert long.count(f"[The rest is left out: there is room for {BUDGETS[piece]:,} characters.]") == 1
    assert len(long) <= len(short) + BUDGETS[piece] + len("\n\n")
    assert long.rpartition("\n\n")[2] == short.rpartition("\n\n")[2]


def test_our_own_pieces_are_never_shortened() -> None:
    for call_form in CallForm:
        assert "left out" not in prompt(call_form=call_form)


@given(st.text(max_size=300), st.integers(100, 200))
def test_what_fits_stays_as_it_is_and_the_rest_has_exactly_the_room_there_is(text: str, budget: int) -> None:
    told = within(budget, text)
    assert (told == text) if len(text) <= budget else (len(told) == budget and told[:20] == text[:20])
    assert within(budget, told) == told


def test_a_persona_has_room_for_as_much_as_is_read() -> None:
    whole = beginning(persona=Persona("s" * MOST, "u" * MOST))[0].text
    assert "s" * MOST in whole and "u" * MOST in whole and "left out" not in whole


def test_the_date_is_that_of_the_given_time_zone() -> None:
    late = datetime.fromisoformat("2026-11-21T23:30:00-08:00")
    assert "2026-11-21" in prompt(now=late)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_each_tool_has_a_line_with_its_arguments(tool: Tool) -> None:
    assert f"- {tool.name}({signature(tool.parameters)}): {tool.description}\n" in prompt()


@pytest.mark.parametrize("kept", TOOLS, ids=lambda tool: tool.name)
def test_tools_that_are_not_offered_are_not_mentioned(kept: Tool) -> None:
    said = "\n".join(message.text for message in beginning([kept]))
    assert [tool.name for tool in TOOLS if f"- {tool.name}(" in said or f"```{tool.name}\n" in said] == [kept.name]
    assert {message.name for message in beginning([kept])} <= {None, kept.name}


@pytest.mark.parametrize("call_form", CallForm)
def test_without_tools_none_are_spoken_of(call_form: CallForm) -> None:
    messages = beginning([], call_form=call_form)
    assert [message.role for message in messages] == ["system"]
    assert "tool" not in messages[0].text and str(WORKSPACE) not in messages[0].text


def test_a_model_with_native_calls_is_not_taught() -> None:
    messages = beginning(call_form=CallForm.NATIVE)
    assert [message.role for message in messages] == ["system"]
    assert "fence" not in messages[0].text and "bash" not in messages[0].text
    assert str(WORKSPACE) in messages[0].text


def test_required_arguments_come_first_and_optional_ones_are_marked() -> None:
    schema = {"properties": {"limit": {}, "path": {}, "text": {}}, "required": ["path", "text"]}
    assert signature(schema) == "path, text, limit?"
    assert signature({}) == ""


@pytest.mark.parametrize("teaching", TEACHINGS.values(), ids=TEACHINGS)
def test_there_are_two_worked_examples_and_each_ends_in_an_answer(teaching: Teaching) -> None:
    messages = worked_examples(TOOLS, teaching)
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"] * 2


@pytest.mark.parametrize("call_form", TEACHINGS)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.tool)
def test_a_worked_example_means_to_the_parser_what_it_means_in_the_history(
    example: Example, call_form: CallForm
) -> None:
    [asked] = [message for message in example.messages(TEACHINGS[call_form]) if message.calls]
    read = parse(asked.text, SCHEMAS, fences=call_form is CallForm.FENCED).calls
    assert [(call.name, call.arguments, call.dialect) for call in read] == [
        (call.name, call.arguments, call.dialect) for call in asked.calls
    ]


def test_text_results_end_with_one_line_that_allows_an_answer() -> None:
    calls = tuple(AskedCall(f"c{number}", "bash", {"command": "ls"}, "fence") for number in range(2))
    asked = Message("assistant", "two calls", calls=calls)
    results = [Message("tool", "out", call=call.id, name=call.name) for call in calls]
    sent = wire_messages([Message("user", "Go."), asked, *results], native=False)
    told = [framed("out", call=call.id, name="bash") for call in calls]
    assert sent[-1] == {"role": "user", "content": "\n\n".join([*told, ENOUGH])}


@pytest.mark.parametrize(("tools", "times"), [(TOOLS, 1), ((), 0)], ids=["with tools", "without"])
@pytest.mark.parametrize("call_form", CallForm)
def test_the_prompt_says_once_what_a_frame_means(tools: Sequence[Tool], times: int, call_form: CallForm) -> None:
    assert prompt(tools, call_form=call_form).count(RULE) == times


@pytest.mark.parametrize("native", [True, False])
def test_results_are_never_in_the_system_prompt(native: bool) -> None:
    calls = tuple(AskedCall(f"c{dialect}", "bash", {"command": "ls"}, dialect) for dialect in ("fence", "native"))
    results = [Message("tool", "canary", call=call.id, name=call.name) for call in calls]
    asked = [Message("assistant", "a call", calls=(call,)) for call in calls]
    sent = wire_messages([*beginning(), Message("user", "Go."), *asked, *results], native=native)
    assert [one["role"] for one in sent if "canary" in one["content"]] == (["tool", "user"] if native else ["user"])


def test_the_worked_examples_are_framed_like_any_result() -> None:
    sent = wire_messages(beginning(), native=False)
    for example in EXAMPLES:
        told = framed(example.result, call="", name=example.tool, code=example.code)
        assert {"role": "user", "content": told} in [
            one | {"content": one["content"].split(f"\n\n{ENOUGH}")[0]} for one in sent
        ]


async def said_by(provider: EmbeddedProvider, conversation: Sequence[Message], tools: Sequence[Tool] = TOOLS) -> str:
    request = ModelRequest(conversation, tools, opening=beginning)
    async with aclosing(provider.stream(request)) as pieces:
        return "".join([piece.text async for piece in pieces if isinstance(piece, TextChunk)])


async def test_the_opening_is_short_in_the_embedded_models_own_tokens() -> None:
    model = EmbeddedModel()
    try:
        async with asyncio.timeout(60), httpx2.AsyncClient(headers={"authorization": f"Bearer {model.key}"}) as client:
            server = (await model.start()).removesuffix("/v1")
            for tools in (TOOLS, grown()):
                messages = wire_messages(beginning(tools), native=False)  # framed: the longer form
                templated = await client.post(f"{server}/apply-template", json={"messages": messages})
                tokens = await client.post(f"{server}/tokenize", json={"content": templated.json()["prompt"]})
                assert 0 < len(tokens.json()["tokens"]) < REST_TOKENS + TOKENS_PER_TOOL * len(tools)
    finally:
        await model.close()


@only_at_night  # by day the whole server shows it (test_newcomer)
@pytest.mark.parametrize("tools", [TOOLS, grown()], ids=["today", "twenty tools"])
async def test_the_embedded_model_calls_the_shell_and_then_answers(tools: Sequence[Tool]) -> None:
    provider = EmbeddedProvider(model_client("http://127.0.0.1", inactivity_s=60), EmbeddedModel())
    try:
        async with asyncio.timeout(100):
            conversation = [Message("user", REQUEST)]
            written = await said_by(provider, conversation, tools)
            [call] = parse(written, SCHEMAS).calls
            assert call.name == "bash" and "hello" in call.arguments["command"].lower()
            asked = AskedCall("c1", call.name, call.arguments, call.dialect)
            result = Message("tool", "hello world", call="c1", name="bash")
            conversation += [Message("assistant", written, calls=(asked,)), result]
            answer = await said_by(provider, conversation, tools)
            assert parse(answer, SCHEMAS).calls == []
            assert "hello" in answer.lower()
    finally:
        await provider.close()


@only_at_night  # by day the parser shows what is no call where no fences are taught (test_fences)
async def test_a_script_that_is_only_asked_for_is_shown_where_no_fences_are_taught() -> None:
    """To a model that is taught fences the same reply is a call."""
    async with embedded() as (model, _), model_client("http://127.0.0.1", inactivity_s=60) as client:
        assert model.url
        told, defaults = AbilityOverrides("tagged"), RequestDefaults(128, 0.0)
        chat = BareChat(client, model.url, "m", model.key, overrides=told, defaults=defaults)
        request = Message("user", "Write me a Python script that prints the first ten squares. Do not run it.")
        asked = ModelRequest([request], TOOLS, opening=partial(beginning, call_form=chat.call_form))
        reply = Reply(SCHEMAS, fences=lambda: chat.call_form is CallForm.FENCED, new_id=lambda: "c1")
        for piece in await pieces_of(chat, asked):
            list(reply.add(piece))
        list(reply.end())
    assert reply.calls == [] and "```python\n" in reply.shown and "print" in reply.shown
    assert [call.name for call in parse(reply.shown, SCHEMAS).calls] == ["python"]
