"""Served models in a whole server: over HTTP, on the command line, and through `kill -9` of either process."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.models.embedded.supervisor import SMOLLM2, package_folder
from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.models.endpoints import LIMIT_S, NOWHERE, model_server
from tests.support.models.gguf_files import FIELDS, gguf, written
from tests.support.models.real_models import need_embedded
from tests.support.sandbox.processes import ended
from tests.support.server.dragoman_process import run_dragoman, server
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
START_S, LOOK_S = 60, 0.1
CAPITAL = {
    "message": "What is the capital of France? Answer in one word.",
    "model": "small",
    "max_output_tokens": 8,
    "tools": [],
    "system": {"mode": "replace", "text": "Answer."},
}


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    need_embedded()


def weights() -> Path:
    return package_folder(SMOLLM2.package) / SMOLLM2.file


async def until_ready(client: httpx2.AsyncClient, name: str = "small") -> dict[str, Any]:
    async with asyncio.timeout(START_S):
        while (state := (await client.get(f"/served-models/{name}")).json())["state"] != "ready":
            assert state["state"] in ("starting", "asleep"), state
            again = asyncio.Event()  # the core is the model's meanwhile
            asyncio.get_running_loop().call_later(LOOK_S, again.set)
            await again.wait()
    assert isinstance(state, dict)
    return state


@contextmanager
def no_garbage_collected() -> Iterator[None]:
    """As in a server that does little: cycles of references live for hours."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def typed(folder: Path, *words: object) -> tuple[int, str, str]:
    """`dragoman model` in a process of its own."""
    places = ("--data-dir", str(folder / "data"), "--workspace", str(folder / "work"))
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "DRAGOMAN_URL": "http://127.0.0.1:9"}
    done = run_dragoman("model", *map(str, words), *places, environ=environ)
    return done.returncode, done.stdout, done.stderr


async def test_a_served_model_outlives_its_crash_and_not_its_server(tmp_path: Path) -> None:
    added = typed(tmp_path, "add", weights(), "--name", "small", "--context", 2048, "--serve", "--at-start")
    assert added[0] == 0, added
    assert "small is served as small/" in added[1]
    async with server(tmp_path, "scripted:") as (client, dragoman):
        first = (await until_ready(client))["pid"]
        os.kill(first, signal.SIGKILL)
        answer = (await client.post("/chat", json=CAPITAL)).text
        assert "event: run.finished" in answer
        second = (await until_ready(client))["pid"]
        assert second != first
        dragoman.kill()
        assert await asyncio.to_thread(ended, second)
    async with server(tmp_path, "scripted:") as (client, _):
        third = await until_ready(client)  # it is durable, and starts with the server
        assert "load_model" in third["log"]
        stopped = (await client.post("/served-models/small/stop")).json()
        assert stopped["state"] == "off"
        assert await asyncio.to_thread(ended, third["pid"])


async def names(served: Served) -> set[str]:
    listed = (await served.client.get("/v1/models")).json()["data"]
    return {model["id"] for model in listed}


async def test_admins_add_serve_stop_and_remove_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "small.gguf").write_bytes(weights().read_bytes())
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["x"]), model_folders=str(folder)) as served:
        assert served.services.endpoints.serving
        assert served.services.endpoints.serving.pool is None  # nothing was added
        body = {"file": "small.gguf", "context": 1024, "cache_type": "q8_0"}
        added = await served.client.post("/served-models", json=body)
        assert (added.status_code, added.json()["state"]) == (201, "off")
        overview = (await served.client.get("/served-models")).json()
        assert overview["files"] == [str(folder / "small.gguf")]
        assert (await served.client.get("/v1/models")).status_code == 200
        before = await names(served)
        await served.client.post("/served-models/small/serve")
        ready = await until_ready(served.client)
        assert ready["memory"]["total"] == sum(ready["memory"][part] for part in ("weights", "cache", "working"))
        assert [one for one in await names(served) - before if one.startswith("small/")]
        [row] = [one for one in (await served.client.get("/endpoints")).json()["endpoints"] if one["name"] == "small"]
        assert (row["kind"], row["max_requests"]) == ("served", 1)
        assert served.services.endpoints["small"].spec.window == 1024
        with no_garbage_collected():
            assert (await served.chat(**CAPITAL))[-1]["type"] == "run.finished"
            assert (await served.client.delete("/served-models/small")).status_code == 204
            assert await asyncio.to_thread(ended, ready["pid"])
        assert await names(served) == before
        audit = (await served.client.get("/audit")).json()["audit"]
        assert {"added", "served", "removed"} <= {one["decision"] for one in audit}


