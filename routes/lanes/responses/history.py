"""The items of a request's `input` as messages.

An answer is several items there: reasoning, messages, a call each. Neighbours are one message of the assistant here.
Calls that other servers have run, and types that no standard has, are left out: what they led to stands in the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from app.core.attachments import File
from app.core.messages import Message
from routes.lanes.content import BETWEEN, Content, Draft, content_of
from routes.lanes.lane import Verdict
from routes.lanes.reading import Node, asked_call, with_names
from routes.lanes.responses.ids import ApprovalPlace, approval_place, item_place
from routes.lanes.responses.input_items import items_in
from routes.lanes.responses.items import CUSTOM_INPUT, unsealed
from routes.lanes.responses.tools import flat_name


class History(Struct):
    """The conversation of a request; `approvals` are the requests that its `verdicts` answer."""

    messages: list[Message] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    approvals: list[ApprovalPlace] = field(default_factory=list)
    compacts: bool = False
    _draft: Draft = field(default_factory=Draft)

    @classmethod
    def of(cls, body: Node) -> History:
        """Raises Refused."""
        history = cls()
        given = body.fields.get("input")
        if isinstance(given, (str, bytes)):
            history.add(Message("user", body.text("input") or ""))
            return history
        for node in body.children("input"):
            read = READERS.get(node.text("type") or "message")
            if history.compacts:
                raise node.refused("type", "stands behind a compaction_trigger, which has to be the last item")
            if read:
                read(history, node)
        history._end_answer()
        history.messages = with_names(history.messages)
        return history

    def add(self, message: Message, content: Content | None = None) -> None:
        self._end_answer()
        self.messages.append(message)
        self.files += content.files if content else []

    def _end_answer(self) -> None:
        if message := self._draft.message():
            self.messages.append(message)
        self._draft = Draft()

    def _message(self, node: Node) -> None:
        role = node.required_text("role")
        content = content_of(node, "content")
        if role == "assistant":
            self._draft.texts += [content.text] if content.text else []
        elif role in ("system", "developer"):
            self.add(Message("system", content.text))
        elif role == "user":
            message = Message("user", content.text, attachments=content.attachments, untrusted=content.untrusted)
            self.add(message, content)
        else:
            raise node.refused("role", f"is {role[:40]!a}; send user, assistant, system or developer")

    def _reasoning(self, node: Node) -> None:
        sealed = unsealed(node.text("encrypted_content") or "")
        parts = [*node.children("summary"), *node.children("content")]
        text = sealed or BETWEEN.join(filter(None, (part.text("text") for part in parts)))
        self._draft.thoughts += [text] if text.strip() else []

    def _call(self, node: Node) -> None:
        kind = node.text("type") or ""
        custom, field = kind == "custom_tool_call", BUILT_IN.get(kind)
        arguments = {CUSTOM_INPUT: node.text("input") or ""} if custom else node.fields.get(field or "arguments")
        name = kind.removesuffix("_call") if field else flat_name(node.text("namespace"), node.required_text("name"))
        call = node.text("call_id") or node.required_text("id")
        self._draft.calls.append(asked_call(call, name, arguments))

    def _compaction(self, node: Node) -> None:
        """A summary in place of earlier items. It may repeat results of tools, and its writer is unknown."""
        text = unsealed(node.required_text("encrypted_content"))
        if text is None:
            raise node.refused("encrypted_content", "is another server's; send the items that it stands for")
        self.add(Message("user", text, untrusted=True))

    def _trigger(self, _: Node) -> None:
        self.compacts = True

    def _output(self, node: Node) -> None:
        built_in = (node.text("type") or "").removesuffix("_output") in BUILT_IN
        call = (built_in and (node.text("call_id") or node.text("id"))) or node.required_text("call_id")
        given = node.fields.get("output")
        if isinstance(given, dict) or (built_in and not isinstance(given, str)):  # or of earlier versions of Codex
            content = Content([json.dumps(given, ensure_ascii=False)])
        else:
            content = content_of(node, "output")
        self.add(Message("tool", content.text, call=call, attachments=content.attachments), content)

    def _verdict(self, node: Node) -> None:
        if (given := node.text("id")) and item_place(given):
            return  # ours, given back: it says how another has decided
        place = approval_place(node.required_text("approval_request_id"))
        if place is None:
            raise node.refused("approval_request_id", "is none of this server's; send the id of the request")
        self.verdicts.append(Verdict(place.call, node.flag("approve")))
        self.approvals.append(place)


# Calls of tools that the API defines and its clients run, with the field of their arguments.
BUILT_IN = {"local_shell_call": "action", "shell_call": "action", "apply_patch_call": "operation"}
READERS: Mapping[str, Callable[[History, Node], None]] = {
    "message": History._message,
    "reasoning": History._reasoning,
    "function_call": History._call,
    "custom_tool_call": History._call,
    "function_call_output": History._output,
    "custom_tool_call_output": History._output,
    "mcp_approval_response": History._verdict,
    "compaction": History._compaction,
    "compaction_trigger": History._trigger,
    **dict.fromkeys(BUILT_IN, History._call),
    **dict.fromkeys([f"{kind}_output" for kind in BUILT_IN], History._output),
}


def unknown_types(body: Node) -> list[str]:
    """The types among a request's items that no reader takes, a few of them."""
    types = (item.text("type") for item in items_in(body))
    return sorted({kind[:40] for kind in types if kind and kind not in READERS})[:5]
