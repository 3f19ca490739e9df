"""openai-py at a server: compaction by its own types, and webhooks that it verifies."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.clients.catalogue import PYTHON_CLIENTS
from tests.clients.harness import CACHE, ROOT, needed
from tests.support.server.receivers import receiver
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
EVENTS = ["response.completed", "response.failed", "response.incomplete", "response.cancelled"]
NOTES = "What was done\n- all\nPending\n- nothing"


async def test_openai_py_compacts_and_reads_webhooks(tmp_path: Path) -> None:
    needed(PYTHON_CLIENTS[0])
    model = Scripted([NOTES, "Fine.", NOTES, "Hello.", "Hello again."])
    async with asyncio.timeout(60), receiver() as there, serving(tmp_path, model, private_hosts="127.0.0.1") as served:
        made = (await served.client.post("/webhooks", json={"url": there.url, "events": EVENTS})).json()
        client = await asyncio.create_subprocess_exec(
            *(str(CACHE / "openai/bin/python"), "-m", "tests.clients.going_on.compacting_client"),
            *(str(served.client.base_url).rstrip("/"), "any"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        )
        try:
            assert client.stdin and client.stdout
            found = json.loads(await client.stdout.readline())
            hooks = await there.got(2)
            lines = [
                json.dumps({"body": one.body.decode(), "headers": dict(one.headers), "secret": secret})
                for one in hooks
                for secret in (made["secret"], "whsec_AAAA")
            ]
            written, _ = await client.communicate("\n".join(lines).encode())
        finally:
            if client.returncode is None:
                client.kill()
                await client.wait()
    assert (found["object"], found["types"]) == ("response.compaction", ["message", "compaction"])
    assert found["tokens"] > 0 and found["after"] == "Fine." and found["triggered"] == ["compaction"]
    read = [json.loads(line) for line in written.splitlines()]
    assert {one["id"] for one in read[::2]} == set(found["ids"])
    assert all((one["type"], one["object"]) == ("response.completed", "event") for one in read[::2])
    assert all(one == {"error": "InvalidWebhookSignatureError"} for one in read[1::2])
