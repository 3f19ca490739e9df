"""`/document` in `dragoman chat`: prints the document of the conversation that was changed last, or the one named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx2
from msgspec import Struct

from routes.terminal.event_client import ChatFailed, refusal
from routes.terminal.view import printable

COMMAND = "/document"
NONE = "This conversation has no such document."


class Documents(Struct, frozen=True):
    """Prints documents of one conversation."""

    client: httpx2.AsyncClient
    show: Callable[[str], object]

    async def print_one(self, session: str | None, message: str) -> None:
        """Print the document that `/document TITLE` names. Raises ChatFailed."""
        title = message.strip().removeprefix(COMMAND).strip().casefold()
        path = f"/sessions/{quote(session or '', safe='')}/documents"
        rows = (await self._read(path))["documents"] if session else []
        found = [row for row in rows if not title or title in (row["id"], row["title"].casefold())]
        if not found:
            self.show(NONE)
            return
        newest = max(found, key=lambda row: float(row["updated"]))
        document = await self._read(f"/documents/{quote(newest['id'], safe='')}")
        self.show(printable(f"{document['title']} ({document['id']}), version {document['version']}"))
        self.show(printable(document["text"]))

    async def _read(self, path: str) -> dict[str, Any]:
        try:
            response = await self.client.get(path)
        except httpx2.TransportError as error:
            raise ChatFailed(f"No answer from {self.client.base_url}: {error}.") from error
        if not response.is_success:
            raise ChatFailed(refusal(response.status_code, response.content))
        answer: dict[str, Any] = response.json()
        return answer
