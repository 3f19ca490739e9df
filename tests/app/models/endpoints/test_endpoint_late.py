"""Model servers that come up later, and those that come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from app.core.endpoint_spec import EndpointSpec
from app.core.provider import ProviderFailed
from app.models.capabilities.abilities import REFUSED_AGAIN_S, AbilityCache
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.keys import Key
from app.models.endpoints.server_state import ServerState
from app.models.http.client import model_client
from app.models.providers import provider_kind
from app.models.server_connection import ConnectionOptions
from app.models.wire.openai.provider import OpenAIChat
from tests.support.models.chatting import LIMIT_S, WHOLE, pieces_of
from tests.support.models.targets import Time
from tests.support.models.upstream import Act, Paths, Upstream, answer, upstream

pytestmark = pytest.mark.anyio

DOWN = ProviderFailed("model_down", "Nothing listens there.", retryable=True)
WINDOW = answer(json.dumps({"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}]}))


async def free_port() -> int:
    async with upstream() as server:
        return server.port


@asynccontextmanager
async def at(port: int, listed: Act = WINDOW) -> AsyncGenerator[Upstream, None]:
    """A server on this port that lists the model `m`."""
    paths = Paths({"/v1/models": listed, "/v1/chat/completions": WHOLE})
    async with upstream(paths, repeat=True, port=port) as server:
        paths.server = server
        yield server


async def at_once() -> None:
    """Nothing is paused."""


@asynccontextmanager
async def learning(port: int, **spec: Any) -> AsyncGenerator[Endpoint, None]:
    """An endpoint there that is asked for its models in the background: hardly ever, if its server were not local."""
    wanted = EndpointSpec(url=f"http://127.0.0.1:{port}/v1", **spec)
    one = Endpoint(
        "a", wanted, "settings", provider_kind(wanted.url).connect(wanted, None, ConnectionOptions()), ServerState("a")
    )
    async with asyncio.timeout(LIMIT_S):
        task = asyncio.create_task(one.learn_forever(at_once, soon_s=LIMIT_S, often_s=0, local_soon_s=0.01))
        try:
            yield one
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await one.close()


def state(one: Endpoint) -> tuple[str, str]:
    status = one.server.status()
    return status["state"], (status["last_error"] or {}).get("code", "")


async def until(met: Callable[[], bool]) -> None:
    while not met():
        await give_way()


async def give_way() -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("spec", [{}, {"model": "m"}], ids=["auto", "named"])
async def test_a_local_server_that_comes_up_later_is_found_without_a_request(spec: dict[str, Any]) -> None:
    port = await free_port()
    async with learning(port, **spec) as one:
        await until(lambda: state(one) == ("dead", "model_down"))
        async with at(port):
            await until(lambda: state(one) == ("ok", ""))
            await until(lambda: one.default.counter.known_window == 8192)
            assert one.models() == ("m",) and one.default.provider.model == "m"


async def test_models_that_are_the_only_ones_are_asked_about_again_when_their_server_is_back() -> None:
    port = await free_port()
    async with learning(port, models=["m"]) as one:
        one.server.failed(DOWN)  # as a request has found
        async with at(port):
            await until(lambda: state(one) == ("ok", ""))
            await until(lambda: one.default.counter.known_window == 8192)


@pytest.mark.parametrize("model", ["auto", "m"])
async def test_the_first_request_knows_the_window(model: str) -> None:
    port, time = await free_port(), Time()
    base_url = f"http://127.0.0.1:{port}/v1"
    async with asyncio.timeout(LIMIT_S), model_client(base_url) as client:
        chat = OpenAIChat(client, base_url, model, abilities=AbilityCache(clock=lambda: time.now))
        assert await chat.window() is None
        time.now += REFUSED_AGAIN_S
        async with at(port):
            assert await chat.window() == 8192


async def test_a_server_that_answers_is_asked_again_what_it_can_do() -> None:
    port = await free_port()
    async with asyncio.timeout(LIMIT_S), at(port, answer("{}", 503)) as server, model_client(server.base_url) as client:
        chat = OpenAIChat(client, server.base_url, "m")
        assert await chat.window() is None
        probes = len(server.asked)
        assert await chat.window() is None and len(server.asked) == probes, "not in every round"
        await pieces_of(chat)
        assert await chat.window() is None and len(server.asked) > probes + 1
        probes = len(server.asked)
        await pieces_of(chat)
        assert await chat.window() is None and len(server.asked) == probes + 1, "not after every answer"


def test_a_server_turns_twice() -> None:
    turned, server = list[str](), Time().server("a")
    server.turned = lambda: turned.append(server.status()["state"])
    for _ in range(2):
        server.failed(DOWN)
    for _ in range(2):
        server.answered("m", Key())
    assert turned == ["dead", "ok"]


def test_another_error_stays_on_show() -> None:
    server = Time().server("a")
    server.failed(ProviderFailed("model_cut", "It broke off.", retryable=True))
    server.answered("m", Key())
    assert (server.status()["state"], server.status()["last_error"]["code"]) == ("ok", "model_cut")


def test_a_list_of_models_does_not_say_that_they_answer() -> None:
    server = Time().server("a")
    server.failed(ProviderFailed("model_down", "The gateway cannot reach the model.", retryable=True, status=503))
    assert (server.status()["state"], server.health.cooling) == ("cooling", {})
    server.health.listed()
    assert (server.status()["state"], server.status()["last_error"]["code"]) == ("cooling", "model_down")
    server.answered("m", Key())
    assert (server.status()["state"], server.status()["last_error"]) == ("ok", None)
