"""`search_files` in a server: files that come with messages, documents, labels, rights and the state of the index."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.access.labelled import added, labelled
from tests.support.access.people import LIMIT_S, bearer
from tests.support.models.replies import tool_call
from tests.support.server.events import of_kind
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
KNOWLEDGE = {"knowledge": "docs,uploads,documents"}


def search(query: str, **more: Any) -> str:
    return tool_call("search_files", query=query, **more)


async def results(served: Served, message: object = "Search.", **more: Any) -> list[tuple[bool, str]]:
    events = await served.chat(message, **more)
    return [(one["ok"], one["text"]) for one in of_kind(events, "tool.finished") if one["name"] == "search_files"]


async def test_without_a_folder_there_is_no_tool(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hello."])) as served:
        assert "search_files" not in (await served.chat("Hi."))[0]["tools"]
        assert (await served.client.get("/knowledge")).json()["places"] == []
        assert not (tmp_path / "data/knowledge.db").exists()


async def test_files_and_documents_are_found_by_their_person(tmp_path: Path) -> None:
    docs = tmp_path / "work/docs"
    docs.mkdir(parents=True)
    (docs / "pets.md").write_text("# Pets\n\nBruno is the dog.\n")
    replies = [
        search("Bruno"), "docs/pets.md:1-3",
        search("Rosie"), "Found.",
        tool_call("create_document", title="Plan", content="Walk with Waldo."), "Written.",
        search("Waldo"), "Found.",
        search("Waldo"), "None.",
        search("Bruno", folder="../.."), search("Bruno", folder="docs/none"), search(""), "None.",
    ]  # fmt: skip
    sent = {"name": "zoo.txt", "data": base64.b64encode(b"Rosie is the parrot.\n").decode()}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(replies), None, **KNOWLEDGE) as served:
        assert await results(served) == [(True, "docs/pets.md:1-4\n  # Pets\n  \n  Bruno is the dog.\n  ")]
        message = [{"type": "text", "text": "Who is Rosie?"}, {"type": "file", **sent}]
        [(_, text)] = await results(served, message)
        assert "zoo.txt:1-2\n  Rosie is the parrot." in text
        await served.chat("Write it.")
        [(ok, text)] = await results(served)
        first, *lines = text.split("\n")
        assert ok and first.startswith("document doc_") and first.endswith('"Plan":1')
        assert lines[0] == "  Walk with Waldo."
        served.client.headers |= await bearer(served, "bob", "admin")
        [(_, text)] = await results(served)
        assert "pets.md" in text or "Nothing was found" in text
        assert "Waldo" not in text, "documents are of one person, also among admins"
        outside, missing, empty = await results(served)
        assert "outside the workspace" in outside[1] and "Nothing was found" in missing[1] and "empty" in empty[1]
        state = (await served.client.get("/knowledge")).json()
        counts = {one["place"]: one["files"] for one in state["places"]}
        assert counts["."] == 2 and sum(counts.values()) == 3 and state["problems"] == []


async def test_the_labels_of_what_is_found_count(tmp_path: Path) -> None:
    hosted = [search("What does ACME owe?"), "Done."]
    async with labelled(tmp_path, hosted, ["Local."], knowledge="customers") as served:
        events = await served.served.chat("Search.")
        assert added(events) == [(["customer"], "call")] and served.holds() == ["local"]
