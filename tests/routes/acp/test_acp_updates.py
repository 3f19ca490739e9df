"""The table from events to updates: each event gives what the protocol's schema allows, in an order that it allows."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from acp.schema import StopReason

from app.core import events
from app.core.events import AgentEvent
from routes.acp.updates import LOOKS, SAYS_ITSELF, STOP_REASONS, Updates
from routes.texts import ENGLISH, table
from routes.texts.exact import fenced
from tests import ROOT
from tests.support.acp.schema import problems
from tests.tasks.documents import DOCS
from tools.catalogue import CATALOGUE

STARTED = events.RunStarted("r1", "s1", "local/m", [], {})
WRITE = {"path": "a.txt", "content": "new"}
ROWS: list[tuple[AgentEvent, list[dict[str, Any]]]] = [
    (events.RoundStarted(1), []),
    (events.TextDelta("Hi"), [{"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hi"}}]),
    (events.TextDelta("```bash\nls\n```", "c1"), []),
    (events.ReasoningDelta("Hm"), [{"sessionUpdate": "agent_thought_chunk"}]),
    (events.MessageAdded("Also"), [{"sessionUpdate": "user_message_chunk"}]),
    (events.Notice("retry", "Again.\x1b[2J"), [{"content": {"type": "text", "text": "\nAgain.\n"}}]),
    (events.PlanUpdated([{"step": "A", "state": "done"}]), [{"sessionUpdate": "plan"}]),
    (events.Usage(5, 2, 5, 2, True), [{"sessionUpdate": "usage_update", "used": 7, "size": 100}]),
    (events.ToolDelta("c1", "{", "write_file"), [{"sessionUpdate": "tool_call", "status": "pending"}]),
    (events.ToolDelta("c1", "}"), []),
    (
        events.ApprovalRequired("c1", "write_file", WRITE, "It writes.", None),
        [{"sessionUpdate": "tool_call_update", "toolCallId": "r1:c1", "title": "write_file a.txt", "kind": "edit"}],
    ),
    (events.ApprovalResolved("c1", "approved", "ann"), [{"status": "in_progress"}]),
    (events.ToolStarted("c1", "write_file", WRITE, "native"), [{"locations": [{"path": "/work/a.txt"}]}]),
    (events.ToolProgress("c1", 1.0, ["\x1b[31mred"], 1, 3), [{"status": "in_progress"}]),
    (events.FileChanged("c1", "b.txt", "created"), [{"locations": [{"path": f"/work/{n}.txt"} for n in "ab"]}]),
    (events.ToolFinished("c1", "write_file", True, "Written.", 0.1), [{"status": "completed"}]),
    (events.ToolStarted("c2", "mcp__x__y", {"a": 1}, "native"), [{"kind": "other", "rawInput": {"a": 1}}]),
    (events.ToolTask("c2", "x", "t1", "working", 0.0), [{"toolCallId": "r1:c2", "status": "in_progress"}]),
    (events.ToolTask("c2", "x", "t1", "completed", 0.0), []),
    (events.ImageReturned("p1", "image/png", 3, "c2"), [{"toolCallId": "r1:c2"}]),
    (events.ImageReturned("gone", "image/png", 3), []),
    (events.ToolFinished("c2", "mcp__x__y", False, "![x](http://evil)", 0.1), [{"status": "failed"}]),
    (events.ToolRejected("Not so.", None), [{"sessionUpdate": "agent_thought_chunk"}]),
    (events.ToolRejected("No.", "c3", "bash"), [{"sessionUpdate": "tool_call", "status": "failed"}]),
    (events.ToolHanded("c4", "editor_read_file", {"path": "x"}, "native"), [{"kind": "read"}]),
    (events.LabelsAdded(["a"], "mark"), []),
    (
        events.RunFinished("round_limit", "", 1, 1, {}),
        [{"toolCallId": "r1:c4", "status": "completed"}, {"sessionUpdate": "agent_message_chunk"}],
    ),
]


def test_each_event_gives_updates_that_the_schema_allows() -> None:
    updates = Updates(Path("/work"), {"m": 100})
    updates.pictures["p1"] = "AAAA"
    assert not [*updates.of(STARTED)]
    for event, wanted in ROWS:
        given = [*updates.of(event)]
        assert len(given) == len(wanted), event
        for update, part in zip(given, wanted, strict=True):
            assert part.items() <= update.items(), event
            frame = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}
            assert not problems(frame, {}), event
            assert "\x1b" not in str(update)
    failed = [*updates.of(events.RunFailed("x", "It broke.", False))]
    assert "It broke." in str(failed)


def test_every_event_is_told_or_left_out_on_purpose() -> None:
    left_out = {"text.reclassified", "context.trimmed", "context.summarised", "document.updated", "tool.app"}
    left_out |= {kind.type for kind in get_args(AgentEvent) if kind.type.startswith(("document.", "helper."))}
    shown = {type(event).type for event, _ in ROWS} | {"run.started", "run.failed"}
    assert shown | left_out == {kind.type for kind in get_args(AgentEvent)} and not shown & left_out


def test_every_reason_of_a_run_has_a_stop_reason_and_words() -> None:
    rows = (DOCS / "events.md").read_text().partition("## Reasons of `run.finished`")[2].partition("\n## ")[0]
    reasons = {
        one
        for row in re.findall(r"^\| (`[a-z_]+`(?: · `[a-z_]+`)*) \|", rows, re.MULTILINE)
        for one in row.split(" · ")
    }
    reasons = {one.strip("`") for one in reasons}
    assert len(reasons) > 10 and STOP_REASONS.keys() <= reasons and reasons >= SAYS_ITSELF
    assert set(STOP_REASONS.values()) <= set(get_args(StopReason))
    assert {f"run.ended.{one}" for one in reasons - SAYS_ITSELF} <= table(ENGLISH).keys()


def test_tools_with_a_look_are_tools() -> None:
    ours = {name for name in LOOKS if not name.startswith("editor_")}
    assert ours <= {tool.name for tool in CATALOGUE}


@pytest.mark.parametrize("written", ["", "a", "```", "x\n````\ny"])
def test_a_text_of_a_tool_stays_in_its_block(written: str) -> None:
    first, *rest = fenced(written).split("\n")
    assert rest[-1] == first and first not in written


BAD = [
    b"nonsense",
    b"[1]",
    b"5",
    b'{"id": 7}',
    b'{"jsonrpc": "2.0", "id": 3, "method": "nope"}',
    b'{"jsonrpc": "2.0", "id": 4, "method": "session/new", "params": [1]}',
    b'{"jsonrpc": "2.0", "id": 5, "method": "session/prompt", "params": {"sessionId": 5}}',
    b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "unknown"}}',
    b'{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}',
    b"[" * 100_000,
    b'"\xff"',
    b'{"jsonrpc": "2.0", "id": 99, "result": {}}',
    b'{"jsonrpc": "2.0", "id": 6, "method": "initialize", "params": {"protocolVersion": 9, "_meta": {"x": "\\ud800"}}}',
]


async def _answers(folder: Path, frames: list[bytes]) -> tuple[list[dict[str, Any]], int | None]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "routes.cli.main", "acp"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environ,
        cwd=folder,
    )
    async with asyncio.timeout(60):
        written, _ = await process.communicate(b"\n".join([*frames, b""]))
    return [json.loads(line) for line in written.splitlines()], process.returncode


def test_bad_frames_are_answered_and_the_agent_goes_on(tmp_path: Path) -> None:
    answers, code = asyncio.run(_answers(tmp_path, BAD))
    assert code == 0
    by_id = {answer["id"]: answer for answer in answers if answer["id"] is not None}
    assert [answer["error"]["code"] for answer in answers if answer["id"] is None].count(-32700) == 3
    assert {by_id[number]["error"]["code"] for number in (4, 5)} == {-32602} and by_id[3]["error"]["code"] == -32601
    assert by_id[6]["result"]["protocolVersion"] == 1
    assert len(answers) == len(BAD) - 3, "notifications, and an answer that nobody waits for, have none"


def test_files_in_place_of_pipes_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "frames").write_bytes(BAD[0])
    command = (sys.executable, "-P", "-m", "routes.cli.main", "acp")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with (tmp_path / "frames").open() as given:
        ended = subprocess.run(command, stdin=given, capture_output=True, text=True, env=environ, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "") and "dragoman connect zed" in ended.stderr
