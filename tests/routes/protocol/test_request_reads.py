"""A request opens no file on the event loop, and a file of the prompt again only when it has changed."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from app.context.project_files import AGENTS, FileCache
from app.models.scripted import Scripted
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
LIMIT_S = 60
READS = frozenset({"open", "stat", "lstat", "scandir", "listdir", "readlink"})
OURS = ("app", "routes", "tools", "parsing")
# What the server looks for on its own, once in a while: a request that takes long enough meets it. And whether there is
# any file for a prompt, on the file system to which the loop commits: it is looked for, and read in a thread.
LOOKS = frozenset(
    {
        "app.storage.sqlite.open_files._identity",
        "app.mcp.servers._state_of",
        "app.runs.run_factory.RunFactory._bare_folders",
        "app.context.project_files.ProjectFiles.is_bare",
    }
)


def reader(frame: FrameType) -> str:
    """The function of this project that a read comes from, or the file of what reads."""
    caller: FrameType | None = frame
    while caller and str(caller.f_globals.get("__name__")).partition(".")[0] not in OURS:
        caller = caller.f_back
    return f"{caller.f_globals['__name__']}.{caller.f_code.co_qualname}" if caller else frame.f_code.co_filename


async def test_a_request_reads_no_file_on_the_event_loop(tmp_path: Path) -> None:
    found = set[str]()

    def watch(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ in READS and function.__module__ in ("posix", "_io", "io"):
            found.add(reader(frame))

    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hello."], repeat=True)) as served:
        (tmp_path / "work" / AGENTS).write_text("Be brief.")
        (tmp_path / "work/.agents/skills/one").mkdir(parents=True)
        (tmp_path / "work/.agents/skills/one/SKILL.md").write_text("---\ndescription: One.\n---\nText.")
        await served.chat("Hello")  # what is loaded once
        sys.setprofile(watch)
        try:
            events = await served.chat("Hello")
        finally:
            sys.setprofile(None)
    assert any(event["type"] == "notice" and event["code"] == "project_files" for event in events)
    assert not found - LOOKS


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    file, cache = tmp_path / AGENTS, FileCache()
    assert cache.read(tmp_path, AGENTS) is None
    long_ago = time.time_ns() - 10**12
    texts = list[str]()
    for text in ("one", "two", "six"):  # of one size, and of one time
        file.write_text(text)
        os.utime(file, ns=(long_ago, long_ago))
        read = cache.read(tmp_path, AGENTS)
        assert read
        texts.append(read.text)
    assert texts == ["one", "two", "six"]
    again = (cache.read(tmp_path, AGENTS) is cache.read(tmp_path, AGENTS) for _ in range(10**6))
    assert any(again), "its entry is older than a tick of the clock soon"
    read = cache.read(tmp_path, AGENTS)
    assert read and read.text == "six"
    file.unlink()
    assert cache.read(tmp_path, AGENTS) is None
