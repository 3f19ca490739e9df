"""The view of a helper's log from the run above: its last lines, its approvals, and how it ended."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from app.core.events import (
    TERMINAL,
    ApprovalRequired,
    ApprovalResolved,
    ReasoningDelta,
    RunFailed,
    TextDelta,
    ToolFinished,
    ToolRejected,
    ToolStarted,
)
from app.core.helper_events import HelperApproval
from app.storage.runs import EventRow

TAIL_LINES, LINE_CHARACTERS = 12, 400
ARGUMENTS = 200  # characters of a call's arguments in the tail


class HelperView:
    """Reads the events of `helper`, in order; `call` is the call of the run above that waits for it."""

    def __init__(self, helper: str, call: str) -> None:
        self.lines = 0
        self.bytes = 0
        self.terminal: dict[str, Any] = {}
        self._helper = helper
        self._call = call
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._open = False  # the last line goes on

    @property
    def tail(self) -> tuple[str, ...]:
        return tuple(self._tail)

    def read(self, row: EventRow) -> HelperApproval | None:
        """Take the next event. Returns the approval that it is about, as the log of the run above shows it."""
        self.bytes += len(row.data)
        if row.type == ReasoningDelta.type:
            return None
        fields = json.loads(row.data)
        match row.type:
            case TextDelta.type if "call" not in fields:  # else the line of the call has it
                self._write(fields["text"])
            case ToolStarted.type:
                self._line(f"{fields['name']} {json.dumps(fields['arguments'])[:ARGUMENTS]}")
            case ToolFinished.type:
                self._line(f"{fields['name']}: {'done' if fields['ok'] else 'failed'}")
            case ToolRejected.type:
                self._line(f"{fields.get('name') or 'call'}: refused")
            case ApprovalRequired.type:
                self._line(f"{fields['name']}: waits for approval")
                return HelperApproval(
                    self._call,
                    [self._helper],
                    fields["call"],
                    "pending",
                    name=fields["name"],
                    arguments=fields["arguments"],
                    reason=fields["reason"],
                    expires_at=fields.get("expires_at"),
                )
            case ApprovalResolved.type:
                state, by, door = fields["decision"], fields.get("by"), fields.get("door")
                return HelperApproval(self._call, [self._helper], fields["call"], state, by=by, door=door)
            case HelperApproval.type:
                del fields["type"]
                return HelperApproval(**fields | {"call": self._call, "path": [self._helper, *fields["path"]]})
        if row.type in TERMINAL:
            self.terminal = fields
        return None

    @property
    def reason(self) -> str:
        """The reason of its end, or the code of its failure; empty if its log has no end."""
        code: str = self.terminal.get("code" if self.terminal.get("type") == RunFailed.type else "reason", "")
        return code

    def _line(self, text: str) -> None:
        self._open = False
        self._add(text)

    def _write(self, text: str) -> None:
        first, *others = text.split("\n")
        if self._open and self._tail:
            self._tail[-1] = (self._tail[-1] + first)[-LINE_CHARACTERS:]
        else:
            self._add(first)
        for line in others:
            self._add(line)
        self._open = True

    def _add(self, text: str) -> None:
        self.lines += 1
        self._tail.append(text[-LINE_CHARACTERS:])
