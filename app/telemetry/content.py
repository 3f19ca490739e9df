"""Content of messages and calls as attributes. It is exported only if an operator asks for it, redacted and bounded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from app.core.messages import AskedCall, Message
from app.core.observers import ObservedAnswer
from app.redaction.redactor import Redactor

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
ON = frozenset({"true", "1", "span_only", "span_and_event"})
MOST_MESSAGES = 16  # the last ones
MOST_CHARACTERS = 2_000  # of each text
MOST_CALLS = 32  # of a message


class ContentWriter:
    """Writes content as JSON in the form of the conventions."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def input(self, messages: Sequence[Message]) -> str:
        return json.dumps([self._message(one) for one in messages[-MOST_MESSAGES:]])

    def output(self, answer: ObservedAnswer) -> str:
        parts = [*self._text(answer.shown), *map(self._call, answer.calls[:MOST_CALLS])]
        return json.dumps([{"role": "assistant", "parts": parts, "finish_reason": answer.stopped or "error"}])

    def value(self, value: object) -> str:
        """Write arguments or a result. What is too long is cut behind the redaction, so that no secret is parted."""
        return self._cut(value if isinstance(value, str) else json.dumps(value))

    def _message(self, message: Message) -> dict[str, Any]:
        if message.role == "tool":
            response = {"type": "tool_call_response", "id": message.call, "response": self._cut(message.text)}
            return {"role": "tool", "parts": [response]}
        return {
            "role": message.role,
            "parts": [*self._text(message.text), *map(self._call, message.calls[:MOST_CALLS])],
        }

    def _text(self, text: str) -> list[dict[str, Any]]:
        return [{"type": "text", "content": self._cut(text)}] if text else []

    def _call(self, call: AskedCall) -> dict[str, Any]:
        return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": self.value(call.arguments)}

    def _cut(self, text: str) -> str:
        return self._redactor.redact(text)[:MOST_CHARACTERS]
