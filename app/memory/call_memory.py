"""The memories of one principal for one run: for the calls of its tools, and for the message that begins it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct

from app.core.labels import NO_LABELS, Labels, joined
from app.labels.run_labels import RunLabels
from app.memory.limits import MOST_OF_RUN, UnfitMemory
from app.memory.memories import Memories, Source
from app.memory.words import digest_form
from app.models.http.json_body import encodable
from app.storage.memories import MODEL, MemoryRow
from app.transcript.conversation import Conversation
from tools.base.access import Memory
from tools.base.outcome import ToolFailed

UNKNOWN = "There is no memory {id}. recall_memory shows the ids."
OTHER_TEXT = "The memory {id} has another text, and the person decides by it: give it as recall_memory shows it."
NAMED_BY = 60  # characters of a text, at least, that a call must give to delete it
ENOUGH = f"This run has stored {MOST_OF_RUN} memories, which is enough."


class OwnMemory(Struct, kw_only=True):
    """`lines` are recalled beside a message at most, none below the `floor`; `extracts`: ended turns are read."""

    memories: Memories
    owner: str
    lines: int = 0
    floor: float = 0.0
    extracts: bool = False
    stored: int = 0  # by this run


class CallMemory(Struct, frozen=True):
    """Implements `tools.base.access.MemoryAccess`."""

    memory: OwnMemory
    conversation: Conversation
    labels: RunLabels | None = None
    call: str = ""

    @property
    def _labels(self) -> Labels:
        return self.labels.labels if self.labels else NO_LABELS

    async def remember(self, text: str, kind: str) -> tuple[Memory, bool]:
        if self.memory.stored >= MOST_OF_RUN:
            raise ToolFailed(ENOUGH)
        conversation = self.conversation
        source = Source(
            MODEL,
            session=conversation.session,
            run=conversation.run,
            message=conversation.begins,
            untrusted=is_tainted(conversation),
            labels=self._labels,
        )
        try:
            row, is_new = await self.memory.memories.remember(self.memory.owner, text, kind, source)
        except UnfitMemory as unfit:
            raise ToolFailed(str(unfit)) from unfit
        self.memory.stored += is_new
        return memory_of(row), is_new

    async def recall(self, query: str, limit: int) -> Sequence[Memory]:
        found = await self.memory.memories.search(self.memory.owner, query, limit, labels=self._labels)
        self._take([one.row for one in found])
        return [memory_of(one.row) for one in found]

    async def forget(self, memory: str, text: str) -> Memory:
        row = await self.memory.memories.store.memory(encodable(memory))
        if row is None or row.owner != self.memory.owner:
            raise ToolFailed(UNKNOWN.format(id=ascii(memory[:40])))
        if not _is_named_by(row.text, text):
            raise ToolFailed(OTHER_TEXT.format(id=row.id))
        self._take([row])  # its text stands in the call
        await self.memory.memories.delete(row)
        return memory_of(row)

    def _take(self, rows: Sequence[MemoryRow]) -> None:
        if self.labels:
            self.labels.take_memories(joined(*(row.label_names for row in rows)), self.call)


def _is_named_by(text: str, given: str) -> bool:
    """Return True if a person who sees what is given knows what is deleted."""
    text, given = digest_form(text), digest_form(given)
    return given == text or (len(given) >= NAMED_BY and text.startswith(given))


def is_tainted(conversation: Conversation) -> bool:
    """Return True if the conversation holds untrusted text, whatever the gate makes of that."""
    return any(message.untrusted for message in conversation.messages)


def memory_of(row: MemoryRow) -> Memory:
    day = time.strftime("%Y-%m-%d", time.gmtime(row.updated))
    return Memory(row.id, row.kind, row.text, day, row.untrusted)
