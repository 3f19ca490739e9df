"""Content blocks of the Messages API: never empty, with valid names and ids.

Rules by https://platform.claude.com/docs/en/api/messages and by observed refusals: text must not be white space only,
names and ids consist of letters, digits, `_` and `-`, and the top of a tool's schema is of type object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from app.core.attachments import PDF, Attachment, described
from app.core.messages import AskedCall
from app.models.http.json_body import encodable, encodable_value
from app.models.wire.attachment_parts import Encoded
from app.models.wire.openai.history import plain_name
from tools.tool import Tool

Block = dict[str, Any]

LONGEST_TITLE = 255
NOT_AT_THE_TOP = ("anyOf", "oneOf", "allOf")  # of a tool's schema; the dispatcher still checks them


def text_blocks(text: str) -> list[Block]:
    """Return one block, or none for a text that would be refused."""
    return [{"type": "text", "text": encodable(text)}] if text.strip() else []


def tool_use(call: AskedCall, id: str) -> Block:
    return {"type": "tool_use", "id": id, "name": plain_name(call.name), "input": encodable_value(call.arguments)}


def tool_result(id: str, content: str) -> Block:
    """Return the block; without content if that would be refused."""
    block = {"type": "tool_result", "tool_use_id": id}
    return block | {"content": content} if content.strip() else block


def file_blocks(attachments: Sequence[Attachment], files: Encoded) -> Iterator[Block]:
    """Yield a block per attachment. A file that is missing in `files` is described."""
    for one in attachments:
        yield from [file_block(one, files[one.sha256])] if one.sha256 in files else text_blocks(described(one))


def file_block(attachment: Attachment, data: str) -> Block:
    source = {"type": "base64", "media_type": attachment.media_type, "data": data}
    if attachment.media_type == PDF:
        return {"type": "document", "source": source, "title": encodable(attachment.file_name)[:LONGEST_TITLE]}
    return {"type": "image", "source": source}


def wire_tools(tools: Sequence[Tool]) -> list[Block]:
    """Return the tools in the format of the Messages API."""
    return [wire_tool(tool) for tool in tools]


def wire_tool(tool: Tool) -> Block:
    schema = {name: value for name, value in tool.parameters.items() if name not in NOT_AT_THE_TOP}
    described = {"description": encodable(tool.description)} if tool.description.strip() else {}
    return {"name": plain_name(tool.name), **described, "input_schema": schema | {"type": "object"}}
