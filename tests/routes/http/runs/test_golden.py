"""Golden event logs: each story gives the same stream as when it was recorded, live and replayed.

A change that is meant is recorded anew: `python -m tests.tasks.record_runs`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from app.core.events import AgentEvent, ToolApp, ToolTask
from tests.support.golden.playing import RUNS, play
from tests.support.golden.stories import STORIES

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", STORIES)
async def test_a_story_gives_its_recorded_log(tmp_path: Path, name: str) -> None:
    assert (await play(STORIES[name], tmp_path)).splitlines() == (RUNS / f"{name}.sse").read_text().splitlines()


def test_every_log_has_its_story_and_says_what_it_shows() -> None:
    logs = {path.stem: path.read_text() for path in RUNS.glob("*.sse")}
    assert logs.keys() == STORIES.keys()
    for name, log in logs.items():
        assert log.startswith(f": {STORIES[name].about}\n\nretry: 1000\nid: 1\n"), name
        assert len(re.findall("^event: run.(?:finished|failed)$", log, re.M)) == log.count("retry: 1000\n"), name


OF_SERVERS = {ToolApp.type, ToolTask.type}  # of real servers: test_mcp_apps_over_http.py, test_mcp_tasks.py


def test_the_logs_show_every_event() -> None:
    shown = {kind for path in RUNS.glob("*.sse") for kind in re.findall("^event: (.*)$", path.read_text(), re.M)}
    assert shown == {event.type for event in get_args(AgentEvent)} - OF_SERVERS
