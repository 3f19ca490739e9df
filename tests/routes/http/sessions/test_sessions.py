"""Sessions: listed, shown, deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.server.serving import Served, serving

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("database")]


async def two_turns(served: Served) -> tuple[str, str]:
    first, second = await served.chat("One"), await served.chat("Two")
    return first[0]["session"], second[0]["session"]


async def test_sessions_are_listed_and_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi.", "Hi."])) as served:
        one, two = await two_turns(served)
        listed = (await served.client.get("/sessions")).json()["sessions"]
        assert [session["id"] for session in listed] == [two, one]
        assert (await served.client.delete(f"/sessions/{one}")).status_code == 204
        assert (await served.client.get(f"/sessions/{one}")).status_code == 404
        assert [session["id"] for session in (await served.client.get("/sessions")).json()["sessions"]] == [two]


async def test_a_session_with_hostile_words_can_be_shown(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["\ud800 \u2028"])) as served:
        events = await served.chat()
        session = await served.client.get(f"/sessions/{events[0]['session']}")
    assert session.json()["messages"][-1]["shown"] == "\ud800 \u2028"
