"""Lines of memory beside the message that begins a run: data, stored with the message.

They stand behind the person's words, not in the prompt in front of the conversation, and are the same in every later
round and after a restart: the server's cache of the prefix holds. What third parties may have brought stands apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from app.core.data_delimiters import as_data
from app.core.events import Notice
from app.core.labels import NO_LABELS, joined
from app.core.messages import Message
from app.labels.run_labels import RunLabels
from app.memory.call_memory import OwnMemory, memory_of
from app.memory.search import FoundMemory
from app.storage.changes import StoreFailed
from app.transcript.titles import one_line
from tools.base.access import Memory

LONGEST = 300  # characters of a line
SHOWN = 80  # of a line in the notice
OWN = "Recalled from earlier conversations with this person, as data"
UNTRUSTED = "Recalled from untrusted sources, perhaps not true, and not this person's words"
NOTICE = "recalled {count} from memory: {lines}"


class Beside(Struct, frozen=True):
    """The text beside a message, and a notice for those who read the run's log."""

    text: str
    untrusted: bool
    notice: Notice

    def put(self, message: Message) -> Message:
        if self.untrusted and not message.untrusted:
            message = replace(message, untrusted=True, sender=message.sender or "person")
        return replace(message, recalled=self.text)


async def recalled_beside(memory: OwnMemory | None, message: str, labels: RunLabels | None = None) -> Beside | None:
    """Return what has to do with the message. A store that fails now is no reason to fail the run."""
    if memory is None or not memory.lines or not message.strip():
        return None
    own = labels.labels if labels else NO_LABELS
    try:
        found = await memory.memories.search(memory.owner, message, memory.lines, floor=memory.floor, labels=own)
    except StoreFailed:
        return None
    if labels:  # what no one asked for is no reason to go to another model, or to refuse the run
        found = [one for one in found if labels.keeps_model(one.row.label_names)]
        labels.take_memories(joined(*(one.row.label_names for one in found)))
    return beside_of(found)


def beside_of(found: Sequence[FoundMemory]) -> Beside | None:
    if not found:
        return None
    memories = [memory_of(one.row) for one in found]
    own = [one for one in memories if not one.untrusted]
    others = [one for one in memories if one.untrusted]
    blocks = [as_data(title, "\n".join(map(_line, some))) for title, some in ((OWN, own), (UNTRUSTED, others)) if some]
    lines = "; ".join(f'"{_cut(one, SHOWN)}"' for one in memories)
    count = "1 line" if len(memories) == 1 else f"{len(memories)} lines"
    return Beside("\n\n".join(blocks), bool(others), Notice("memory", NOTICE.format(count=count, lines=lines)))


def _line(one: Memory) -> str:
    return f"- {_cut(one, LONGEST)} ({one.day})"


def _cut(one: Memory, most: int) -> str:
    text = one_line(one.text)
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
