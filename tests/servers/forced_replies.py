"""The replies that a model is made to write; runs in the environments of servers, with the standard library alone.

A prompt with `CASE:name` in a user message gets the reply of that name in `replies.json`: the first, and the last once
the prompt has what the tool has read. All else of a server, its templates, parsers and counters, is its own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

REPLIES: dict[str, list[str]] = json.loads(Path(__file__).with_name("replies.json").read_text())
CASE = re.compile(r"CASE:(\w+)")
RESULT = "MARKER-42"


def reply_to(prompt: str) -> str | None:
    """Return what is to be written behind this prompt; None leaves that to the model."""
    named = [found for found in CASE.finditer(prompt) if found[1] in REPLIES]
    if not named:
        return None
    return REPLIES[named[-1][1]][-1 if RESULT in prompt[named[-1].end() :] else 0]
