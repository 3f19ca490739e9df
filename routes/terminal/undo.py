"""`/undo` in `dragoman chat`: the last turn of the conversation that has changed files, shown and undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from json import JSONDecodeError
from typing import Any
from urllib.parse import quote

import httpx2
from msgspec import Struct

from routes.terminal.event_client import ChatFailed, refusal
from routes.terminal.view import printable

COMMAND = "/undo"
MOST_TURNS = 16  # that are looked at, from the last one on
MOST_LINES = 200  # of diffs that are shown
UNDOABLE = frozenset({"kept", "undoing"})
NO_TURN = "No turn of this conversation has changed files that could be undone."

Json = dict[str, Any]
Print = Callable[[str], object]


class Undo(Struct, frozen=True):
    """Undoes turns of one conversation, after `confirm(question)`."""

    client: httpx2.AsyncClient
    show: Print
    confirm: Callable[[str], bool]

    async def last(self, session: str | None) -> None:
        """Undo the last turn that has changed files, if the person confirms that. Raises ChatFailed."""
        changes = await self._changes(session) if session else None
        if changes is None:
            self.show(NO_TURN)
            return
        for line in lines_of(changes):
            self.show(line)
        if self.confirm(f"Undo all of this ({len(changes['files']) + changes['more_files']})? [y/N] "):
            await self._request("POST", f"/runs/{changes['run']}/undo")
            self.show("Undone. The model learns of it with your next message. /undo again undoes the turn before.")

    async def _changes(self, session: str) -> Json | None:
        runs = (await self._request("GET", f"/sessions/{quote(session, safe='')}"))["runs"]
        for run in reversed(runs[-MOST_TURNS:]):
            changes = await self._request("GET", f"/runs/{run['id']}/changes")
            if changes["state"] in UNDOABLE and changes["files"]:
                return changes
        return None

    async def _request(self, method: str, path: str) -> Json:
        try:
            response = await self.client.request(method, path)
        except httpx2.TransportError as error:
            raise ChatFailed(f"No answer from {self.client.base_url}: {error}.") from error
        if not response.is_success:
            raise ChatFailed(refusal(response.status_code, response.content) + _named(response))
        answer: Json = response.json()
        return answer


def _named(response: httpx2.Response) -> str:
    """Return the files that keep a turn from being undone, a line each."""
    try:
        files = response.json()["error"].get("files", ())
    except (JSONDecodeError, KeyError, TypeError, AttributeError):
        return ""
    return "".join(f"\n  {printable(one['path'])}: {printable(one['reason'])}" for one in files)


def lines_of(changes: Json) -> Sequence[str]:
    """Return the changes as lines: the files, with their diffs as long as these are short."""
    lines = list[str]()
    for one in changes["files"]:
        kind = "" if one["kind"] == "file" else f" {one['kind']}"
        lines += [f"{one['change']}{kind}: {one['path']}", *one["diff"].splitlines()]
    lines += [f"not kept, and not restored: {one['path']}" for one in changes["left_out"]]
    hidden = [f"... {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return [*map(printable, lines[:MOST_LINES]), *hidden]
