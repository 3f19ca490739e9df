"""Histories for the Messages API, and what is made of them, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.core.attachments import Attachment
from app.core.data_delimiters import framed
from app.core.messages import AskedCall, Message
from app.models.wire.anthropic.blocks import wire_tools
from app.models.wire.anthropic.history import EncodedHistory, Wire
from app.models.wire.anthropic.provider import marked, marked_turns
from tests.support.models.chatting import BASH

ORIGIN = "claude at api.example.com, messages"
TOOLS = wire_tools([BASH])
SYSTEM, USER = Message("system", "Be brief."), Message("user", "List the files.")
LS = AskedCall("c1", "bash", {"command": "ls"}, "native")
READ = AskedCall("c2", "read_file", {"path": "a"}, "native")
FENCED = AskedCall("c3", "bash", {"command": "ls"}, "fence")
FRAMED = framed("a.txt", call="c1", name="bash")
PNG = Attachment("11" * 32, "image/png", 3, "cat.png", 800, 600)
PDF = Attachment("22" * 32, "application/pdf", 4, "a.pdf", pages=2)


def written(history: Sequence[Message], *, native: bool = True, **options: Any) -> EncodedHistory:
    return Wire(native, TOOLS if native else [], **({"origin": ORIGIN} | options)).write(history)


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def use(call: AskedCall, id: str = "") -> dict[str, Any]:
    return {"type": "tool_use", "id": id or call.id, "name": call.name, "input": call.arguments}


def answer(id: str, content: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def turn(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def body_of(one: EncodedHistory) -> dict[str, Any]:
    """As the provider sends it."""
    body = {"system": marked(one.system), "tools": marked(one.tools), "messages": marked_turns(one.messages)}
    return {"model": "m", "max_tokens": 9, "stream": True} | {name: value for name, value in body.items() if value}
