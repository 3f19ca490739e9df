"""Which model is used: what the settings name, else what already runs on this machine, else the embedded one."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import get_args

import pytest

from app.core.endpoint_spec import WireFormat
from app.core.messages import Message
from app.core.provider import CallForm, Finished, ModelRequest, Provider, ProviderFailed, TextChunk
from app.models.capabilities.discovery import KNOWN_SERVERS, discover
from app.models.capabilities.server_profiles import Profile
from app.models.endpoints.startup import open_models
from app.models.http.client import base_url_of, is_local, model_client
from app.models.providers import PROVIDERS, provider_kind
from app.redaction.redactor import Redactor
from app.storage.sqlite.store import SQLiteStore
from routes.cli.endpoints import choices
from tests.support.models.upstream import Act, Paths, answer, hang, stream, upstream
from tests.support.server.serving import settings_in

pytestmark = pytest.mark.anyio
LIMIT_S = 30
ASKED = ModelRequest([Message("user", "Hello")])
WHOLE = stream('data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')


def models(*names: str) -> Act:
    return answer(json.dumps({"object": "list", "data": [{"id": name} for name in names]}))


def test_every_wire_format_has_its_row() -> None:
    formats = get_args(WireFormat)
    assert {kind.format for kind in PROVIDERS} == set(formats)
    assert choices("format") == formats and choices("tool_calls") == ("auto", "native", "tagged", "fenced")


async def said_by(provider: Provider) -> list[object]:
    async with asyncio.timeout(LIMIT_S), aclosing(provider.stream(ASKED)) as pieces:
        return [piece async for piece in pieces]


@asynccontextmanager
async def free_port() -> AsyncGenerator[int, None]:
    """A port on which nothing listens, for sure."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example ESMTP\r\n")


OTHER_SOFTWARE = {
    "a page": answer("<html>Jenkins</html>", kind="text/html"),
    "not found": answer('{"data":[{"id":"x"}]}', 404),
    "a huge body": answer(b'{"data":[{"id":"' + b"x" * 2_000_000 + b'"}]}'),
    "deep JSON": answer("[" * 100_000),
    "other JSON": answer('{"status":"ok"}'),
    "a list of other things": answer('{"data":[1,null,{"name":"x"}]}'),
    "no models": models(),
    "only models that embed": models("nomic-embed-text"),
    "silence": hang,
    "not HTTP": greet,
}


@pytest.mark.parametrize("act", OTHER_SOFTWARE.values(), ids=OTHER_SOFTWARE)
async def test_other_software_on_a_well_known_port_is_passed_by(act: Act) -> None:
    async with asyncio.timeout(LIMIT_S), upstream(act) as other, upstream(models("qwen")) as real, free_port() as free:
        table = [Profile("A", port=free), Profile("B", port=other.port), Profile("C", port=real.port)]
        async with model_client("http://127.0.0.1") as client:
            found = await discover(client, table)
    assert found
    assert (found.server.name, found.model) == ("C", "qwen")


async def test_the_first_of_the_table_wins() -> None:
    async with asyncio.timeout(LIMIT_S), upstream(models("one")) as first, upstream(models("two")) as second:
        table = [Profile("A", port=first.port), Profile("B", port=second.port)]
        async with model_client("http://127.0.0.1") as client:
            found = await discover(client, table)
            nothing = await discover(client, [])
    assert found
    assert found.model == "one"
    assert nothing is None


def test_the_well_known_ports() -> None:
    assert [(server.name, server.port) for server in KNOWN_SERVERS] == [
        ("llama.cpp", 8080),
        ("vLLM", 8000),
        ("SGLang", 30000),
        ("LM Studio", 1234),
        ("Ollama", 11434),
    ]


