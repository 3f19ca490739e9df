"""A run as an MCP call: one table from its events to progress, its questions as forms, its end as the result."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from app.core.events import TERMINAL, ApprovalRequired, ApprovalResolved, ImageReturned, ToolFinished, ToolRejected
from app.core.provider import ReadFile
from app.policy.stored_grants import Review
from app.storage.runs import EventRow, RunRow
from app.transcript.run_request import direct_call_of
from routes.lanes.attendance import ANSWERED
from routes.lanes.event_text import fields_of
from tools.base.escape_invisible import visible
from tools.base.patterns import lazy_pattern
from tools.builtin.ask_user import OWN_QUESTION
from tools.mcp.names import is_question

Fields = Mapping[str, Any]
LONGEST = 4_000  # characters of arguments that a form shows: of longer ones it cannot approve what it does not show
_COLOURS = lazy_pattern(r"\x1b\[[0-9;:]*m")
TEXT = {"type": "string"}
NOTE = {"note": TEXT | {"title": "A note, if you deny it", "maxLength": 2_000}}
SCOPE = TEXT | {"title": "Only this call, or the same again in this session", "enum": ["once", "session"]}
DECISION = {
    "type": "object",
    "properties": {"decision": TEXT | {"enum": ["approve", "deny"]}, "scope": SCOPE, **NOTE},
    "required": ["decision"],
}
ON_PAGE = "decide on the page"
DENIAL = DECISION | {"properties": {"decision": TEXT | {"enum": [ON_PAGE, "deny"]}, **NOTE}}
# The message of a progress notification, by the type of the event. Other events give none.
PROGRESS: Mapping[str, Callable[[Fields], str]] = {
    "run.started": lambda fields: f"{fields['run']} in {fields['session']}",
    "round.started": lambda fields: f"round {fields['round']}",
    "tool.started": lambda fields: f"{fields['name']} runs",
    "tool.progress": lambda fields: _COLOURS.sub("", "".join(fields["tail"][-1:])) or f"{fields['elapsed_s']:.0f} s",
    "tool.finished": lambda fields: f"{fields['name']}: {'done' if fields['ok'] else 'failed'}",
    "tool.rejected": lambda fields: f"{fields.get('name') or 'a call'} was not run",
    "approval.required": lambda fields: f"{fields['name']} waits for a decision: {fields['reason']}",
    "approval.resolved": lambda fields: f"{fields['decision']} by {fields['by']}",
    "notice": lambda fields: str(fields["message"]),
    "plan": lambda fields: next((one["step"] for one in fields["steps"] if one["state"] == "active"), ""),
}
TAKEN = frozenset({*PROGRESS, *TERMINAL, ImageReturned.type})


class RunLog(Struct):
    """The state of a run, as its log has it up to the event `seq`. `waiting` are questions that are open, by call."""

    row: RunRow
    seq: int = 0
    waiting: dict[str, Fields] = field(default_factory=dict)
    images: list[Fields] = field(default_factory=list)
    last: Fields = field(default_factory=dict)  # how its last call ended
    end: Fields = field(default_factory=dict)

    def take(self, rows: Iterable[EventRow]) -> str:
        """Take further events; return the message of the last one that has one."""
        message = ""
        for row in rows:
            self.seq = row.seq
            fields = fields_of(row) if row.type in TAKEN else {}
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

    async def result(self, read: ReadFile) -> dict[str, Any]:
        """Return the result of the call that the run is for."""
        if direct_call_of(self.row) and self.last:
            text, ok, structured = self.last.get("text"), self.last.get("ok", False), self.last.get("structured")
            if text is None:  # without the advice, which is about the tools of a run
                text = self.last["reason"].removesuffix(self.last.get("advice") or "") or self.last["reason"]
        else:
            reason = self.end.get("reason") or self.end.get("code", "")
            text = self.end.get("text") or self.end.get("message") or f"The run has ended: {reason}."
            ok, structured = reason in ANSWERED, {"session": self.row.session, "run": self.row.id, "reason": reason}
        content: list[dict[str, str]] = [{"type": "text", "text": str(text)}]
        for one in self.images if direct_call_of(self.row) else ():
            data = base64.b64encode(await read(one["sha256"])).decode()
            content.append({"type": "image", "data": data, "mimeType": one["media_type"]})
        more = {"structuredContent": structured} if isinstance(structured, dict) else {}
        return {"content": content, "isError": not ok, **more}


def form_of(asked: Fields) -> dict[str, Any]:
    """Return the parameters of an elicitation for what `approval.required` asks."""
    if _is_question(asked):
        shown = asked["arguments"]
        message, schema = f"{asked['reason']}\n\n{shown['message']}\n{shown.get('url', '')}", shown.get("schema") or {}
    else:
        arguments, is_whole = _readable(asked)
        schema, rest = (DECISION, "") if is_whole else (DENIAL, " … (the page shows all of it, and can approve it)")
        message = f"{asked['name']}: {asked['reason']}\n\n{arguments}{rest}"
    return {"message": message.strip(), "requestedSchema": {"type": "object", "properties": {}, **schema}}


def review_of(asked: Fields, answer: Any) -> Review | None:
    """Return the decision in the answer to a form; None if that leaves it to the page."""
    given: Mapping[str, Any] = answer.content or {}
    if answer.action == "accept" and _is_question(asked):
        return Review("approve", arguments=dict(given) or None, door="mcp")
    if answer.action == "accept" and given.get("decision") in ("approve", ON_PAGE):
        if given["decision"] == ON_PAGE or not _readable(asked)[1]:
            return None
        return Review("approve", "session" if given.get("scope") == "session" else "once", door="mcp")
    return Review("deny", note=str(given.get("note") or "")[:2_000] or None, door="mcp")


def _readable(asked: Fields) -> tuple[str, bool]:
    """Return the arguments as JSON, and whether that is all of them.

    Escapes stand for what a person would not see, or not where it is.
    """
    written = json.dumps(asked["arguments"], indent=1, ensure_ascii=False)
    text = "".join(one if _is_seen(one) else one.encode("unicode_escape").decode() for one in written[: LONGEST + 1])
    return text[:LONGEST], len(text) <= LONGEST


def _is_seen(one: str) -> bool:
    return one == "\n" or (one.isprintable() and visible(one) == one)


def _is_question(asked: Fields) -> bool:
    return asked["name"] == OWN_QUESTION or is_question(asked["name"])
