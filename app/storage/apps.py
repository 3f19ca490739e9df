"""What apps of MCP servers have last said, by the call whose result they show."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter


class AppState(Change, frozen=True):
    """`state` is JSON; `context` is a text that the next turn of the session reads, empty once it has."""

    session: str
    run: str
    call: str
    state: str
    context: str = ""


class AppContextRead(Change, frozen=True):
    """The context of an app is in the history, unless it is another by now."""

    run: str
    call: str
    context: str


class AppStore(ChangeWriter, Protocol):
    async def app_state(self, run: str, call: str) -> AppState | None: ...
