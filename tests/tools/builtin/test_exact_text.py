"""What was decided on is byte for byte what the process gets, for every tool that runs text."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec import field

from app.core.rules import ApprovalMode
from app.policy.gate import decide
from app.policy.grants import Grant
from app.policy.policy_context import PolicyContext
from app.storage.principals import LOCAL_USER
from parsing import Arguments
from tests.support.sandbox.jobs import ANN, SESSION, end_of, opened
from tools.base.outcome import Result
from tools.base.rights import Risk
from tools.catalogue import TOOLS
from tools.jobs.folder import SCRIPT, SCRIPT_FD
from tools.sandbox.command import Command, Program
from tools.sandbox.sandbox import Unboxed
from tools.shell_policy.plain_commands import DEFAULT_COMMANDS
from tools.tool import Context, Tool
from tools.toolbox import Allow, Refuse, Toolbox

TEXTS = (
    "ls",
    "#!bg\nls",
    "#!bg id > f\nls",
    "#!bg\n#!bg id > f\nls",
    "  \n#!bg  #!bg id\r\nls\r\n",
    "#!bg\tid\n#!/bin/sh\nls\n\n",
    "# comment\n#!bg id\nls",
    "#!bgs id\nls",
    "\ufeff#!bg\nls",
    "printf '\u2028 \u00a0 é \x7f'",
    "#!bg",
    "",
)


def text_argument(tool: Tool) -> str:
    """The argument of a tool that a process runs; empty of one that runs nothing."""
    return next((name for name in ("command", "code") if name in tool.parameters["properties"]), "")


RUNNERS = {tool.name: tool for tool in TOOLS if text_argument(tool)}
CALLS = [
    (name, text, background)
    for name, tool in RUNNERS.items()
    for text in TEXTS
    for background in ((None, False, True) if "background" in tool.parameters["properties"] else (None,))
]


def test_every_tool_that_executes_runs_a_text() -> None:
    assert {tool.name for tool in TOOLS if tool.risk is Risk.EXECUTE} == set(RUNNERS)


class Recording(Unboxed, frozen=True):
    """Keeps what each process of the foreground is given to read."""

    read: list[bytes] = field(default_factory=list)

    def command(self, program: Program, script: int, workspace: Path, **more: Any) -> Command:
        if script != SCRIPT_FD:  # a job's supervisor opens its own
            self.read.append(os.pread(script, 1 << 20, 0))
        return super().command(program, script, workspace, **more)


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "text", "background"), CALLS)
async def test_what_was_decided_on_is_byte_for_byte_what_the_process_gets(
    tmp_path: Path, name: str, text: str, background: bool | None
) -> None:
    decided: list[Arguments] = []

    def allow(_: Tool, arguments: Arguments | None) -> Allow:
        decided.extend([arguments] if arguments is not None else [])
        return Allow()

    argument = text_argument(RUNNERS[name])
    (tmp_path / "work").mkdir()
    box, toolbox = Recording(Path(sys.executable)), Toolbox(TOOLS, allow)
    async with asyncio.timeout(60), opened(tmp_path) as jobs:
        context = Context(tmp_path / "work", 60, box, jobs=jobs, session=SESSION, principal=ANN)
        called, arguments = toolbox.normalise_call(
            name, {argument: text, **({"background": background} if background else {})}
        )
        async with aclosing(toolbox.run(called, arguments, context)) as news:
            *_, result = [step async for step in news]
        started = jobs.listed(ANN)
        for job in started:
            await end_of(jobs, job.id)
            box.read.append((tmp_path / "data" / "jobs" / job.id / SCRIPT).read_bytes())
    [final] = decided
    assert isinstance(result, Result) and bool(started) == bool(final.get("background") and final[argument].strip())
    nothing_to_start = bool(final.get("background")) and not final[argument].strip()
    assert box.read == ([] if nothing_to_start else [final[argument].encode()])


@pytest.mark.parametrize("mode", [ApprovalMode.DENY, ApprovalMode.ASK, ApprovalMode.SANDBOXED])
def test_words_behind_a_marker_are_decided_on(mode: ApprovalMode) -> None:
    """An allowed command and a grant for it cover what runs, never what a comment hides."""
    bash = RUNNERS["bash"]
    grants = (Grant("bash", pattern={"command": "ls *", "background": "*"}), Grant("bash", pattern={"command": "ls *"}))
    policy = PolicyContext(mode, commands=DEFAULT_COMMANDS, grants=grants)
    hidden = bash.normalise({"command": "#!bg id > f\nls"})
    assert hidden == {"command": "id > f\nls", "background": True}
    assert not isinstance(decide(LOCAL_USER, bash, hidden, policy), Allow)
    if mode is ApprovalMode.DENY:
        assert isinstance(decide(LOCAL_USER, bash, hidden, policy), Refuse)
    assert isinstance(decide(LOCAL_USER, bash, bash.normalise({"command": "#!bg\nls"}), policy), Allow)
