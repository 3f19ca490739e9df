"""Other sessions of the same principal, as the tools of a run reach them."""

from __future__ import annotations

from typing import Protocol

from tools.base.outcome import Result


class SessionAccess(Protocol):
    """Every method raises ToolFailed."""

    async def list(self, query: str) -> Result:
        """List the sessions used last, or those that hold the words of a query."""
        ...

    async def read(self, session: str, offset: int) -> Result:
        """Return messages of a session as data, from the character `offset` on."""
        ...

    async def send(self, session: str, message: str) -> str:
        """Begin a run with this message in a session, or put it in its queue."""
        ...
