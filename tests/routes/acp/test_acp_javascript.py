"""The SDK of the Agent Client Protocol for JavaScript, unmodified, as the editor of `dragoman acp`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.clients.harness import CACHE, ROOT, Client, needed
from tests.support.acp.editor import WRITE, url_of
from tests.support.server.approvals import note
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
EDITOR = Client("acp", "sdk", "acp_client.mjs", (), {})


async def seen(job: dict[str, Any], home: Path) -> dict[str, Any]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)}
    environ["DRAGOMAN_DATA_DIR"] = str(home / "data")
    process = await asyncio.create_subprocess_exec(
        *EDITOR.command(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
    )
    try:
        async with asyncio.timeout(90):
            written, complaints = await process.communicate(json.dumps(job).encode())
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, complaints.decode()[-4000:]
    assert not complaints, complaints.decode()
    answer: dict[str, Any] = json.loads(written)
    return answer


def command(url: str) -> list[str]:
    return [sys.executable, "-m", "routes.cli.main", "acp", "--url", url]


async def test_an_unmodified_editor_works_with_the_agent(tmp_path: Path) -> None:
    needed(EDITOR)
    if not (CACHE / "sdk/node_modules/@agentclientprotocol/sdk").is_dir():
        older = ".cache/clients/sdk is older than what fixtures/clients pins: run `make client-environments`."
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(older)
    script = Scripted([["I write.", WRITE], ["Done."], [WRITE], ["Never."]])
    async with serving(tmp_path, script) as served:
        found = await seen({"command": command(url_of(served)), "cwd": str(tmp_path / "work")}, tmp_path)
    assert found["code"] == 0 and found["stops"] == ["end_turn", "cancelled"]
    assert [one["id"] for one in found["options"]] == ["mode", "model"]
    assert len(found["permissions"]) == 2 and note(tmp_path).read_text() == "first"
    words = [one["content"]["text"] for one in found["updates"] if one["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(words) == "I write.Done." * 2, "once live, and once from the log"
    assert len(found["listed"]) == 1 and not found["left"]
