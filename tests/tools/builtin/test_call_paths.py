"""No confined tool leaves the workspace by a path of its call: each row of the catalogue, and naive tools."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tools.base.outcome import Result
from tools.base.rights import Risk
from tools.base.workspace import CallPath, ReadFile, WrittenFile
from tools.builtin.files import off_the_loop
from tools.catalogue import CATALOGUE
from tools.tool import NO_PATHS, Context, Tool
from tools.toolbox import Allow, Toolbox

# What runs code is confined by the sandbox, which has tests of its own.
CONFINED = [tool for tool in CATALOGUE if tool.confined and tool.risk is not Risk.EXECUTE]
OUTSIDE = ("/etc/passwd", "../outside/secret", "real/../../outside/secret", "linked/secret", "{outside}/secret", "..")
HOSTILE = (*OUTSIDE, "link", "linked", "real/up/secret", "dangling", "fifo", "socket", "/dev/zero")
DEVICES = ((Path("/dev"), "null"), (Path("/dev"), "zero"))  # as paths of a workspace
LIMIT_S = 100


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace full of traps, and a secret outside of it."""
    outside, inside = tmp_path / "outside", tmp_path / "workspace"
    for folder in (outside, inside / "real"):
        folder.mkdir(parents=True)
    (outside / "secret").write_text("the secret")
    (inside / "link").symlink_to(outside / "secret")
    (inside / "linked").symlink_to(outside)
    (inside / "real" / "up").symlink_to("../../outside")
    (inside / "dangling").symlink_to(outside / "new")
    os.mkfifo(inside / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(inside / "socket"))
    return inside


def escapes(tools: Iterable[Tool], workspace: Path, paths: Sequence[str] = HOSTILE) -> list[str]:
    """What calls with these paths open outside of the workspace, and which are not refused: in a process of its own."""
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        with os.fdopen(reading) as answer:
            found: list[str] = json.load(answer)
        os.waitpid(child, 0)
        return found
    try:
        signal.alarm(LIMIT_S)
        os.write(writing, json.dumps(asyncio.run(_escapes(tools, workspace, paths))).encode())
    finally:
        os._exit(0)


async def _escapes(tools: Iterable[Tool], workspace: Path, paths: Sequence[str]) -> list[str]:
    opened, found = list[str](), list[str]()

    def note(event: str, given: tuple[Any, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir") and isinstance(given[0], str | bytes | os.PathLike):
            opened.append(os.path.realpath(os.fsdecode(given[0])))

    def is_outside(path: str) -> bool:
        barred = ("/etc/passwd", "/dev/", str(workspace.parent))
        return path.startswith(barred) and not Path(path).is_relative_to(workspace)

    sys.addaudithook(note)
    toolbox = Toolbox(tools, lambda *_: Allow())
    places = [(workspace, path.format(outside=workspace.parent / "outside")) for path in paths]
    for tool, (place, path) in product(toolbox.offered, [*places, *DEVICES]):
        opened.clear()
        calls = toolbox.run(tool.name, filled(tool.parameters, path), Context(place))
        results = [news async for news in calls if isinstance(news, Result)]
        found += [f"{tool.name} {path}: opens {one}" for one in opened if is_outside(one)]
        found += [f"{tool.name} {path}: {one.text}" for one in results if tool.paths and one.ok]
    return found


def filled(schema: dict[str, Any], path: str) -> Any:
    """Arguments that fit a schema; every text that can be the path is it."""
    match schema:
        case {"enum": [first, *_]}:
            return first
        case {"properties": properties}:
            return {name: filled(one, path) for name, one in properties.items()}
        case {"items": items}:
            return [filled(items, path)]
    return path if schema["type"] == "string" else 1


def test_no_tool_of_the_catalogue_leaves_the_workspace(workspace: Path) -> None:
    assert escapes(CONFINED, workspace) == []
    outside = workspace.parent / "outside"
    assert [(entry.name, entry.read_text()) for entry in outside.iterdir()] == [("secret", "the secret")]


def test_a_path_is_one_text_and_a_written_one_is_called_so() -> None:
    """The gate, the comparison before an approval, labels and rules know written files by that name."""
    for tool in (tool for tool in CATALOGUE if tool.paths):
        assert [tool.parameters["properties"][name] for name in tool.paths] == [{"type": "string"}] * len(tool.paths)
        assert {name for name, use in tool.paths.items() if use is WrittenFile} <= {"path"}


def naive(read: Callable[[Any], object], paths: dict[str, type[CallPath]] | Any) -> Tool:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    run = off_the_loop(lambda arguments: str(read(arguments["path"])))
    return Tool("count_lines", "Count the lines of a file.", schema, Risk.READ, run, confined=True, paths=paths)


@pytest.mark.parametrize("way", range(5))
def test_a_naive_tool_opens_nothing(workspace: Path, way: int) -> None:
    reads: list[Callable[[Any], object]] = [
        lambda path: io.FileIO(path),
        lambda path: Path(path).read_text(),
        lambda path: (workspace / path).read_text(),
        lambda path: os.open(path, os.O_RDONLY),
        lambda path: list(os.scandir(path)),
    ]
    assert escapes([naive(reads[way], {"path": ReadFile})], workspace) == []
    assert escapes([naive(reads[way], NO_PATHS)], workspace, OUTSIDE) != [], "the test sees no escape"
