"""Parts of streams of the Messages API, for tests."""

from __future__ import annotations

import json
from typing import Any


def event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def start(input: int = 3) -> str:
    return event("message_start", message={"role": "assistant", "usage": {"input_tokens": input, "output_tokens": 1}})


def delta(index: int, kind: str, text: str) -> str:
    """Of a text or of thoughts."""
    return event("content_block_delta", index=index, delta={"type": f"{kind}_delta", kind: text})


def stop(index: int) -> str:
    return event("content_block_stop", index=index)


def says(text: str, index: int = 0) -> str:
    return delta(index, "text", text)


def end(reason: str, out: Any = 2, *, whole: bool = True) -> str:
    told = event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": out})
    return told + (event("message_stop") if whole else "")
