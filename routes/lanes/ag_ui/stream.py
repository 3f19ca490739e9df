"""A run's log as AG-UI events. Clients refuse events in a wrong order, and optional fields that are null.

Own calls have a result; a call without one is the client's to run. See https://docs.ag-ui.com/concepts/events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from app.core.events import RunFinished, TextDelta
from app.storage.runs import EventRow
from routes.lanes.lane import Turn
from routes.lanes.part_encoder import Fields, PartEncoder

# Interrupts that want the fields of a form, not a decision: their answers are the form's, whatever its fields are.
FORM = "form:"
APPROVED = {"approved": {"type": "boolean"}}
EDITED = {"editedArgs": {"type": "object", "description": "All arguments, in place of those of the call."}}
DECISION_SCHEMA = {"type": "object", "properties": APPROVED, "required": ["approved"]}
EDITABLE_SCHEMA = {"type": "object", "properties": APPROVED | EDITED, "required": ["approved"]}
PROGRESS = "tool.progress"
PROGRESS_FIELDS = ("elapsed_s", "tail", "lines", "bytes")
COMPLETE = frozenset({"answered", "client_tools"})


class AGUIEncoder(PartEncoder):
    def __init__(self, turn: Turn) -> None:
        super().__init__(turn)
        echo = turn.request.echo
        self._ids = {"threadId": echo.get("threadId") or turn.session, "runId": echo.get("runId") or turn.run}
        self._model = turn.model
        self._message = ""  # that the round's calls belong to
        self._handed: list[str] = []
        self._shown_progress: set[str] = set()
        self._usage = TokenCounts()
        self._rest = Rest(turn.request.received) if turn.decided is not None else None

    def frames(self, row: EventRow) -> str:
        frames = super().frames(row)
        return self._rest.of(frames) if self._rest and frames else frames

    def new_id(self) -> str:
        return f"{self.turn.run}-{super().new_id()}"

    def begin(self) -> None:
        self._shown_progress.clear()
        self._usage.begin()
        self.send(type="RUN_STARTED", **self._ids)

    def start_run(self, fields: Fields) -> None:
        self._model = fields["model"]

    def start_round(self, *, continues: bool) -> None:
        if not continues:
            self._message = ""

    def open_part(self, kind: str, part: str) -> str:
        if kind == TextDelta.type:
            self._message = part
            self.send(type="TEXT_MESSAGE_START", messageId=part, role="assistant")
            content = "TEXT_MESSAGE_CONTENT"
        else:
            self.send(type="REASONING_START", messageId=part)
            self.send(type="REASONING_MESSAGE_START", messageId=part, role="reasoning")
            content = "REASONING_MESSAGE_CONTENT"
        return f'data: {{"type":"{content}","messageId":{json.dumps(part)},"delta":'

    def end_part(self, kind: str, part: str) -> None:
        if kind == TextDelta.type:
            self.send(type="TEXT_MESSAGE_END", messageId=part)
        else:
            self.send(type="REASONING_MESSAGE_END", messageId=part)
            self.send(type="REASONING_END", messageId=part)

    def add_message(self, text: str) -> None:
        message = self.new_id()
        self._message = ""
        self.send(type="TEXT_MESSAGE_START", messageId=message, role="user")
        if text:
            self.send(type="TEXT_MESSAGE_CONTENT", messageId=message, delta=text)
        self.send(type="TEXT_MESSAGE_END", messageId=message)

    def show_call(self, call: str, name: str, arguments: Fields) -> None:
        self._message = self._message or self.new_id()  # one message for all calls of a reply
        self.send(type="TOOL_CALL_START", toolCallId=call, toolCallName=name, parentMessageId=self._message)
        self.send(type="TOOL_CALL_ARGS", toolCallId=call, delta=json.dumps(arguments))
        self.send(type="TOOL_CALL_END", toolCallId=call)

    def change_call(self, call: str, name: str, arguments: Fields) -> None:
        """Nothing: a call is not sent twice, the change was the client's own, and the result names it."""

    def hand_call(self, call: str, name: str, arguments: Fields) -> None:
        self._handed.append(call)
        self.show_call(call, name, arguments)

    def show_progress(self, fields: Fields) -> None:
        call = fields["call"]
        names: dict[str, Any] = {"messageId": f"{call}-progress", "activityType": PROGRESS}
        content = {name: fields[name] for name in PROGRESS_FIELDS}
        if call in self._shown_progress:
            patch = [{"op": "replace", "path": f"/{name}", "value": value} for name, value in content.items()]
            self.send(type="ACTIVITY_DELTA", **names, patch=patch)
        else:
            self._shown_progress.add(call)
            self.send(type="ACTIVITY_SNAPSHOT", **names, content={"call": call} | content)

    def answer_call(self, call: str, text: str, *, ok: bool) -> None:
        self.send(type="TOOL_CALL_RESULT", messageId=f"{call}-result", toolCallId=call, content=text, role="tool")

    def reject_call(self, call: str, name: str, reason: str, *, shown: bool) -> None:
        if not shown:
            self.show_call(call, name, {})
        self.answer_call(call, reason, ok=False)

    def ask(self, call: str, fields: Fields, *, asks_for_input: bool) -> None:
        interrupt: Fields = {"id": fields["call"], "reason": "tool_call", "message": fields["reason"]}
        if not asks_for_input:
            interrupt |= {"toolCallId": call, "responseSchema": EDITABLE_SCHEMA}
        elif schema := fields["arguments"].get("schema"):
            interrupt |= {"id": FORM + call, "reason": "input_required", "responseSchema": schema}
        else:
            interrupt |= {"reason": "confirmation", "responseSchema": DECISION_SCHEMA}
        if asks_for_input:
            shown = {name: value for name, value in fields["arguments"].items() if name != "schema"}
            interrupt["metadata"] = {"name": fields["name"]} | shown
        if origins := fields.get("origins"):
            interrupt["metadata"] = interrupt.get("metadata", {}) | {"origins": origins}
        if (expires := fields.get("expires_at")) is not None:
            interrupt["expiresAt"] = datetime.fromtimestamp(expires, UTC).isoformat()
        self._finish_run({"type": "interrupt", "interrupts": [interrupt]})

    def resolve(self, fields: Fields) -> None:
        """Nothing: the result of the call follows."""

    def note(self, name: str, fields: Fields) -> None:
        self.send(type="CUSTOM", name=name, value={key: value for key, value in fields.items() if key != "type"})

    def add_usage(self, fields: Fields) -> None:
        self._usage.add(fields)

    def finish(self, fields: Fields) -> None:
        reason = fields["reason"]
        if reason == "cancelled":
            self._finish_run({"type": "cancelled"})
            return
        if reason not in COMPLETE:
            self.note(RunFinished.type, {"reason": reason})
        pending = {"pendingToolCallIds": self._handed} if self._handed else {}
        self._finish_run({"type": "success"} | pending)

    def fail(self, fields: Fields) -> None:
        self.send(type="RUN_ERROR", message=fields["message"], code=fields["code"], **self._usage.fields(self._model))

    def _finish_run(self, outcome: Fields) -> None:
        self.send(type="RUN_FINISHED", **self._ids, outcome=outcome, **self._usage.fields(self._model))


