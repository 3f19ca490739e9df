"""A call without a closer of its own in a reply that broke off: half a program is not run."""

from __future__ import annotations

from itertools import count

import pytest

from app.core.provider import TOO_LONG, Finished, TextChunk
from app.transcript.reply import Reply
from tools.catalogue import TOOLS

CODE = "<|start|>assistant to=python<|channel|>commentary code<|message|>remove(old)\nkeep(new"


@pytest.mark.parametrize("stopped", ["stop", "tool_calls", "length", "content_filter", TOO_LONG, None])
def test_half_a_program_is_not_run(stopped: str | None) -> None:
    ids = count()
    schemas = {tool.name: tool.parameters for tool in TOOLS}
    reply = Reply(schemas, fences=lambda: False, new_id=lambda: f"c{next(ids)}")
    list(reply.add(TextChunk(CODE)))
    if stopped is not None:
        list(reply.add(Finished(stopped)))
    list(reply.end())
    [call] = reply.calls
    assert (call.id in reply.refused) == (stopped not in ("stop", "tool_calls"))
