"""A model for the page's benchmark: it writes as fast as a good one does, and what a good one writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.core.provider import BaseProvider, CallForm, Finished, ModelRequest, Piece, TextChunk
from parsing import Call

DELTAS, LINES = 10_000, 100_000
PARAGRAPH, ROWS, FLOOD = 60_000, 1_000, 200_000  # characters of one paragraph, rows of a table, lines of a command
PER_S, PIECE = 1_000, 4  # pieces a second, and their characters
STEADY = "steady"
END = "\n\nThat was all."
SECTION = """## What was found

The **build** ran in `make test` and took _four_ minutes; see [the log](https://example.com/log) for all of it.

- the parser is linear in the length of the text
- the journal groups commits, so that a token costs microseconds

```python
def total(rows: list[int]) -> int:
    return sum(row for row in rows if row > 0)  # what is owed counts elsewhere
```

| step | seconds |
|---|---|
| lint | 12 |
| tests | 228 |

"""
PROSE = """The quick brown fox jumps over the **lazy** dog, runs `make`, reads [the log](https://example.com/log), and
_then_ writes a while in plain words, as much of it as there is in prose, before the next signs come. """
TABLE = "| number | name | value | note |\n|---|:---|---:|---|\n"
ROW = "| {0} | name {0} | **{0}** | some `code` and words |\n"


def command(lines: int) -> str:
    """In pieces over some seconds, as a build writes."""
    thousand = f"seq -f 'compiling module %.0f of {lines}' $((i * 1000 + 1)) $((i * 1000 + 1000))"
    return f"for i in $(seq 0 {lines // 1000 - 1}); do {thousand}; sleep 0.05; done"


def paragraph() -> str:
    return (PROSE * (PARAGRAPH // len(PROSE) + 1))[:PARAGRAPH]


def table() -> str:
    return TABLE + "".join(ROW.format(number) for number in range(ROWS))


STREAMED = {
    "answer": lambda: (SECTION * (DELTAS * PIECE // len(SECTION) + 1))[: DELTAS * PIECE],
    "paragraph": paragraph,
    "table": table,
}
COMMANDS = {"command": LINES, "flood": FLOOD}


class Told(BaseProvider):
    """Writes what the last message asks for: `answer`, `command`, or a short turn."""

    model = "told"
    call_form = CallForm.NATIVE  # code in the answer is shown, not run

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        last = request.messages[-1]
        word = last.text if last.role == "user" else ""
        if word in COMMANDS:
            yield Call(0, "bash", {"command": command(COMMANDS[word])}, "native")
            yield Finished("tool_calls")
            return
        async with aclosing(paced(STREAMED[word]())) if word in STREAMED else aclosing(at_once()) as said:
            async for piece in said:
                yield piece
        yield TextChunk(END)
        yield Finished("stop")

    @property
    def native_tools(self) -> bool:
        return True

    async def close(self) -> None:
        """It holds nothing."""


async def paced(text: str) -> AsyncGenerator[TextChunk, None]:
    """The text in small pieces, about PER_S of them a second."""
    for number, at in enumerate(range(0, len(text), PIECE)):
        if number % 10 == 0:
            await asyncio.sleep(10 / PER_S)
        yield TextChunk(text[at : at + PIECE])


async def at_once() -> AsyncGenerator[TextChunk, None]:
    yield TextChunk(SECTION)
