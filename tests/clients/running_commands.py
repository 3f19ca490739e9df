"""Run the command lines against a server of ours, and compare what they understood with what the model meant."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.clients.commands import Command, script_of
from tests.clients.harness import CACHE, EVERYTHING, NODE, ROOT, Target, dragoman
from tests.clients.loopback import leading_to
from tests.clients.model_server import WAYS, understood
from tests.clients.results import record
from tests.clients.scenarios import COMMAND, MOORED, SCENARIOS
from tests.support.server.dragoman_process import run_dragoman

LIMIT_S = 90
AGENT = "dragoman/agent"
AT_ONCE = 2
# A network and processes of its own, which all end with it; of the files it can change its home alone.
CONFINED = (
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
    *("--unshare-net", "--unshare-pid", "--die-with-parent"),
)
PATHS = [NODE.parent, CACHE / "commands/node_modules/.bin", CACHE / "aider/bin"]


@dataclass(frozen=True, slots=True)
class CommandCheck:
    """`refused` is a part of what the program must show. `model` is the one to ask for instead."""

    name: str
    scenario: str
    model: str = ""
    key: str = ""
    refused: str = ""


PLAIN = CommandCheck("plain", "plain")
TOOL = CommandCheck("tool", "shell")
WRONG_KEY = CommandCheck("wrong-key", "plain", key="dgm_wrong", refused="This is not a token of this server.")
UNKNOWN_MODEL = CommandCheck("unknown-model", "plain", model="no-such-model", refused="no-such-model")
CHECKS = (PLAIN, TOOL, UNKNOWN_MODEL, WRONG_KEY)
MODELS = (*WAYS, AGENT)
Jobs = list[tuple[CommandCheck, str]]


def jobs_of() -> Jobs:
    """Each check with each model; what the model does not answer with one. A wrong key comes last: it slows down."""
    return [(check, model) for check in CHECKS for model in (MODELS if not check.refused else MODELS[1:2])]


def job_id(check: CommandCheck, model: str) -> str:
    return f"{check.name}:{model}".replace("/", "-")


@dataclass(frozen=True, slots=True)
class Ended:
    code: int | None
    stdout: str
    stderr: str
    work: Path


def missing(command: Command) -> str:
    """Why it cannot run here."""
    if not EVERYTHING:
        return "`make clients` runs the command lines."
    for name in {command.environment, "node"}:
        if not (CACHE / name / ".ready").exists():
            return f".cache/clients has no {name}: run `make clients`."
    return "" if can_confine() else "There is no bubblewrap here that confines the program to loopback."


@cache
def can_confine() -> bool:
    if not (bwrap := shutil.which("bwrap")):
        return False
    return not subprocess.run([bwrap, *CONFINED, "true"], check=False, capture_output=True, timeout=20).returncode


def needed(command: Command) -> None:
    if reason := missing(command):
        (pytest.fail if os.environ.get("CI") == "true" and EVERYTHING else pytest.skip)(reason)


async def run(command: Command, check: CommandCheck, model: str, target: Target, folder: Path) -> Ended:
    """The program, pointed at the server by what `dragoman connect` writes and prints."""
    home = folder / job_id(check, model)
    work = home / "work"
    work.mkdir(parents=True)
    environ = {"PATH": ":".join([*map(str, PATHS), os.environ["PATH"]]), "HOME": str(home)}
    connect = ("connect", command.name, "--write", "--url", target.url, "--model", check.model or model)
    connected = await asyncio.to_thread(run_dragoman, *connect, environ=environ)
    assert connected.returncode == 0, connected.stderr
    scenario = command.tool if check is TOOL else check.scenario
    prompt = f"scenario {scenario} (job {job_id(check, model)})."
    script = script_of(connected.stdout, check.key or target.key, command.words)
    with tempfile.TemporaryDirectory(prefix="dgm-") as short:  # a socket's path has at most 107 bytes
        socket, port = Path(short) / "out", target.url.rpartition(":")[2]
        shown = ["--ro-bind", str(ROOT), str(ROOT), "--bind", str(home), str(home), "--bind", short, short]
        inner = [sys.executable, "-m", "tests.clients.loopback", port, str(socket)]
        async with leading_to(int(port), socket):
            return await ended(
                ["bwrap", *CONFINED, *shown, "--chdir", str(work), *inner, "bash", "-euc", script, "bash", prompt],
                environ | {"TERM": "dumb", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)},
                work,
            )


async def ended(words: list[str], environ: dict[str, str], work: Path) -> Ended:
    process = await asyncio.create_subprocess_exec(
        *words, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
    except TimeoutError:
        return Ended(None, "", f"{words[-5:]} took more than {LIMIT_S} s", work)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    return Ended(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"), work)


def problems(command: Command, check: CommandCheck, model: str, target: Target, ended: Ended) -> list[str]:
    """The differences between what the program understood and what it must have."""
    everything = f"exit code {ended.code}\n{ended.stdout[-3000:]}\n{ended.stderr[-1500:]}"
    if check.refused:
        wanted = command.unknown_model if check is UNKNOWN_MODEL else check.refused
        shown = " ".join((ended.stdout + ended.stderr).split())
        right = wanted in shown and (ended.code not in (0, None) if command.fails else ended.code == 0)
        return [] if right else [f"no {wanted!r}: {everything}"]
    bodies = target.model.bodies[job_id(check, model)]
    if ended.code != 0 or not bodies:
        return [everything]
    read = understood(bodies[-1])
    output, found = command.read(ended.stdout, ended.work), []
    answer = SCENARIOS[read.scenario](read).text.strip()
    if [text.strip() for text in output.texts] != [answer]:
        found.append(f"texts {output.texts} instead of {answer!r}: {everything}")
    commands = [COMMAND] if check is TOOL and command.tool == "shell" else []
    if output.commands is not None and not same_commands(output.commands, commands):
        found.append(f"commands {output.commands} instead of {commands}")
    if check is TOOL:
        noted = ended.work / "moored.txt"
        if not noted.exists() or noted.read_text() != f"{MOORED}\n":
            found.append(f"the file was not made: {everything}")
        if MOORED not in answer:
            found.append(f"the model read no result: {answer!r}")
    return found


def same_commands(ran: list[str], wanted: list[str]) -> bool:
    """Programs may put a shell in front."""
    return len(ran) == len(wanted) and all(ours in theirs for ours, theirs in zip(wanted, ran, strict=True))


class CommandRuns:
    """Of each command line, all at once when its first test asks."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._found: dict[str, dict[str, list[str]]] = {}

    def of(self, command: Command) -> dict[str, list[str]]:
        if command.name not in self._found:
            self._found[command.name] = asyncio.run(_observe(command, self._home / command.name))
        return self._found[command.name]


async def _observe(command: Command, home: Path) -> dict[str, list[str]]:
    (home / "work").mkdir(parents=True)
    free, found = asyncio.Semaphore(AT_ONCE), dict[str, list[str]]()

    async with dragoman(home, model="quay/hermes") as target:

        async def one(check: CommandCheck, model: str) -> None:
            async with free:
                ended = await run(command, check, model, target, home)
            found[job_id(check, model)] = problems(command, check, model, target, ended)

        await asyncio.gather(*(one(check, model) for check, model in jobs_of()))
    record(command.name, found)
    return found
