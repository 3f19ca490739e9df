"""`kill -9` in the middle of a document: it is stored with the events that show it, once, or not at all."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.server.dragoman_process import server
from tests.support.server.events import of_kind
from tests.support.server.serving import events_of

pytestmark = pytest.mark.anyio
TEXT = "# Trip\n\nWe go by train.\n"
CALL = json.dumps({"name": "create_document", "arguments": {"title": "Trip", "content": TEXT}})
# The last event that is seen of a run whose server is killed.
LAST = ("document.delta", "tool.started", "document.finished", "tool.finished")


async def killed_at(client: httpx2.AsyncClient, process: Any, last: str) -> list[dict[str, Any]]:
    seen = list[dict[str, Any]]()
    with suppress(httpx2.TransportError):
        body = {"message": "Write it.", "max_rounds": 2, "tools": ["create_document"]}
        async with client.stream("POST", "/chat", json=body) as response, aclosing(events_of(response)) as events:
            async for event in events:
                seen.append(event)
                if event["type"] == last:
                    process.kill()
                    break
    assert seen[-1]["type"] == last, [event["type"] for event in seen]
    await process.wait()
    return seen


@pytest.mark.timeout(90)
async def test_a_document_is_there_if_its_end_was_seen_and_never_twice(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    said = [says(piece) for piece in (f"<tool_call>{CALL[:90]}", CALL[90:], "</tool_call>")]
    runs = list[list[dict[str, Any]]]()
    async with (
        asyncio.timeout(80),
        upstream(stream(*said, chunk(finish="stop"), DONE), repeat=True, chats=True) as model,
    ):
        for last in LAST:
            async with server(tmp_path, model.base_url) as (client, process):
                runs.append(await killed_at(client, process, last))
        async with server(tmp_path, model.base_url) as (client, _):
            for seen in runs:
                await check(client, seen)


async def check(client: httpx2.AsyncClient, seen: list[dict[str, Any]]) -> None:
    run, session = seen[0]["run"], seen[0]["session"]
    async with client.stream("GET", f"/runs/{run}/events") as response, aclosing(events_of(response)) as events:
        stored = [event async for event in events]
    assert [event["type"] for event in stored[: len(seen)]] == [event["type"] for event in seen]
    documents = (await client.get(f"/sessions/{session}/documents")).json()["documents"]
    finished = [event for event in of_kind(stored, "document.finished") if event["ok"]]
    assert [one["id"] for one in documents] == [event["document"] for event in finished]
    for one in documents:
        events_of_it = [event for event in stored if event.get("document") == one["id"]]
        begins = max(at for at, event in enumerate(events_of_it) if event["type"] == "document.started")
        text = "".join(event["text"] for event in of_kind(events_of_it[begins:], "document.delta"))
        assert (await client.get(f"/documents/{one['id']}")).json()["text"] == text == TEXT
        assert one["version"] == 1
    if of_kind(seen, "document.finished"):
        assert documents
