"""A run's log as chunks of the AI SDK's UI message stream. An unknown type of chunk is an error to its clients.

Tools of the server are dynamic and executed by the provider, in the SDK's words: no client runs them. A call of the
client's tool is a part of its own type, without an output. See https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from app.core.events import TextDelta
from routes.lanes.lane import Turn
from routes.lanes.part_encoder import Fields, PartEncoder, call_of

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
DONE = "data: [DONE]\n\n"
OWN = {"dynamic": True, "providerExecuted": True}
FINISH_REASONS = {
    "answered": "stop",
    "loop_broken": "stop",
    "client_tools": "tool-calls",
    "round_limit": "length",
    "call_limit": "length",
    "token_limit": "length",
    "deadline": "length",
    "budget": "length",
    "no_answer": "other",
}
# What these notices say of an answer that is complete otherwise.
NOTICED = {"cut": "length", "refusal": "content-filter"}


class UIStreamEncoder(PartEncoder):
    def __init__(self, turn: Turn) -> None:
        super().__init__(turn)
        self._in_step = False
        self._denied: set[str] = set()
        self._questions: set[str] = set()
        self._noticed = ""  # the finish reason that a notice of this round stands for
        self._usage: Fields = {}
        self._cached = 0

    def begin(self) -> None:
        self.send(type="start", messageId=self.turn.request.echo.get("message") or self.turn.run)

    def start_run(self, fields: Fields) -> None:
        """Nothing: the message has begun."""

    def start_round(self, *, continues: bool) -> None:
        self._noticed = ""
        if not continues:
            self._start_step()

    def open_part(self, kind: str, part: str) -> str:
        name = "text" if kind == TextDelta.type else "reasoning"
        self.send(type=f"{name}-start", id=part)
        return f'data: {{"type":"{name}-delta","id":{json.dumps(part)},"delta":'

    def end_part(self, kind: str, part: str) -> None:
        self.send(type="text-end" if kind == TextDelta.type else "reasoning-end", id=part)

    def add_message(self, text: str) -> None:
        self.send(type="data-message", data={"role": "user", "text": text}, transient=True)

    def show_call(self, call: str, name: str, arguments: Fields) -> None:
        self.send(type="tool-input-start", toolCallId=call, toolName=name, **OWN)
        self.send(type="tool-input-available", toolCallId=call, toolName=name, input=arguments, **OWN)

    def change_call(self, call: str, name: str, arguments: Fields) -> None:
        self.send(type="tool-input-available", toolCallId=call, toolName=name, input=arguments, **OWN)

    def hand_call(self, call: str, name: str, arguments: Fields) -> None:
        self.send(type="tool-input-start", toolCallId=call, toolName=name)
        self.send(type="tool-input-available", toolCallId=call, toolName=name, input=arguments)

    def show_progress(self, fields: Fields) -> None:
        tail = "\n".join(fields["tail"])
        self.send(type="tool-output-available", toolCallId=fields["call"], output=tail, preliminary=True, **OWN)

    def answer_call(self, call: str, text: str, *, ok: bool) -> None:
        if ok:
            self.send(type="tool-output-available", toolCallId=call, output=text, **OWN)
        else:
            self.send(type="tool-output-error", toolCallId=call, errorText=text, **OWN)

    def reject_call(self, call: str, name: str, reason: str, *, shown: bool) -> None:
        if call in self._denied:
            self.send(type="tool-output-denied", toolCallId=call)
        elif shown:
            self.answer_call(call, reason, ok=False)
        else:
            self.send(type="tool-input-error", toolCallId=call, toolName=name, input={}, errorText=reason, **OWN)

    def ask(self, call: str, fields: Fields, *, asks_for_input: bool) -> None:
        if asks_for_input:  # in a step of its own: the SDK goes on once all calls of the last step are decided
            self._start_step()
            self._questions.add(call)
            self.show_call(call, fields["name"], fields["arguments"])
        request: Fields = {"approvalId": fields["call"], "toolCallId": call, "reason": fields["reason"]}
        self.send(type="tool-approval-request", **request)
        self._end_message("tool-calls")

    def resolve(self, fields: Fields) -> None:
        call, approved = fields["call"], fields["decision"] == "approved"
        if call in self._questions:
            self._questions.discard(call)
            if approved:
                self.answer_call(call, "answered", ok=True)
            else:
                self.send(type="tool-output-denied", toolCallId=call)
        elif fields["decision"] == "denied":
            self._denied.add(call_of(call))

    def note(self, name: str, fields: Fields) -> None:
        data: dict[str, Any] = {key: value for key, value in fields.items() if key != "type"}
        self._noticed = NOTICED.get(data.get("code", ""), self._noticed)
        self.send(type="data-notice", data={"code": name} | data, transient=True)

    def add_usage(self, fields: Fields) -> None:
        self._usage = fields
        self._cached += fields.get("cached_tokens") or 0

    def finish(self, fields: Fields) -> None:
        reason = fields["reason"]
        if reason == "cancelled":
            self.send(type="abort")
        found = FINISH_REASONS.get(reason, "other")
        self._end_message((self._noticed or found) if found == "stop" else found)

    def fail(self, fields: Fields) -> None:
        self.send(type="error", errorText=fields["message"])
        self._end_message("error")

    def _start_step(self) -> None:
        self._end_step()
        self._in_step = True
        self.send(type="start-step")

    def _end_step(self) -> None:
        if self._in_step:
            self._in_step = False
            self.send(type="finish-step")

    def _end_message(self, reason: str) -> None:
        self._end_step()
        metadata = {"messageMetadata": {"usage": self._counts()}} if self._usage else {}
        self.send(type="finish", finishReason=reason, **metadata)
        self.send_text(DONE)

    def _counts(self) -> dict[str, int]:
        prompt, completion = self._usage["total_prompt_tokens"], self._usage["total_completion_tokens"]
        counts = {"inputTokens": prompt, "outputTokens": completion, "totalTokens": prompt + completion}
        return counts | ({"cachedInputTokens": self._cached} if self._cached else {})


def error_frame(failed: Mapping[str, Any]) -> str:
    return f"data: {json.dumps({'type': 'error', 'errorText': failed['message']})}\n\n{DONE}"
