"""What is known of a model and how: each kind of server, in which order it is believed, and how seldom it is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from hypothesis import given
from msgspec.structs import replace

from app.core.provider import Ability
from app.models.capabilities.abilities import (
    AGAIN_S,
    LOCAL_AGE_S,
    MOST_MODELS,
    SHOWN,
    SHOWN_S,
    AbilityCache,
    AbilityOverrides,
)
from app.models.capabilities.capability_readings import MOST_SLOTS, OF_DETAILS, OF_ENTRY, OF_PROPERTIES, entry_of, read
from app.models.http.client import model_client
from app.models.http.prompt_too_long import LARGEST, SMALLEST
from app.models.http.served_model import ServedModel
from app.models.wire.openai.provider import OpenAIChat
from tests.support.models.abilities import MISSING, PROPS, SERVERS, SLOT, endpoint, json_values, models, said
from tests.support.models.chatting import LIMIT_S
from tests.support.models.sockets import close_at_once
from tests.support.models.upstream import Act, announced, answer, hang, upstream

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", SERVERS)
async def test_what_a_server_says_of_its_model_is_known(kind: str) -> None:
    acts, known = SERVERS[kind]
    async with endpoint(acts) as (one, server):
        abilities = AbilityCache()
        assert await abilities.window(one) == known.get("window")
        rows = {row.name: row for row in abilities.rows(one)}
    assert {name: row.value for name, row in rows.items() if row.source != "unknown"} == known
    assert {row.source for row in rows.values()} <= {"server", "unknown"}
    assert all(row.detail.startswith("/") for row in rows.values() if row.source == "server")
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer sk-1"}


# What is set, shown, said and suggested of a model's tools, and what is made of that.
BELIEVED: list[tuple[AbilityOverrides, bool | None, bool | None, str, tuple[bool | None, str]]] = [
    (AbilityOverrides("native"), False, False, "gemma-2", (True, "setting")),
    (AbilityOverrides("fenced"), True, True, "gpt-4o", (False, "setting")),
    (AbilityOverrides(), False, True, "gpt-4o", (False, "answer")),
    (AbilityOverrides(), True, None, "gemma-2", (True, "answer")),
    (AbilityOverrides(), None, False, "gpt-4o", (False, "server")),
    (AbilityOverrides(), None, True, "gemma-2", (True, "server")),
    (AbilityOverrides(), None, None, "gpt-4o", (True, "name")),
    (AbilityOverrides(), None, None, "gemma-2", (False, "name")),
    (AbilityOverrides(), None, None, "m", (None, "unknown")),
]


@pytest.mark.parametrize(("stated", "shown", "told", "model", "believed"), BELIEVED)
async def test_who_is_believed(
    stated: AbilityOverrides, shown: bool | None, told: bool | None, model: str, believed: tuple[bool | None, str]
) -> None:
    entry = {"id": model, "context_length": 8192}
    if told is not None:
        entry["supported_parameters"] = ["tools"] if told else []
    async with endpoint({"/v1/models": said({"data": [entry]})}, model) as (one, _):
        abilities = AbilityCache()
        await abilities.window(one)
        if shown is not None:
            abilities.show(one, "tools", shown, "an answer")
        found = abilities.find(one, "tools", stated)
        assert (found.value, found.source) == believed


def test_everything_that_is_set_holds() -> None:
    stated = AbilityOverrides("native", images=False, pdf=True, window=1024)
    one = ServedModel(httpx2.AsyncClient(), "http://127.0.0.1:9/v1", "gpt-4o")
    rows = {row.name: (row.value, row.source) for row in AbilityCache().rows(one, stated)}
    assert tuple(rows) == SHOWN
    for name, value in {"tools": True, "images": False, "pdf": True, "window": 1024}.items():
        assert rows[name] == (value, "setting")


async def test_it_is_asked_once_however_many_ask() -> None:
    acts = {"/v1/models": models(), "/props?model=m": SLOT, "/apply-template": MISSING}
    async with endpoint(acts) as (one, server):
        abilities = AbilityCache()
        assert await asyncio.gather(*(abilities.window(one) for _ in range(20))) == [4096] * 20
        assert [asked.path for asked in server.asked] == ["/v1/models", "/props?model=m", "/apply-template"]
        other = ServedModel(one.client, one.base_url, "other", "sk-1")
        assert await abilities.window(other) == 700  # each model of its own


async def test_after_a_failure_it_is_asked_again_but_not_at_once() -> None:
    now = 0.0
    acts: dict[str, Act] = {"/v1/models": answer("{}", 503)}
    async with endpoint(acts) as (one, server):
        abilities = AbilityCache(clock=lambda: now)
        for _ in range(5):
            assert await abilities.window(one) is None
        assert len(server.asked) == 1
        acts["/v1/models"] = models(max_model_len=8192)
        now = AGAIN_S
        assert await abilities.window(one) == 8192


async def test_what_was_known_holds_while_the_server_is_away() -> None:
    now = 0.0
    acts: dict[str, Act] = {"/v1/models": models(max_model_len=8192)}
    async with endpoint(acts) as (one, _):
        abilities = AbilityCache(clock=lambda: now)
        await abilities.window(one)
        acts["/v1/models"] = answer("{}", 503)
        now = LOCAL_AGE_S
        assert await abilities.window(one) == 8192


def props(template: str) -> Act:
    return said(PROPS | {"chat_template": template})


@pytest.mark.parametrize(("template", "forgotten"), [("{{ other }} {{ tools }}", True), ("{{ tools }}", False)])
async def test_a_server_with_another_template_is_another_one(template: str, forgotten: bool) -> None:
    """What answers have shown goes with the model that gave them."""
    now = 0.0
    acts: dict[str, Act] = {"/v1/models": models(), "/props?model=m": props("{{ tools }}")}
    async with endpoint(acts) as (one, _):
        abilities = AbilityCache(clock=lambda: now)
        await abilities.window(one)
        abilities.show(one, "tools", False, "status 400")
        acts["/props?model=m"] = props(template)
        await abilities.window(one)
        assert abilities.find(one, "tools").source == "answer"  # nobody has asked yet
        now = LOCAL_AGE_S
        await abilities.window(one)
        assert abilities.find(one, "tools").source == ("server" if forgotten else "answer")


async def test_a_server_that_was_lost_is_asked_when_it_is_back() -> None:
    acts: dict[str, Act] = {"/v1/models": models(), "/props?model=m": props("{{ tools }}")}
    async with endpoint(acts) as (one, _):
        abilities = AbilityCache()
        await abilities.window(one)
        acts["/props?model=m"] = props("without")
        abilities.doubt(one)
        await abilities.window(one)
        assert abilities.find(one, "tools") == Ability("tools", False, "server", "/props")


async def test_a_server_that_stays_away_is_not_asked_by_each_run() -> None:
    acts: dict[str, Act] = {"/v1/models": models(max_model_len=8192)}
    async with endpoint(acts) as (one, server):
        abilities = AbilityCache(clock=lambda: 0.0)
        await abilities.window(one)
        acts["/v1/models"] = answer("{}", 503)
        for _ in range(5):
            abilities.doubt(one)
            assert await abilities.window(one) == 8192
    assert len(server.asked) == 2


def test_what_an_answer_has_shown_holds_for_a_while() -> None:
    now = 0.0
    abilities, one = (
        AbilityCache(clock=lambda: now),
        ServedModel(httpx2.AsyncClient(), "http://127.0.0.1:9/v1", "gpt-4o"),
    )
    abilities.show(one, "tools", False, "status 400")
    for now, source in ((SHOWN_S - 1, "answer"), (SHOWN_S, "name")):  # noqa: B007 (the clock)
        assert abilities.find(one, "tools").source == source


async def test_whoever_asked_and_left_keeps_nobody_from_asking() -> None:
    begun = asyncio.Event()
    acts = {"/v1/models": announced(begun, hang)}
    async with endpoint(acts) as (one, _):
        abilities = AbilityCache()
        first = asyncio.create_task(abilities.window(one))
        await begun.wait()
        acts["/v1/models"] = models(max_model_len=8192)
        second = asyncio.create_task(abilities.window(one))
        first.cancel()
        assert await second == 8192


async def test_whoever_asks_about_one_model_does_not_wait_for_another() -> None:
    begun = asyncio.Event()
    acts = {"/v1/models": announced(begun, hang)}
    async with endpoint(acts) as (one, _):
        abilities = AbilityCache(limit_s=LIMIT_S)
        first = asyncio.create_task(abilities.window(replace(one, model="other")))
        await begun.wait()
        acts["/v1/models"] = models(max_model_len=8192)
        assert await abilities.window(one) == 8192
        first.cancel()


def test_of_models_with_any_names_so_many_are_remembered() -> None:
    abilities, one = AbilityCache(), ServedModel(httpx2.AsyncClient(), "http://127.0.0.1:9/v1", "first")
    for name in ("first", *map(str, range(MOST_MODELS))):
        abilities.show(replace(one, model=name), "tools", True, "a test")
    assert abilities.find(one, "tools").source == "unknown"
    assert abilities.find(replace(one, model="1023"), "tools").source == "answer"


async def test_a_connection_that_had_ended_is_no_failure() -> None:
    async with asyncio.timeout(LIMIT_S), upstream(close_at_once, models(max_model_len=8192)) as server:
        async with model_client(server.base_url) as client:
            assert await AbilityCache().window(ServedModel(client, server.base_url, "m")) == 8192


async def test_nobody_there_is_no_window() -> None:
    async with endpoint({}) as (one, _):
        gone = ServedModel(one.client, "http://127.0.0.1:9/v1", "m")
        assert await AbilityCache().window(gone) is None
        assert await AbilityCache().count(gone, ["a"]) is None


async def test_a_silent_server_is_given_up() -> None:
    async with endpoint({"/v1/models": hang}) as (one, _):
        assert await AbilityCache(limit_s=0.05).window(one) is None


async def test_a_hosted_service_is_asked_once_and_not_for_what_only_local_ones_have() -> None:
    asked, now = [], 0.0

    def hosted(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        found = request.url.path == "/v1/models"
        return httpx2.Response(200 if found else 404, json={"data": [{"id": "m"}]} if found else {})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(hosted)) as client:
        one, abilities = ServedModel(client, "https://api.example.com/v1", "m"), AbilityCache(clock=lambda: now)
        for now in (0.0, AGAIN_S, 2 * AGAIN_S):  # noqa: B007 (the clock)
            assert await abilities.window(one) is None
            assert await abilities.count(one, ["a"]) is None
    assert asked == ["/v1/models", "/props"]


FIELDS = sorted({name for row in (*OF_ENTRY, *OF_PROPERTIES, *OF_DETAILS) for name in row.field if name != 0}, key=str)


@given(json_values("data", "models", "id", "name", "m", *map(str, FIELDS)))
def test_any_json_is_read_without_a_fault(value: Any) -> None:
    for rows in (OF_ENTRY, OF_PROPERTIES, OF_DETAILS):
        for found in (read(rows, value), read(rows, entry_of(value, "m"))):
            assert all(isinstance(found.get(name, True), bool) for name in ("tools", "images", "pdf"))
            assert SMALLEST <= int(found.get("window", SMALLEST)) <= LARGEST
            assert 1 <= int(found.get("slots", 1)) <= MOST_SLOTS


async def test_a_provider_keeps_what_it_has_found_until_something_changes() -> None:
    now = 0.0
    async with model_client("http://127.0.0.1:9/v1") as client:
        abilities = AbilityCache(clock=lambda: now)
        chats = [OpenAIChat(client, "http://127.0.0.1:9/v1", "gpt-4o", abilities=abilities) for _ in range(2)]
        assert [chat.ability("tools").source for chat in chats] == ["name", "name"]
        chats[0].show("tools", False, "status 400")  # the cache is shared
        assert [chat.native_tools for chat in chats] == [False, False]
        now += SHOWN_S
        assert [chat.ability("tools").source for chat in chats] == ["name", "name"]
        chats[0].show("prompt_suffix", "<think>", "it was seen")
        assert [chat.prompt_suffix() for chat in chats] == ["<think>", "<think>"]
        abilities.unshow(ServedModel(client, "http://127.0.0.1:9/v1", "gpt-4o"), "prompt_suffix")
        assert [chat.prompt_suffix() for chat in chats] == ["", ""]
        chats[0].model = "gemma-2"
        assert [chat.native_tools for chat in chats] == [False, True]
