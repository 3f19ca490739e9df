"""Counting against a real llama.cpp server: what is measured is what it reports of the whole request."""

from __future__ import annotations

from contextlib import aclosing

import httpx2
import pytest
from msgspec.structs import replace

from app.core.clock import Clock
from app.core.messages import AskedCall, Message
from app.core.provider import ModelRequest, Provider, ProviderFailed, TokenUsage
from app.models.capabilities.abilities import AbilityOverrides
from app.models.embedded.provider import EmbeddedProvider
from app.models.embedded.supervisor import SMOLLM2, EmbeddedModel
from app.models.http.client import model_client
from app.models.tokens.counter import ROLE, TokenCounter
from app.models.wire.openai.history import WireMessage, wire_messages
from app.models.wire.openai.provider import OpenAIChat
from tests.support.models.real_models import embedded, need_embedded

pytestmark = pytest.mark.anyio
RESULTS = (
    "def area(r):\n    return 3.14159 * r**2  # of a circle\n" * 12,
    "Прочитай файл и скажи, что в нём написано. " * 8,
    "请阅读文件并告诉我里面有什么。" * 12,
    "اقرأ الملف وأخبرني بما فيه " * 8,
    '{"id": 4711, "tags": ["a", "b"], "name": "Ünïcode"}\n' * 10,
    "drwxr-xr-x 2 root root 4096 Jan  1 00:00 x86_64\n" * 15,
    "\U0001f600\U0001f680 \ud800 <|im_end|>" * 9,
)


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    need_embedded()


async def reported(provider: Provider, messages: list[Message]) -> int:
    """Tokens of the prompt, as the server has counted them in reading it."""
    async with aclosing(provider.stream(ModelRequest(messages, max_tokens=1))) as pieces:
        [used] = [piece async for piece in pieces if isinstance(piece, TokenUsage)]
    return used.prompt_tokens


async def rendered(client: httpx2.AsyncClient, model: EmbeddedModel, messages: list[WireMessage]) -> int:
    """The same without the reading, which takes long: the prompt as the server's template writes it, counted."""
    root = (await model.start()).removesuffix("/v1")
    headers = {"authorization": f"Bearer {model.key}"}
    prompt = (await client.post(f"{root}/apply-template", json={"messages": messages}, headers=headers)).json()
    body = {"content": prompt["prompt"], "add_special": True}
    return len((await client.post(f"{root}/tokenize", json=body, headers=headers)).json()["tokens"])


def conversation() -> list[Message]:
    history = [Message("system", "You are a helpful assistant with tools. " * 10)]
    for turn, text in enumerate(RESULTS):
        call = AskedCall(f"c{turn}", "bash", {"command": f"cat {turn}.txt"}, "fence")
        history += [
            Message("user", f"What is in file {turn}?", at=1_800_000_000.0 + turn),
            Message("assistant", f"I look.\n\n```bash\ncat {turn}.txt\n```", calls=(call,)),
            Message("tool", text, call=call.id, name="bash", untrusted=turn % 2 == 0),
        ]
    return history


async def test_a_conversation_is_measured_as_the_server_counts_it() -> None:
    """Within 5 %: with bare results, and as any llama.cpp server gets it, framed and with times."""
    async with embedded() as (model, provider), model_client("http://127.0.0.1") as client:
        root, history = await model.start(), conversation()
        framed = OpenAIChat(
            client, root, SMOLLM2.name, model.key, overrides=AbilityOverrides("fenced"), clock=Clock("UTC")
        )
        for asked, bare, clock in ((provider, True, None), (framed, False, Clock("UTC"))):
            counter = TokenCounter(asked)
            await counter.prepare(history)
            for part in (history[:2], history[:4], history[:10], history):
                real = await rendered(client, model, wire_messages(part, native=False, bare=bare, clock=clock))
                assert sum(map(counter.measure, part)) == pytest.approx(real, rel=0.05)
        short = history[:2]
        assert await reported(provider, short) == await rendered(client, model, wire_messages(short, native=False))


async def test_an_estimate_is_put_right_by_one_report() -> None:
    """At first it may be off by half; from then on it is no more too low for the same kind of text."""
    async with embedded() as (model, provider), model_client("http://127.0.0.1") as client:
        counter, history = TokenCounter(provider), conversation()
        real = await rendered(client, model, wire_messages(history, native=False, bare=True))
        measured = sum(map(counter.measure, history))
        assert 0.5 < measured / real < 2
        counter.learn(measured, real, counter.scale)
        assert sum(map(counter.measure, history)) >= min(real, measured)


async def test_the_window_is_that_of_a_slot_and_a_refusal_names_the_same() -> None:
    async with embedded() as (model, provider):
        counter = TokenCounter(provider)
        async with httpx2.AsyncClient(trust_env=False, headers={"authorization": f"Bearer {model.key}"}) as client:
            props = (await client.get(f"{(await model.start()).removesuffix('/v1')}/props")).json()
        window = await counter.window()
        assert window == props["default_generation_settings"]["n_ctx"] == SMOLLM2.context
        too_long = [Message("user", "hello " * (window + 9))]
        await counter.prepare(too_long)
        assert counter.measure(too_long[0]) > window + ROLE
        with pytest.raises(ProviderFailed) as refused:
            await reported(provider, too_long)
        assert (refused.value.code, refused.value.window) == ("model_context", window)


async def test_a_model_that_cannot_be_started_has_no_window() -> None:
    missing = EmbeddedModel(replace(SMOLLM2, package="no_such_weights"))
    provider = EmbeddedProvider(model_client("http://127.0.0.1"), missing)
    assert await provider.window() is None
    assert await provider.count_tokens(["a"]) is None
    await provider.close()
