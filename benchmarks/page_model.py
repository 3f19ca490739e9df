"""A model for the page's benchmark: it writes as fast as a good one does, and what a good one writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from app.core.provider import BaseProvider, CallForm, Finished, ModelRequest, Piece, TextChunk
from parsing import Call

DELTAS, LINES = 10_000, 100_000
PER_S = 1_000
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
# In pieces over some seconds, as a build writes.
COMMAND = f"for i in $(seq 0 99); do seq -f 'compiling module %.0f of {LINES}' $((i * 1000 + 1)) $((i * 1000 + 1000)); "
COMMAND += "sleep 0.05; done"


class Told(BaseProvider):
    """Writes what the last message asks for: `answer`, `command`, or a short turn."""

    model = "told"
    call_form = CallForm.NATIVE  # code in the answer is shown, not run

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        last = request.messages[-1]
        words = last.text
        if last.role == "user" and "answer" in words:
            async with aclosing(paced(DELTAS)) as said:
                async for piece in said:
                    yield piece
        elif last.role == "user" and "command" in words:
            yield Call(0, "bash", {"command": COMMAND}, "native")
            yield Finished("tool_calls")
            return
        else:
            yield TextChunk(SECTION)
        yield TextChunk(END)
        yield Finished("stop")

    @property
    def native_tools(self) -> bool:
        return True

    async def close(self) -> None:
        """It holds nothing."""


async def paced(count: int) -> AsyncGenerator[TextChunk, None]:
    """So many pieces of Markdown, about PER_S of them a second."""
    for number, piece in enumerate(pieces(count)):
        if number % 10 == 0:
            await asyncio.sleep(10 / PER_S)
        yield TextChunk(piece)


def pieces(count: int) -> Iterator[str]:
    at = 0
    for _ in range(count):
        yield (SECTION * 2)[at : at + 4]
        at = (at + 4) % len(SECTION)