WRONG: Mapping[str, tuple[dict[str, object], int, str]] = {
    "no file": ({}, 422, "file"),
    "unknown field": ({"file": "tiny.gguf", "path": "x"}, 422, "path"),
    "outside": ({"file": "/etc/passwd"}, 422, "is not in model_folders"),
    "above": ({"file": "../secret.gguf"}, 422, "is not in model_folders"),
    "missing": ({"file": "missing.gguf"}, 422, "No such file"),
    "no model": ({"file": "text.gguf"}, 422, "is no GGUF file"),
    "too much context": ({"file": "tiny.gguf", "context": 65536}, 422, "Choose at most 2,048"),
    "a name with a slash": ({"file": "tiny.gguf", "name": "a/b"}, 422, "cannot be its name"),
    "a name in use": ({"file": "tiny.gguf", "name": "ours"}, 409, "another --name"),
    "no type": ({"file": "tiny.gguf", "cache_type": "q2"}, 422, "cache_type"),
    "too little memory": ({"file": "big.gguf", "serve": True}, 409, "--context 1024"),
}


async def test_what_cannot_be_served_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    written(folder / "tiny.gguf")
    written(folder / "text.gguf", b"text")
    deep = {**FIELDS, "llama.block_count": 128, "llama.attention.key_length": 128}
    written(folder / "big.gguf", gguf({**deep, "llama.attention.value_length": 128}))
    (tmp_path / "dragoman.toml").write_text(f'[endpoints.ours]\nurl = "{NOWHERE}"\n')
    flags: dict[str, Any] = {"model_folders": str(folder), "model_memory_mb": "500"}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["x"]), **flags) as served:
        for name, (body, status, words) in WRONG.items():
            answer = await served.client.post("/served-models", json=body)
            assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True), (
                name,
                answer.text,
            )
        for path in ("/served-models/nowhere/serve", "/served-models/nowhere/stop"):
            assert (await served.client.post(path)).status_code == 404
        ann = await bearer(served, "ann")
        for method, path in (("GET", ""), ("POST", ""), ("GET", "/tiny"), ("DELETE", "/tiny"), ("POST", "/tiny/serve")):
            answer = await served.client.request(method, f"/served-models{path}", headers=ann, json={})
            assert answer.status_code == 403, (method, path)


async def test_the_command_line_does_the_same_without_a_server(tmp_path: Path) -> None:
    tiny = written(tmp_path / "models" / "tiny.gguf")
    asked = [
        (("list",), 0, "No model was added"),
        (("add", tmp_path / "nowhere.gguf"), 1, "No such file"),
        (("add", tiny, "--slots", 2), 0, "With 2 x 2,048 tokens of context it needs"),
        (("add", tiny, "--model-memory-mb", 100), 0, "100 MiB are available"),
        (("serve", "tiny", "--model-memory-mb", 100), 1, "100 MiB are available"),
        (("serve", "tiny", "--model-memory-mb", 100, "--force"), 0, "tiny is served as tiny/Tiny"),
        (("list",), 0, "asleep"),
        (("stop", "tiny"), 0, "no longer served"),
        (("remove", "tiny"), 0, "its file stays"),
        (("remove", "tiny"), 1, "No model 'tiny' was added"),
        (("adopt", "127.0.0.1:9"), 1, "Nothing listens"),
        (("adopt", "ftp://x"), 1, "is not the address of a server"),
    ]
    for words, code, said in asked:
        done = await asyncio.to_thread(typed, tmp_path, *words)
        assert (done[0], said in done[1] + done[2]) == (code, True), (words, done)
    assert tiny.exists()


async def test_a_server_that_runs_is_adopted(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), model_server("qwen") as there:
        done = await asyncio.to_thread(typed, tmp_path, "adopt", there.base_url, "--name", "mine")
        again = await asyncio.to_thread(typed, tmp_path, "adopt", there.base_url, "--name", "mine")
    assert (done[0], "with qwen; dragoman neither starts nor stops it" in done[1]) == (0, True), done
    assert (again[0], "is called mine already" in again[2]) == (1, True)