@asynccontextmanager
async def opened(
    folder: Path, *, known: Sequence[Profile] = (), **flags: object
) -> AsyncGenerator[tuple[Provider, str], None]:
    """The model that answers by default, and what is said of it."""
    settings = settings_in(folder, **flags)
    store = await SQLiteStore.open(folder / "test.db")
    try:
        async with open_models(settings, store, Redactor(), {}, known_servers=known) as found:
            yield found.models.default.provider, found.about
    finally:
        await store.close()


async def test_a_server_that_runs_already_is_used(tmp_path: Path) -> None:
    paths = Paths({"/v1/models": models("qwen")})
    async with asyncio.timeout(LIMIT_S), upstream(paths, repeat=True) as server:
        paths.server = server
        known = Profile("Ollama", port=server.port)
        async with opened(tmp_path, known=[known]) as (provider, sentence):
            assert provider.model == "qwen"
    assert sentence == f"Model: qwen at {server.base_url} (found on the port of Ollama)."


async def test_a_configured_server_names_its_first_model(tmp_path: Path) -> None:
    paths = Paths({"/v1/models": models("nomic-embed-text", "qwen"), "/v1/chat/completions": WHOLE})
    async with asyncio.timeout(LIMIT_S), upstream(paths, repeat=True) as server:
        paths.server = server
        async with opened(tmp_path, model_url=server.base_url, model_key="sk-1") as (provider, sentence):
            assert provider.model == "qwen"
            assert await said_by(provider) == [TextChunk("Hi"), Finished("stop")]
    assert sentence == f"Model: qwen at {server.base_url} (as configured)."
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer sk-1"}
    assert [asked.json["model"] for asked in server.asked if asked.method == "POST"] == ["qwen"]


async def test_a_configured_model_is_not_looked_up(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/v1"
    async with opened(tmp_path, model_url=url, model="gpt", tool_calls="fenced") as (provider, sentence):
        assert (provider.model, provider.call_form) == ("gpt", CallForm.FENCED)
    assert sentence == "Model: gpt at http://127.0.0.1:9/v1 (as configured)."


async def test_a_configured_server_that_is_down_fails_each_run_until_it_is_up(tmp_path: Path) -> None:
    async with free_port() as port, opened(tmp_path, model_url=f"http://127.0.0.1:{port}/v1") as (provider, sentence):
        with pytest.raises(ProviderFailed) as failed:
            await said_by(provider)
    assert (failed.value.code, failed.value.retryable) == ("model_down", True)
    assert "start your server or set DRAGOMAN_MODEL_URL" in sentence


async def test_the_script_needs_no_server(tmp_path: Path) -> None:
    async with opened(tmp_path, model_url="scripted:") as (provider, sentence):
        assert "demonstrations" in sentence
        assert Finished("stop") in await said_by(provider)


@pytest.mark.parametrize("url", ["ftp://host/v1", "localhost:8080", "http://", "https:///v1", "8080"])
def test_a_url_that_cannot_be_one_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="it must start with one of http:, https:, embedded:, scripted:"):
        provider_kind(url)


def test_every_scheme_has_one_row() -> None:
    pairs = [
        (scheme, kind.format, host) for kind in PROVIDERS for scheme in kind.schemes for host in (kind.hosts or ("",))
    ]
    assert len(set(pairs)) == len(pairs)
    assert {scheme for scheme, *_ in pairs} == {"embedded", "http", "https", "scripted", "served"}


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("http://h:1/v1/", "http://h:1/v1"),
        ("https://h/openai/v1/chat/completions", "https://h/openai/v1"),
        ("http://h:8080/v1/models/", "http://h:8080/v1"),
        (" http://h/v1 ", "http://h/v1"),
    ],
)
def test_base_urls_are_forgiven_their_endings(url: str, base: str) -> None:
    assert base_url_of(url) == base


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1/v1", True),
        ("http://127.8.9.1/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://192.168.1.2/v1", True),
        ("http://box.local/v1", True),
        ("https://api.example.com/v1", False),
        ("https://8.8.8.8/v1", False),
    ],
)
def test_proxies_are_for_remote_hosts(url: str, local: bool) -> None:
    assert is_local(url) is local
