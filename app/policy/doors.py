"""Doors: the ways by which a person's decision on a waiting call can come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Door = Literal["page", "push", "terminal", "acp", "api", "responses", "ag-ui", "ui-messages", "mcp", "link"]
ClientDoor = Literal["page", "push", "terminal", "acp", "api"]
"""Those that a client names itself: all of them send `POST /runs/{run}/approvals/{call}`."""

DOORS: Mapping[str, str] = {
    "page": "on the page",
    "push": "from a notification",
    "terminal": "in the terminal",
    "acp": "in the editor",
    "api": "over HTTP",
    "responses": "over Responses",
    "ag-ui": "over AG-UI",
    "ui-messages": "over the AI SDK",
    "mcp": "over MCP",
    "link": "by link",
}


def outcome(decision: str, by: str, door: str | None) -> str:
    """Return the outcome in words, such as `approved by ann by link`."""
    place = DOORS.get(door or "", "")
    return f"{decision} by {by} {place}".rstrip()
