"""Items of a response's output, as JSON objects."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from app.policy.doors import outcome
from routes.lanes.responses import ids

SERVER_LABEL = "dragoman"  # of our own tools, and of the mcp tool by which a client opts in to approvals
CUSTOM_INPUT = "input"  # the argument that a custom tool's text stands in

OWN_DOOR = "responses"
SEALED = "dragoman1."  # begins reasoning as opaque text

Item = dict[str, Any]


class ToolNames(Struct, frozen=True):
    """Names of the tools that the client declared: `custom` ones, and by flattened name those of `namespaces`."""

    custom: frozenset[str] = frozenset()
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    all: frozenset[str] = frozenset()


def text_part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def without_gap(text: str, index: int) -> str:
    """The text of a message without the white space that separates it from an item before it."""
    return text.lstrip() if index else text


def message(item: str, text: str | None = None, status: str = "completed") -> Item:
    content = [] if text is None else [text_part(text)]
    return {"id": item, "type": "message", "status": status, "role": "assistant", "content": content}


def summary_part(text: str) -> Item:
    return {"type": "summary_text", "text": text}


def reasoning(item: str, text: str | None = None, *, seal: bool = False) -> Item:
    """Reasoning as a summary: as `reasoning_text` most clients do not show it."""
    found: Item = {"id": item, "type": "reasoning", "summary": [] if text is None else [summary_part(text)]}
    return found | {"encrypted_content": sealed(text)} if seal and text is not None else found


def sealed(reasoning: str) -> str:
    """Reasoning as opaque text, for clients that keep no response here and send all items back with their next request.

    It is not encrypted: the same reasoning stands in the item's summary. What counts is that clients send this text
    back unchanged and whole, while they may shorten or drop a summary.
    """
    return SEALED + base64.b64encode(reasoning.encode("utf-8", "surrogatepass")).decode()


def unsealed(text: str) -> str | None:
    """The reasoning, or None if the text is another server's."""
    if not text.startswith(SEALED):
        return None
    try:
        return base64.b64decode(text.removeprefix(SEALED), validate=True).decode("utf-8", "replace")
    except ValueError:  # also of characters that are not ASCII
        return None


def arguments_text(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


class ClientCall(Struct, frozen=True):
    """A call that is handed to the client, in the form of the tool that it declared."""

    call: str
    name: str
    arguments: Mapping[str, Any]
    tools: ToolNames
    written: str | None = None

    @property
    def is_custom(self) -> bool:
        return self.name in self.tools.custom

    @property
    def id_kind(self) -> str:
        return ids.CUSTOM_CALL if self.is_custom else ids.FUNCTION_CALL

    @property
    def event(self) -> str:
        """The type of the events of its text, without the last word."""
        return "custom_tool_call_input" if self.is_custom else "function_call_arguments"

    @property
    def text_field(self) -> str:
        return "input" if self.is_custom else "arguments"

    @property
    def text(self) -> str:
        """The arguments as JSON, or the text for a custom tool."""
        if not self.is_custom:
            return self.written or arguments_text(self.arguments)
        if CUSTOM_INPUT in self.arguments or len(self.arguments) != 1:
            given = self.arguments.get(CUSTOM_INPUT)
        else:  # models write it under another name, too
            (given,) = self.arguments.values()
        return given if isinstance(given, str) else arguments_text(self.arguments)

    def item(self, item: str, text: str | None = None) -> Item:
        """The item when it is done, or (no `text`) when it is added."""
        namespace, name = self.tools.namespaces.get(self.name, (None, self.name))
        status = "in_progress" if text is None else "completed"
        kind = "custom_tool_call" if self.is_custom else "function_call"
        found = {"id": item, "type": kind, "status": status, "call_id": self.call, "name": name}
        found[self.text_field] = text or ""
        return found | {"namespace": namespace} if namespace else found


def approval_request(approval: str, name: str, arguments: Mapping[str, Any]) -> Item:
    return {
        "id": approval,
        "type": "mcp_approval_request",
        "arguments": arguments_text(arguments),
        "name": name,
        "server_label": SERVER_LABEL,
    }


def other_decision(item: str, request: str, fields: Mapping[str, Any]) -> Item | None:
    """Return the item for a decision that came by another door than these responses; `fields` are its event's."""
    decision, door = fields["decision"], fields.get("door")
    if door in (None, OWN_DOOR):
        return None
    return {
        "id": item,
        "type": "mcp_approval_response",
        "approval_request_id": request,
        "approve": decision == "approved",
        "reason": outcome(decision, fields["by"], door),
    }
