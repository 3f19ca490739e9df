"""The demonstration: a run without a model, whose calls are real."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.core.messages import Message
from app.core.provider import Finished, ModelRequest, Piece, TextChunk
from app.models.demonstration import NAME, Demonstration
from app.models.scripted import Scripted
from parsing import Thought
from tests.support.server.serving import serving
from tools.catalogue import TOOLS
from tools.tool import Tool

pytestmark = pytest.mark.anyio
ASKED = Message("user", "Show me.")
BASH, WRITE_FILE = (next(tool for tool in TOOLS if tool.name == name) for name in ("bash", "write_file"))
RESULT = Message("tool", "Done.", call="c1", name="bash")


async def reply(*messages: Message, tools: tuple[Tool, ...] = (BASH, WRITE_FILE)) -> tuple[str, str]:
    """The thought and the text of a round."""
    request = ModelRequest(messages, tools)
    pieces: list[Piece] = [piece async for piece in Demonstration().stream(request)]
    assert isinstance(pieces[-1], Finished)
    thought = "".join(piece.text for piece in pieces if isinstance(piece, Thought))
    return thought, "".join(piece.text for piece in pieces if isinstance(piece, TextChunk))


async def test_each_round_follows_from_the_history() -> None:
    first, second, last = await asyncio.gather(reply(ASKED), reply(ASKED, RESULT), reply(ASKED, RESULT, RESULT))
    assert first[0] and "<function=bash>" in first[1]
    assert second[0] and "<function=write_file>" in second[1]
    assert not last[0] and "written in advance" in last[1]
    assert await reply(ASKED, RESULT, RESULT, ASKED) == first, "a second one in the same conversation"


async def test_a_step_without_its_tool_is_left_out() -> None:
    assert "<function=write_file>" in (await reply(ASKED, tools=(WRITE_FILE,)))[1]
    assert "written in advance" in (await reply(ASKED, tools=()))[1]


async def test_it_can_be_asked_for_and_is_no_model_of_a_list(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        events = await served.chat("Show me.", model=NAME, when_absent="deny")
        assert events[-1]["type"] == "run.finished"
        ran = {event["name"]: event["ok"] for event in events if event["type"] == "tool.finished"}
        assert ran == {"bash": True, "write_file": True}
        listed = (await served.client.get("/v1/models")).text + (await served.client.get("/endpoints")).text
        assert NAME not in listed
