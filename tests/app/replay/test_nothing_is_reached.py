"""A replay reaches nothing: no network, no process, and no file but Python's own and the recording."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.core.provider import Piece
from app.models.scripted import Reply, Scripted
from app.replay.recording import written
from tests import ROOT
from tests.support import audited_replays
from tests.support.golden.playing import RECORDINGS, native
from tests.support.mcp.served import READS, helper, serving_mcp
from tests.support.replays import CALL, recorded

LIMIT_S = 110
RULES = [{"tool": "*", "paths": ["secrets/**"], "action": "deny", "reason": "Keys are there"}]
RULES += [{"tool": "read_file", "paths": ["letters/**/*.txt"], "action": "ask", "reason": "They are private"}]
CALLS: list[tuple[str, dict[str, object]]] = [
    ("mcp__helper__echo", {"text": "hi"}),
    ("mcp__helper__long", {"size": 40_000}),
    ("write_file", {"path": "notes/today.txt", "content": "Milk"}),
    ("write_file", {"path": ".git/hooks/pre-commit", "content": "echo hi"}),
    ("read_file", {"path": "notes/today.txt"}),
    ("read_file", {"path": "secrets/key"}),
    ("read_file", {"path": "letters/old"}),  # a folder, in which there may be some
    ("edit_file", {"path": "notes/today.txt", "old": "Milk", "new": "Bread"}),
    ("web_fetch", {"url": "http://127.0.0.1:9/page"}),
    ("bash", {"command": "echo hi > made.txt; cat made.txt"}),
    ("python", {"code": "print(open('made.txt').read())"}),
]


def replies() -> list[Reply]:
    calls: list[list[Piece]] = [native(0, name, arguments) for name, arguments in CALLS]
    return [*calls, "That was all.", CALL, "It printed hi.", "No call."]


async def recordings(folder: Path) -> list[Path]:
    """Files of three runs, the first of which calls tools of all kinds; their folders are gone afterwards."""
    flags = {"record": True, "time_zone": "UTC", "rules": RULES, "tools": READS}
    ((work := folder / "work") / "letters" / "old").mkdir(parents=True)
    found = list[Path]()
    async with serving_mcp(folder, Scripted(replies()), {"helper": helper()}, **flags) as served:
        session = None
        for message in ("Do all of it", "Print hi", "And now?"):
            events = await served.chat(message, session=session, approval="auto", when_absent="deny", max_rounds=20)
            session = events[0]["session"]
        for number, one in enumerate(await recorded(served)):
            (path := folder / f"run{number}.json").write_text(written(one))
            found.append(path)
    shutil.rmtree(work)
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    made = asyncio.run(recordings(tmp_path_factory.mktemp("runs")))
    started = {event["name"] for event in json.loads(made[0].read_text())["events"] if event["type"] == "tool.started"}
    assert started >= {name for name, _ in CALLS}
    return [*sorted(RECORDINGS.glob("*.json")), *made]


def ended(command: Sequence[object], home: Path) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    words = list(map(str, command))
    done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_replay_reaches_nothing(files: list[Path], tmp_path: Path) -> None:
    said = json.loads(ended([sys.executable, "-m", audited_replays.__name__, *files], tmp_path))
    assert said["states"] == {str(path): ["same", ""] for path in files}
    assert not said["reached"]


@pytest.mark.skipif(not shutil.which("strace"), reason="there is no strace: apt-get install strace")
def test_the_kernel_sees_nothing_of_a_replay(files: list[Path], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = ("strace", "-f", "-qq", "-e", "trace=network,process,file", "-s", "4096", "-o", trace)
    dragoman = (Path(sys.executable).parent / "dragoman", "replay", "--jobs", "1")
    assert "no difference" in ended([*strace, *dragoman, *files], tmp_path)
    lines = trace.read_text().splitlines()
    first = next(
        at for at, line in enumerate(lines) if f'openat(AT_FDCWD, "{files[0]}"' in line
    )  # before that it reads its settings
    assert not "\n".join(line for line in lines[first:] if not is_own(line, files))


OURS = re.compile(
    r"^\d+ +(?:<\.\.\. .*"  # the rest of a call
    r"|socketpair\(AF_UNIX.*|sendto\(\d+, \"\\0\".*|(?:recvfrom|getsockname|shutdown)\(.*"  # to wake the loop up
    r"|clone3?\(.*CLONE_THREAD.*|exit\(.*|exit_group\(.*|wait4\(.*"
    r"|\w+\(\d+, \"\", .*"  # of a file that is open
    r"|getcwd\(.*|readlink\(\"/proc/self/.*)"
)


def is_own(line: str, files: Sequence[Path]) -> bool:
    """Return True for a system call of Python itself, or on a recording."""
    if OURS.match(line):
        return True
    paths = re.findall(r'"([^"]*)"', line)
    own = (*audited_replays.OWN, *audited_replays.MORE, "/sys/devices/system/cpu", "/proc/", *map(str, files))
    return bool(paths) and "exec" not in line and paths[0].startswith(own)
