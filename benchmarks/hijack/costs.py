"""What the gate costs: a decision, and a command's start in the sandbox against a bare one."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from secrets import token_hex
from time import perf_counter, process_time_ns

from app.core.rules import ApprovalMode
from app.policy.gate import decide
from app.policy.grants import Grant
from app.policy.policy_context import PolicyContext
from app.storage.principals import Principal
from parsing import Arguments
from tools.base.outcome import Result
from tools.base.permit import fingerprint
from tools.base.rights import Role
from tools.builtin.shell import running
from tools.catalogue import TOOLS
from tools.process.orphan_reaper import clear
from tools.sandbox.sandbox import NoSandbox, Sandbox, Unboxed, find_sandbox
from tools.shell_policy.plain_commands import DEFAULT_COMMANDS
from tools.tool import Context
from tools.toolbox import Allow, Ask, Toolbox

DECISIONS, STARTS = 100_000, 200
EMMA = Principal("emma", Role.USER)
NOTE: Arguments = {"path": "notes/plan.txt", "content": "Call Ann."}
LISTING: Arguments = {"command": "ls -la notes"}
SCRIPT = "true\n"


def _us(run: Callable[[], object], times: int = DECISIONS) -> float:
    begun = process_time_ns()  # of this process only: others may be busy
    for _ in range(times):
        run()
    return (process_time_ns() - begun) / times / 1000


def decisions() -> dict[str, float]:
    """Microseconds of CPU for each way that a decision can take."""
    tools = {tool.name: tool for tool in TOOLS}
    grant = Grant("write_file", fingerprint(EMMA.name, "write_file", NOTE))
    asking = PolicyContext(ApprovalMode.ASK)
    granted = PolicyContext(ApprovalMode.ASK, grants=(grant,))
    listed = PolicyContext(ApprovalMode.ASK, commands=DEFAULT_COMMANDS)
    box = Toolbox(TOOLS, lambda tool, arguments: decide(EMMA, tool, arguments, PolicyContext(boxed=True)), EMMA.name)
    write, shell = tools["write_file"], tools["bash"]
    assert isinstance(decide(EMMA, write, NOTE, asking), Ask)
    assert decide(EMMA, write, NOTE, granted) == decide(EMMA, shell, LISTING, listed) == Allow()
    return {
        "reads, runs at once": _us(lambda: decide(EMMA, tools["read_file"], NOTE, asking)),
        "writes, asks": _us(lambda: decide(EMMA, write, NOTE, asking)),
        "the same call was granted": _us(lambda: decide(EMMA, write, NOTE, granted)),
        "a command of the list, read as a shell reads it": _us(lambda: decide(EMMA, shell, LISTING, listed)),
        "the dispatcher's, with the arguments checked": _us(lambda: box.decide("write_file", NOTE)),
    }


def _started_ms(box: Sandbox, workspace: Path) -> float:
    """A plain fork and exec of what would be started, its limits made and cleared."""
    with tempfile.TemporaryFile() as file:
        file.write(SCRIPT.encode())
        file.seek(0)
        begun, mark = perf_counter(), token_hex(8)
        command = box.command("bash", file.fileno(), workspace)
        argv = (*command.limits.begin(mark), *command.argv)
        try:
            subprocess.run(argv, env=dict(command.env), pass_fds=command.fds, cwd=workspace, check=True)
        finally:
            clear(command.limits.places, mark)
        return (perf_counter() - begun) * 1000


async def _called_ms(box: Sandbox, workspace: Path) -> float:
    """The whole call of the tool."""
    begun = perf_counter()
    run = running("bash", "command")({"command": SCRIPT}, Context(workspace, sandbox=box))
    async with aclosing(run) as seen:
        async for step in seen:
            assert not isinstance(step, Result) or step.ok, step
    return (perf_counter() - begun) * 1000


async def starts() -> dict[str, list[float]]:
    """Milliseconds of each start. They take turns, so that a busy machine is as hard on each."""
    box = find_sandbox()
    if isinstance(box, NoSandbox):
        raise SystemExit(box.reason)
    with tempfile.TemporaryDirectory() as folder:
        bare, workspace = Unboxed(Path("/usr/bin/python3")), Path(folder)
        times: dict[str, list[float]] = {}
        for _ in range(STARTS):
            times.setdefault("bare fork and exec", []).append(_started_ms(bare, workspace))
            times.setdefault(f"{box.level}, fork and exec", []).append(_started_ms(box, workspace))
            times.setdefault("bare, the whole tool", []).append(await _called_ms(bare, workspace))
            times.setdefault(f"{box.level}, the whole tool", []).append(await _called_ms(box, workspace))
    return times


def main() -> None:
    print(f"\na decision, n = {DECISIONS:,}{'CPU us':>40}")
    for way, spent in decisions().items():
        print(f"  {way:56}{spent:8.2f}")
    print(f"\na command's start, n = {STARTS}{'least ms':>37}{'median ms':>10}")
    for way, each in asyncio.run(starts()).items():
        print(f"  {way:50}{min(each):10.2f}{statistics.median(each):10.2f}")


if __name__ == "__main__":
    main()
