"""A document that a model makes and a person saves."""

from __future__ import annotations

from typing import Any

from tests.support.models.replies import tool_call
from tests.support.server.events import of_kind
from tests.support.server.serving import Served

TEXT = "# Trip\n\nWe go by train.\n\nWe eat bread.\n"
CREATE = tool_call("create_document", title="Trip", content=TEXT)


async def make_document(served: Served) -> tuple[str, str]:
    """The session and the id of the document that the first turn makes."""
    events = await served.chat("Write it.")
    return events[0]["session"], of_kind(events, "document.finished")[0]["document"]


async def save_document(served: Served, document: str, **body: object) -> tuple[int, dict[str, Any]]:
    response = await served.client.put(f"/documents/{document}", json=body)
    return response.status_code, response.json()
