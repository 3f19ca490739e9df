"""Fast path for chunks that differ only in their text: one of a thousand is decoded as JSON."""

from __future__ import annotations

from typing import Any

from app.core.provider import TextChunk
from app.models.wire.openai.chunks import error_of, read_json, usage_of
from parsing import Thought

FIELDS = {
    "content": TextChunk,
    "reasoning_content": Thought,
    "reasoning": Thought,
    "thinking": Thought,
}
MATTERS = ("finish_reason", "usage", "index")  # fields of a choice that the fast path must not skip
TRIES = 16  # templates to learn; bounded for servers whose chunks all differ (sequence numbers)


class ChunkFastPath:
    """Template of the chunks of one answer. `read` returns the same as JSON decoding, or None to request that.

    A JSON string without quotes and backslashes stands for itself; another one is decoded by itself. So a chunk that
    starts and ends like a decoded one, up to the quotes of its text, differs only in that text.
    """

    def __init__(self) -> None:
        self._before = ""
        self._after = ""
        self._head, self._between, self._tail = b"", "", b""  # of a block of events: the bytes around each text
        self._kind: type[TextChunk] | type[Thought] = TextChunk
        self._tries = TRIES

    def read(self, data: str) -> TextChunk | Thought | None:
        if not self._before or not data.startswith(self._before) or not data.endswith(self._after):
            return None
        text = unescaped(data[len(self._before) : -len(self._after)])
        return self._kind(text) if text else None

    def read_block(self, block: bytes) -> TextChunk | Thought | None:
        """Do the same for a block of complete, similar events."""
        if not self._head or not block.startswith(self._head) or not block.endswith(self._tail):
            return None
        try:
            inside = block[len(self._head) : -len(self._tail)].decode()
        except UnicodeDecodeError:
            return None
        text: str | None = inside.replace(self._between, "")
        if not text or "\n" in text or "\r" in text:
            return None
        if '"' in text or "\\" in text:
            texts = [unescaped(one) for one in inside.split(self._between)]
            text = "".join(one for one in texts if one) if None not in texts else None
        return self._kind(text) if text else None

    def learn(self, data: str, chunk: Any) -> None:
        """Learn the template from a chunk with one text and nothing else."""
        if not self._tries or (sole := sole_text(chunk)) is None:
            return
        self._tries -= 1
        field, text = sole
        if data.count(f'"{field}"') != 1:
            return
        for key in (f'"{field}":"', f'"{field}": "'):
            before, found, after = data.partition(f'{key}{text}"')
            if found and not before.endswith("\\"):
                self._before, self._after, self._kind = before + key, '"' + after, FIELDS[field]
                head, tail = f"data: {self._before}", f"{self._after}\n\n"
                if "\n" not in data:  # else it had several data lines
                    self._head, self._between, self._tail = head.encode(), tail + head, tail.encode()


def unescaped(inside: str) -> str | None:
    """Return the text between the quotes of a JSON string; None if there is more than one string."""
    if '"' not in inside and "\\" not in inside:
        return inside
    try:
        text = read_json(f'"{inside}"')
    except ValueError:
        return None
    return text if isinstance(text, str) else None


def sole_text(chunk: Any) -> tuple[str, str] | None:
    """Return the only filled field of a chunk's only delta, and its text; None if there is anything else."""
    match chunk:
        case {"choices": [{"delta": dict(delta)} as choice]} if not (usage_of(chunk) or error_of(chunk)):
            filled = {name: value for name, value in delta.items() if value and name != "role"}
            if len(filled) != 1 or any(choice.get(name) for name in MATTERS):
                return None
            field, text = filled.popitem()
            return (field, text) if field in FIELDS and isinstance(text, str) else None
    return None
