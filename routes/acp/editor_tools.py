"""Tools of the editor, for a folder that the server does not have: clients' tools, whose calls it hands over.

The server's rules, labels and plan mode hold for them as for the tools of any client; the person is asked here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from acp import RequestError, schema
from msgspec import Struct

from routes.acp.editor import Editor
from routes.acp.updates import Json

MOST_OUTPUT = 1 << 20  # bytes of a command
TEXT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 1}


class Place(Struct, frozen=True):
    """The session at the editor, and its folder. `show` embeds a terminal in the call."""

    editor: Editor
    session: str
    cwd: Path
    show: Callable[[str], None]

    def path(self, given: object) -> str:
        """Raises RequestError for one outside of the folder."""
        path = (self.cwd / str(given)).resolve()
        if not path.is_relative_to(self.cwd.resolve()):
            raise RequestError(-32602, f"{str(given)[:200]} is outside of the project {self.cwd}.")
        return str(path)

    async def ask(self, method: str, **params: Any) -> Json:
        return await self.editor.request(method, sessionId=self.session, **params)


async def read_file(place: Place, given: Mapping[str, Any]) -> str:
    part = {name: given[name] for name in ("line", "limit") if name in given}
    return str((await place.ask("fs/read_text_file", path=place.path(given["path"]), **part)).get("content", ""))


async def write_file(place: Place, given: Mapping[str, Any]) -> str:
    await place.ask("fs/write_text_file", path=place.path(given["path"]), content=given["content"])
    return f"{given['path']} is written."


async def run_command(place: Place, given: Mapping[str, Any]) -> str:
    shell = {"command": "sh", "args": ["-c", given["command"]], "cwd": str(place.cwd), "outputByteLimit": MOST_OUTPUT}
    terminal = {"terminalId": (await place.ask("terminal/create", **shell)).get("terminalId")}
    try:
        place.show(str(terminal["terminalId"]))
        await place.ask("terminal/wait_for_exit", **terminal)
        ended = await place.ask("terminal/output", **terminal)
    finally:
        await place.ask("terminal/release", **terminal)
    code = (ended.get("exitStatus") or {}).get("exitCode")
    return f"{ended.get('output', '')}\n[exit code {'unknown' if code is None else code}]"


class EditorTool(Struct, frozen=True):
    description: str
    parameters: Mapping[str, Any]  # by name; `line` and `limit` may be left out
    offered: Callable[[schema.ClientCapabilities], Any]
    run: Callable[[Place, Mapping[str, Any]], Awaitable[str]]
    asks: bool = True

    def declared(self, name: str) -> Json:
        required = [one for one in self.parameters if self.parameters[one] is TEXT]
        parameters = {"type": "object", "properties": dict(self.parameters), "required": required}
        return {"name": name, "description": self.description, "parameters": parameters}


WHERE = "of the person's project, which is on their machine"
EDITOR_TOOLS: Mapping[str, EditorTool] = {
    "editor_read_file": EditorTool(
        f"Read a text file {WHERE}, as it is in their editor.",
        {"path": TEXT, "line": NUMBER, "limit": NUMBER},
        lambda can: can.fs and can.fs.read_text_file,
        read_file,
        asks=False,
    ),
    "editor_write_file": EditorTool(
        f"Create or replace a text file {WHERE}.",
        {"path": TEXT, "content": TEXT},
        lambda can: can.fs and can.fs.write_text_file,
        write_file,
    ),
    "editor_terminal": EditorTool(
        f"Run a shell command in the folder {WHERE}.", {"command": TEXT}, lambda can: can.terminal, run_command
    ),
}
