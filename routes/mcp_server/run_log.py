"""A run as an MCP call: one table from its events to progress, and from its log to the result."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent
from msgspec import Struct, field

from app.core.events import TERMINAL, ApprovalRequired, ApprovalResolved, ImageReturned, ToolFinished, ToolRejected
from app.core.provider import ReadFile
from app.storage.runs import EventRow, RunRow
from app.transcript.run_request import direct_call_of
from routes.lanes.attendance import ANSWERED
from routes.lanes.event_text import fields_of
from tools.base.patterns import lazy_pattern

Fields = Mapping[str, Any]
_COLOURS = lazy_pattern(r"\x1b\[[0-9;:]*m")


def _output(fields: Fields) -> str:
    """Return the last line that a tool has printed."""
    tail = _COLOURS.sub("", fields["tail"][-1]) if fields["tail"] else ""
    return tail or f"running for {fields['elapsed_s']:.0f} s"


def _active_step(fields: Fields) -> str:
    return next((one["step"] for one in fields["steps"] if one["state"] == "active"), "")


PROGRESS: Mapping[str, Callable[[Fields], str]] = {
    "run.started": lambda fields: f"{fields['run']} in {fields['session']}",
    "round.started": lambda fields: f"round {fields['round']}",
    "tool.started": lambda fields: f"{fields['name']} runs",
    "tool.progress": _output,
    "tool.finished": lambda fields: f"{fields['name']}: {'done' if fields['ok'] else 'failed'}",
    "tool.rejected": lambda fields: f"{fields.get('name') or 'a call'} was not run",
    "approval.required": lambda fields: f"{fields['name']} waits for a decision: {fields['reason']}",
    "approval.resolved": lambda fields: f"{fields['decision']} by {fields['by']}",
    "notice": lambda fields: str(fields["message"]),
    "plan": _active_step,
}
"""The message of a progress notification, by the type of the event. Other events give none."""


class RunLog(Struct):
    """What the log of a run says up to the event `seq`. `waiting` are questions that are open, by call."""

    row: RunRow
    seq: int = 0
    waiting: dict[str, Fields] = field(default_factory=dict)
    images: list[Fields] = field(default_factory=list)
    last: Fields | None = None  # how its last call ended
    end: Fields | None = None

    def take(self, rows: Iterable[EventRow]) -> str:
        """Take further events; return the message of the last one that has one."""
        message = ""
        for row in rows:
            self.seq = row.seq
            if row.type not in TAKEN:
                continue
            fields = fields_of(row)
            message = PROGRESS[row.type](fields) or message if row.type in PROGRESS else message
            match row.type:
                case ApprovalRequired.type:
                    self.waiting[fields["call"]] = fields
                case ApprovalResolved.type:
                    self.waiting.pop(fields["call"], None)
                case ImageReturned.type:
                    self.images.append(fields)
                case ToolFinished.type | ToolRejected.type:
                    self.last = fields
                case kind if kind in TERMINAL:
                    self.end = fields
        return message

    async def result(self, read: ReadFile) -> CallToolResult:
        """Return the result of the call that the run is for."""
        end = self.end or {}
        if direct_call_of(self.row) and self.last:
            images = [await _image(one, read) for one in self.images]
            return _result(self.last.get("text") or self.last.get("reason", ""), self.last.get("ok", False), images)
        reason = end.get("reason") or end.get("code", "")
        result = _result(end.get("text") or end.get("message") or f"The run has ended: {reason}.", reason in ANSWERED)
        if not direct_call_of(self.row):
            result.structured_content = {"session": self.row.session, "run": self.row.id, "reason": reason}
        return result


TAKEN = frozenset({*PROGRESS, *TERMINAL, ImageReturned.type})


def _result(text: str, ok: bool, images: Iterable[ImageContent] = ()) -> CallToolResult:
    content: list[ContentBlock] = [TextContent(text=text), *images]
    return CallToolResult(content=content, is_error=not ok)


async def _image(fields: Fields, read: ReadFile) -> ImageContent:
    data = await read(fields["sha256"])
    return ImageContent(data=base64.b64encode(data).decode(), mime_type=fields["media_type"])
