"""A call that is a block of code is shown as well: in the stream, in the history, and in the answer of the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.context.compaction.summary import transcript
from app.core.deltas import joined
from app.core.events import AgentEvent, ReasoningDelta, TextDelta, TextReclassified, encode
from app.core.messages import Message
from app.core.provider import Finished, TextChunk
from app.log.log_compaction import joined_rows
from app.models.scripted import Scripted
from app.storage.runs import EventRow
from app.transcript.reply import Reply
from app.transcript.run_totals import MAX_TEXT, with_code
from routes.lanes.event_text import fields_of, text_literal
from tests.support.server.serving import serving
from tools.catalogue import TOOLS

pytestmark = pytest.mark.anyio
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}
BASH = "```bash\nls\n```"
PYTHON = "```python\nprint(1)\n```"
LINES = "x = 1\n" * 2000
LIMIT_S = 60
# A reply, and its text that is shown.
SHOWN: dict[str, tuple[str, str]] = {
    "alone": (BASH, f"{BASH}\n"),
    "prose around it": (f"So:\n\n{BASH}\n\nThat lists them.", f"So:\n\n{BASH}\n\nThat lists them."),
    "two": (f"{BASH}\n\n{PYTHON}\nBoth.", f"{BASH}\n\n{PYTHON}\nBoth."),
    "one after the other": (f"{BASH}\n{PYTHON}\n", f"{BASH}\n{PYTHON}\n"),
    "JSON that is the code": ('```bash\n{"command": "ls"}\n```', f"{BASH}\n"),
    "tildes": ("~~~bash\nls\n~~~\n", f"{BASH}\n"),
    "an envelope": ('```bash\n{"name": "python", "arguments": {"code": "print(1)"}}\n```', f"{PYTHON}\n"),
    "a long script": (f"```python\n{LINES}```\n", f"```python\n{LINES}```\n"),
    "another form": ('<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>', ""),
    "a fence that is not closed": ("```bash\nls", "```bash\nls"),
}


def replied(pieces: Iterable[str]) -> tuple[Reply, list[AgentEvent]]:
    ids = count()
    reply = Reply(SCHEMAS, fences=lambda: True, new_id=lambda: f"c{next(ids)}")
    events = [event for piece in pieces for event in reply.add(TextChunk(piece))]
    return reply, [*events, *reply.add(Finished("stop")), *reply.end()]


def streamed(events: Sequence[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("case", SHOWN)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_what_is_called_is_shown_as_it_was_written(case: str, size: int) -> None:
    text, shown = SHOWN[case]
    reply, events = replied(text[at : at + size] for at in range(0, len(text), size))
    assert streamed(events) == reply.shown == shown
    message = reply.message()
    assert (message.text, message.shown) == (text, shown), "the model sees its own words"


def test_code_that_is_called_is_no_prose() -> None:
    reply, _ = replied([f"So:\n\n{BASH}\n\nAnd:\n\n{PYTHON}\n"])
    assert reply.prose == "So:\n\n\n\nAnd:\n\n\n" and [call.name for call in reply.calls] == ["bash", "python"]


def test_each_block_names_its_call_also_once_it_is_stored() -> None:
    text = f"So:\n\n{BASH}\n{PYTHON}\n\nBoth."
    reply, events = replied(text)
    deltas = [event for event in events if isinstance(event, TextDelta)]
    blocks = [(delta.text.strip(), delta.call) for delta in deltas if delta.call]
    assert blocks == [(BASH, reply.calls[0].id), (PYTHON, reply.calls[1].id)]
    assert "".join(delta.text for delta in deltas if not delta.call) == "So:\n\n\n\n\nBoth."
    together = [one for one in joined(deltas) if isinstance(one, TextDelta)]
    assert [(one.text.strip(), one.call) for one in together if one.call] == blocks and len(together) == 5
    rows = [EventRow("r", seq, delta.type, encode(delta)) for seq, delta in enumerate(together, 1)]
    assert [json.loads(text_literal(row)) for row in rows] == [delta.text for delta in together]
    assert [fields_of(row).get("call") for row in joined_rows(rows)] == [delta.call for delta in together]


def test_code_in_a_thought_is_thought() -> None:
    draft = f"Perhaps\n{BASH}\nno.\n"
    reply, events = replied([f"{draft}</think>So:\n{PYTHON}\n"])
    assert [call.name for call in reply.calls] == ["python"]
    [moved] = [event.characters for event in events if isinstance(event, TextReclassified)]
    assert streamed(events)[moved:] == reply.shown == f"So:\n{PYTHON}\n"
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert thought == reply.message().reasoning == draft
    assert reply.prose == "So:\n\n"


def test_a_summary_is_made_of_each_code_once() -> None:
    reply, _ = replied([f"So:\n{BASH}\n"])
    assert transcript([Message("user", "Go."), reply.message()]).count("ls") == 1


def test_a_summary_has_a_call_whose_message_was_kept_without_its_code() -> None:
    reply, _ = replied([BASH])
    assert transcript([replace(reply.message(), shown="")]) == 'Assistant calls bash {"command": "ls"}'


WHOLE: list[tuple[str, list[str], str]] = [
    ("Done.", [BASH, PYTHON], f"{BASH}\n\n{PYTHON}\n\nDone."),
    ("Done.", [BASH, BASH], f"{BASH}\n\nDone."),
    (f"This:\n{BASH}\n", [BASH], f"This:\n{BASH}\n"),
    ("", [BASH], BASH),
    ("Done.", [], "Done."),
    ("Done.", [BASH, "x" * (MAX_TEXT - 7)], "x" * (MAX_TEXT - 7) + "\n\nDone."),
    ("Done.", [BASH, "x" * MAX_TEXT], "Done."),
    ("y" * (MAX_TEXT + 1), [BASH], "y" * MAX_TEXT),
]


@pytest.mark.parametrize(("text", "code", "whole"), WHOLE, ids=range(len(WHOLE)))
def test_the_answer_has_each_code_once_and_loses_no_words_for_it(text: str, code: list[str], whole: str) -> None:
    assert with_code(text, code) == whole


async def test_who_asked_for_a_script_finds_it_in_the_answer(tmp_path: Path) -> None:
    """And the model reads it once."""
    script = f"```bash\necho one # {'x' * 5000}\n```"
    model = Scripted([f"Here it is:\n{script}\n", "It printed one."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        events = await served.chat("Write me a script.")
        session: dict[str, Any] = (await served.client.get(f"/sessions/{events[0]['session']}")).json()
    assert events[-1]["text"] == f"{script}\n\nIt printed one." and events[-1]["calls"] == 1
    assert session["messages"][1]["shown"] == f"Here it is:\n{script}\n"
    assert "".join(message.text for message in model.requests[1].messages).count("echo one") == 1
