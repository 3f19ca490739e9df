"""Chunks that differ in their text alone: a server writes a thousand of them, and one has to be decoded."""

from __future__ import annotations

from typing import Any

from app.core.provider import TextChunk
from app.models.wire.openai.chunks import error_of, usage_of
from parsing import Thought

FIELDS = {
    "content": TextChunk,
    "reasoning_content": Thought,
    "reasoning": Thought,
    "thinking": Thought,
}
MATTERS = ("finish_reason", "usage", "index")  # what a choice may have besides its delta that is not to be passed over
TRIES = 16  # to learn from a chunk; a server that writes a number of its own into each is not learned from for ever


class ChunkFastPath:
    """The chunks of one answer. `read` gives what JSON would, or None where JSON has to be asked.

    What stands between two quotes, without a quote or a backslash, is a string that means itself. A chunk that begins
    and ends as one that was understood, up to those quotes, therefore says the same but for that string.
    """

    def __init__(self) -> None:
        self._before = ""
        self._after = ""
        self._head, self._between, self._tail = b"", "", b""  # of a block of events: around each of its texts
        self._kind: type[TextChunk] | type[Thought] = TextChunk
        self._tries = TRIES

    def read(self, data: str) -> TextChunk | Thought | None:
        if not self._before or not data.startswith(self._before) or not data.endswith(self._after):
            return None
        return self._meant(data[len(self._before) : -len(self._after)])

    def read_block(self, block: bytes) -> TextChunk | Thought | None:
        """The same for a block of whole events, all of them alike."""
        if not self._head or not block.startswith(self._head) or not block.endswith(self._tail):
            return None
        try:
            text = block[len(self._head) : -len(self._tail)].decode().replace(self._between, "")
        except UnicodeDecodeError:
            return None
        return None if "\n" in text or "\r" in text else self._meant(text)

    def _meant(self, text: str) -> TextChunk | Thought | None:
        return self._kind(text) if text and '"' not in text and "\\" not in text else None

    def learn(self, data: str, chunk: Any) -> None:
        """From a chunk that says one text and nothing else."""
        if not self._tries or (said := sole_text(chunk)) is None:
            return
        self._tries -= 1
        field, text = said
        if data.count(f'"{field}"') != 1:
            return
        for key in (f'"{field}":"', f'"{field}": "'):
            before, found, after = data.partition(f'{key}{text}"')
            if found and not before.endswith("\\"):
                self._before, self._after, self._kind = before + key, '"' + after, FIELDS[field]
                head, tail = f"data: {self._before}", f"{self._after}\n\n"
                if "\n" not in data:  # else it came as several lines of data
                    self._head, self._between, self._tail = head.encode(), tail + head, tail.encode()


def sole_text(chunk: Any) -> tuple[str, str] | None:
    """The one field of a chunk's only delta that holds text, and the text; None if there is anything besides."""
    match chunk:
        case {"choices": [{"delta": dict(delta)} as choice]} if not (usage_of(chunk) or error_of(chunk)):
            filled = {name: value for name, value in delta.items() if value and name != "role"}
            if len(filled) != 1 or any(choice.get(name) for name in MATTERS):
                return None
            field, text = filled.popitem()
            return (field, text) if field in FIELDS and isinstance(text, str) else None
    return None
