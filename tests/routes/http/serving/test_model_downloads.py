"""Getting a model on a whole server: over HTTP, in the feed, on the command line, and through `kill -9`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.models.embedded.supervisor import SMOLLM2, package_folder
from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.models.endpoints import LIMIT_S
from tests.support.models.gguf_files import gguf
from tests.support.models.model_hub import TOKEN, model_hub
from tests.support.models.real_models import need_embedded
from tests.support.server.dragoman_process import run_dragoman, server, started
from tests.support.server.feeding import feeding
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
REPO, NAME, FILE = "ann/small-GGUF", "small-q4_1", "small-Q4_1.gguf"
SMALL = {"source": f"hf:{REPO}"}
TINY = {REPO: {FILE: gguf() + bytes(900_000)}}
ASKED = {"message": "What is the capital of France? Answer in one word.", "max_output_tokens": 8, "tools": []}


def downloading(state: str, least: int = 0, name: str = NAME) -> Any:
    """A state of the feed in which the download is so far."""
    return lambda now: any(
        (one["name"], one["state"]) == (name, state) and one["bytes"] >= least for one in now.get("downloads", [])
    )


def content_of(model: Mapping[str, Any]) -> bytes | None:
    path = Path(model["file"])
    return path.read_bytes() if path.exists() else None


async def test_a_real_model_is_downloaded_served_and_answers(tmp_path: Path) -> None:
    need_embedded()
    content = (package_folder(SMOLLM2.package) / SMOLLM2.file).read_bytes()
    async with asyncio.timeout(LIMIT_S), model_hub({REPO: {FILE: content}}, cuts=[len(content) // 2]) as hub:
        async with serving(tmp_path, Scripted(["x"]), model_hub=hub.url) as served, feeding(served) as feed:
            asked = SMALL | {"serve": True, "context": 2048}
            begun = await served.client.post("/served-models", json=asked)
            assert (begun.status_code, begun.json()["name"], begun.json()["total"]) == (202, NAME, len(content))
            state = await feed.until_state(downloading("done"))
            [row] = state["downloads"]
            assert (row["checked"], row["bytes"], row["problem"]) == ("sha256", len(content), None)
            models = [one["id"] for one in (await served.client.get("/v1/models")).json()["data"]]
            assert row["model"] in models
            answer = await served.chat(**ASKED, model=row["model"], system={"mode": "replace", "text": "Answer."})
            assert answer[-1]["type"] == "run.finished"
            [model] = (await served.client.get("/served-models")).json()["models"]
            assert content_of(model) == content
            audit = (await served.client.get("/audit")).json()["audit"]
            assert {"download started", "added", "served"} <= {one["decision"] for one in audit}
            assert (await served.client.delete(f"/served-models/{NAME}")).status_code == 204
            assert content_of(model) is None


async def test_a_killed_download_is_shown_resumed_and_another_cancelled(tmp_path: Path) -> None:
    content = TINY[REPO][FILE]
    async with asyncio.timeout(LIMIT_S), model_hub(TINY, held_at=700_000) as hub:
        flags = ("--model-hub", hub.url)
        async with server(tmp_path, "scripted:", *flags) as (client, process):
            assert (await client.post("/served-models", json=SMALL)).status_code == 202
            again = await client.post("/served-models", json=SMALL | {"name": "another"})
            assert (again.status_code, again.json()["name"]) == (202, NAME)  # the same
            await hub.held.wait()
            [part] = (tmp_path / "data" / "models").rglob("*.part")
            while part.stat().st_size < 600_000:
                await client.get("/livez")
            process.kill()
            await process.wait()
        hub.held_at = None
        async with server(tmp_path, "scripted:", *flags) as (client, _):
            [row] = (await client.get("/served-models")).json()["downloads"]
            assert (row["name"], row["state"], row["bytes"] >= 600_000) == (NAME, "interrupted", True)
            assert (await client.post("/served-models", json=SMALL | {"name": "mine"})).json()["name"] == "mine"
            assert [one["name"] for one in (await client.get("/served-models")).json()["downloads"]] == ["mine"]
            while (found := (await client.get("/served-models/mine")).json())["state"] != "off":
                assert found["state"] in ("downloading", "checking"), found
            assert content_of(found) == content
            assert int(hub.sent_from[-1].removeprefix("bytes=").removesuffix("-")) >= 600_000
            hub.held_at = 700_000
            hub.files["ann/other"] = {"other.gguf": content}
            await client.post("/served-models", json={"source": "hf:ann/other"})
            assert (await client.get("/served-models/other")).json()["state"] == "downloading"
            assert (await client.delete("/served-models/other")).status_code == 204
            assert (await client.get("/served-models/other")).status_code == 404
            assert [path.name for path in (tmp_path / "data" / "models").rglob("*") if path.is_file()] == [FILE]


async def test_a_download_that_is_asked_for_again_with_serve_is_served(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), model_hub(TINY, held_at=700_000) as hub:
        async with serving(tmp_path, Scripted(["x"]), model_hub=hub.url) as served, feeding(served) as feed:
            assert (await served.client.post("/served-models", json=SMALL)).status_code == 202
            await hub.held.wait()
            assert (await served.client.post("/served-models", json=SMALL | {"serve": True})).json()["name"] == NAME
            hub.held_at = None
            hub.released.set()
            await feed.until_state(downloading("done"))
            decisions = [one["decision"] for one in (await served.client.get("/audit")).json()["audit"]]
            assert (decisions.count("download started"), "served" in decisions) == (1, True)


BAD: Mapping[str, tuple[dict[str, Any], int, str]] = {
    "both": (SMALL | {"file": "x.gguf"}, 422, "give either file or source"),
    "unknown quantisation": ({"source": f"hf:{REPO}:Q2_K"}, 422, "There are: Q4_1"),
    "elsewhere": ({"source": "https://169.254.169.254/m.gguf"}, 422, "is not on the public internet"),
    "no model": ({"source": "hf:ann/none"}, 422, "nothing is there"),
    "a name with a slash": (SMALL | {"name": "a/b"}, 422, "cannot be its name"),
    "no source": ({"source": "small"}, 422, "names no model"),
}


async def test_sources_are_for_admins_and_a_bad_one_says_why(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), model_hub(TINY, gated=True) as hub:
        flags: dict[str, Any] = {"model_hub": hub.url, "model_hub_token": TOKEN}
        async with serving(tmp_path, Scripted(["x"]), **flags) as served, feeding(served) as feed:
            for name, (body, status, words) in BAD.items():
                answer = await served.client.post("/served-models", json=body)
                assert (answer.status_code, words in answer.text) == (status, True), (name, answer.text)
            hub.checksum, hub.files["ann/no"] = "0" * 64, {"no.gguf": TINY[REPO][FILE]}
            await served.client.post("/served-models", json={"source": "hf:ann/no"})
            state = await feed.until_state(downloading("failed", name="no"))
            assert "has not the checksum" in state["downloads"][0]["problem"]
            assert (await served.client.delete("/served-models/no")).status_code == 204
            hub.held_at = 9
            hub.files |= {f"ann/{n}": {f"{n}.gguf": TINY[REPO][FILE]} for n in "abc"}
            codes = [(await served.client.post("/served-models", json={"source": f"hf:ann/{n}"})) for n in "abc"]
            assert [one.status_code for one in codes] == [202, 202, 422]
            assert "a, b are being downloaded: 2 at a time" in codes[-1].text
            assert TOKEN not in (await served.client.get("/settings")).text
            ann = await bearer(served, "ann")
            assert (await served.client.post("/served-models", json=SMALL, headers=ann)).status_code == 403
            assert "downloads" not in (await served.client.get("/served-models", headers=ann)).text
    (tmp_path / "off").mkdir()
    async with serving(tmp_path / "off", Scripted(["x"]), model_download_mb="0") as served:
        assert "model_download_mb is 0" in (await served.client.post("/served-models", json=SMALL)).text


def words(folder: Path, hub: str, *more: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """`dragoman model add` of the small model, and its environment."""
    places = ("--data-dir", str(folder / "data"), "--workspace", str(folder / "work"), "--model-hub", hub)
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "DRAGOMAN_URL": "http://127.0.0.1:9"}
    return ("model", "add", f"hf:{REPO}", *more, *places), environ


async def test_the_command_line_goes_on_after_ctrl_c(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), model_hub(TINY, held_at=500_000) as hub:
        typed, environ = words(tmp_path, hub.url, "--name", "mine")
        with (tmp_path / "stderr").open("wb") as stderr:
            async with started(*typed, environ=environ, stderr=stderr) as process:
                await hub.held.wait()
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 130
        assert "the same command goes on with it" in (tmp_path / "stderr").read_text()
        hub.held_at = None
        done = await asyncio.to_thread(run_dragoman, *typed, environ=environ)
        assert (done.returncode, "mine is added: Tiny" in done.stdout) == (0, True), done
        assert "is there (checked: sha256)" in done.stderr
        bad = await asyncio.to_thread(run_dragoman, "model", "add", "hf:ann", *typed[3:], environ=environ)
        assert (bad.returncode, "names no model" in bad.stderr) == (1, True), bad