def error_frame(failed: Mapping[str, Any]) -> str:
    return f"data: {json.dumps({'type': 'RUN_ERROR', 'message': failed['message'], 'code': failed['code']})}\n\n"


# Events that add to a text of the client's, with the field that names it. Those that begin or end one change nothing.
ADDING = {"TEXT_MESSAGE_CONTENT": "messageId", "REASONING_MESSAGE_CONTENT": "messageId", "TOOL_CALL_ARGS": "toolCallId"}


class Rest:
    """The events of a run without what its client has `received`, and without the `CUSTOM` events in front of that."""

    def __init__(self, received: Mapping[str, str]) -> None:
        self._received = {name: len(text) for name, text in received.items()}  # characters still to come

    def of(self, frames: str) -> str:
        return "".join(map(self._lacking, frames.split("\n\n")[:-1])) if self._received else frames

    def _lacking(self, block: str) -> str:
        fields = json.loads(block.removeprefix("data: "))
        kind, known = fields["type"], self._received
        if known and (kind == "CUSTOM" or (kind == "TOOL_CALL_RESULT" and known.pop(fields["messageId"], 0))):
            return ""
        name = fields.get(ADDING.get(kind, ""), "")
        if not (had := known.pop(name, 0)):
            return f"{block}\n\n"
        if (left := had - len(fields["delta"])) >= 0:
            known |= {name: left} if left else {}
            return ""
        return f"data: {json.dumps(fields | {'delta': fields['delta'][had:]}, separators=(',', ':'))}\n\n"


class TokenCounts:
    """Tokens of the run since this stream has begun: clients add those of all streams."""

    def __init__(self) -> None:
        self._counts = {"inputTokens": 0, "outputTokens": 0, "cachedInputTokens": 0}
        self._before = dict(self._counts)

    def begin(self) -> None:
        self._before = dict(self._counts)

    def add(self, fields: Mapping[str, Any]) -> None:
        self._counts["inputTokens"] = fields["total_prompt_tokens"]
        self._counts["outputTokens"] = fields["total_completion_tokens"]
        self._counts["cachedInputTokens"] += fields.get("cached_tokens") or 0

    def fields(self, model: str) -> Fields:
        """The field `usage`, if there is anything to report."""
        counts = {name: count - self._before[name] for name, count in self._counts.items()}
        total = counts["inputTokens"] + counts["outputTokens"]
        if not total:
            return {}
        used = {name: count for name, count in counts.items() if count or name != "cachedInputTokens"}
        return {"usage": [{"model": model} | used | {"totalTokens": total}]}
