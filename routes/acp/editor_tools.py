"""Tools of the editor, for a folder that the server does not have: client tools, whose calls it hands over.

The server's rules, labels and plan mode hold for them as for the tools of any client; the person is asked here.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from acp import RequestError
from acp.schema import ClientCapabilities
from msgspec import Struct

from routes.acp.updates import Json

MOST_OUTPUT = 1 << 16  # bytes of a command, characters of a file: a model has to read them


class Place(Struct, frozen=True):
    """The folder of a session. `ask` sends a request to its editor, `show_terminal` embeds one in the call."""

    cwd: Path
    ask: Callable[..., Awaitable[Json]]
    show_terminal: Callable[[str], None]

    def path(self, given: object) -> str:
        """Raises RequestError for one outside of the folder."""
        with suppress(ValueError):  # no path has a NUL
            path = Path(os.path.realpath(self.cwd / str(given)))
            if path.is_relative_to(self.cwd.resolve()):
                return str(path)
        raise RequestError(-32602, f"{str(given)[:200]!a} is outside of the project {self.cwd}.")


async def read_file(place: Place, given: Mapping[str, Any]) -> str:
    answer = await place.ask("fs/read_text_file", **{**given, "path": place.path(given["path"])})
    content = str(answer.get("content", ""))
    return content if len(content) <= MOST_OUTPUT else f"{content[:MOST_OUTPUT]}\n[It is longer. Read it by lines.]"


async def write_file(place: Place, given: Mapping[str, Any]) -> str:
    await place.ask("fs/write_text_file", path=place.path(given["path"]), content=given["content"])
    return f"{given['path']} is written."


async def run_command(place: Place, given: Mapping[str, Any]) -> str:
    shell = {"command": "sh", "args": ["-c", given["command"]], "cwd": str(place.cwd), "outputByteLimit": MOST_OUTPUT}
    terminal = str((await place.ask("terminal/create", **shell)).get("terminalId"))
    try:
        place.show_terminal(terminal)
        await place.ask("terminal/wait_for_exit", terminalId=terminal)
        ended = await place.ask("terminal/output", terminalId=terminal)
    finally:
        await place.ask("terminal/release", terminalId=terminal)
    return f"{ended.get('output', '')}\n[exit code {(ended.get('exitStatus') or {}).get('exitCode')}]"


class EditorTool(Struct, frozen=True):
    """`texts` are its parameters, `numbers` those that may be left out. `offered`: the editor can do it."""

    about: str
    offered: Callable[[ClientCapabilities], Any]
    run: Callable[[Place, Mapping[str, Any]], Awaitable[str]]
    texts: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    asks: bool = True

    def declared(self, name: str) -> Json:
        properties: Json = {one: {"type": "string"} for one in self.texts}
        properties |= {one: {"type": "integer", "minimum": 1} for one in self.numbers}
        parameters = {"type": "object", "properties": properties, "required": [*self.texts]}
        about = f"{self.about} the person's project, which is on their machine."
        return {"name": name, "description": about, "parameters": parameters}


def _reads(can: ClientCapabilities) -> Any:
    return can.fs and can.fs.read_text_file


def _writes(can: ClientCapabilities) -> Any:
    return can.fs and can.fs.write_text_file


EDITOR_TOOLS: Mapping[str, EditorTool] = {
    "editor_read_file": EditorTool("Read a text file of", _reads, read_file, ("path",), ("line", "limit"), asks=False),
    "editor_write_file": EditorTool("Create or replace a text file of", _writes, write_file, ("path", "content")),
    "editor_terminal": EditorTool("Run a shell command in", lambda can: can.terminal, run_command, ("command",)),
}
