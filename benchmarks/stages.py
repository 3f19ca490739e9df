"""Where a token's time goes inside the server: each stage of the path on its own, in CPU microseconds per token.

The same bytes that benchmarks.upstream sends, in blocks of one chunk (a paced model) and of 64 (a fast one). Without
sockets and HTTP: benchmarks.relay has the whole.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from app.core.events import AgentEvent, TextDelta, encode
from app.log.event_writer import EventWriter, RunLog
from app.models.http.sse import EventReader
from app.models.wire.openai.answer import ChatAnswer
from app.storage.runs import EventRow
from app.storage.sqlite.store import SQLiteStore
from app.transcript.reply import Reply
from benchmarks.upstream import CHUNK, END
from routes.protocol.sse import frame

TOKENS = 20_000


def blocks(chunks_per_block: int) -> list[bytes]:
    chunks = [(CHUNK % (123456789 + number)).encode() for number in range(TOKENS)]
    return [b"".join(chunks[at : at + chunks_per_block]) for at in range(0, TOKENS, chunks_per_block)]


def per_token_us(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) / TOKENS * 1e6


def split(data: list[bytes]) -> None:
    reader = EventReader()
    for block in data:
        reader.feed(block)


def decode(data: list[bytes]) -> list[AgentEvent]:
    """Bytes to events, through everything the agent does with them."""
    answer, events = ChatAnswer("bench"), list[AgentEvent]()
    reply = Reply({}, fences=lambda: False, new_id=lambda: "c1")
    for block in data:
        for piece in answer.feed(block):
            events += reply.add(piece)
    return events


def pieces(data: list[bytes]) -> None:
    answer = ChatAnswer("bench")
    for block in [*data, END]:
        list(answer.feed(block))


def log(events: list[AgentEvent], per_turn: int) -> None:
    async def main(path: Path) -> None:
        store = await SQLiteStore.open(path)
        async with EventWriter(store) as journal:
            run = RunLog("run", journal, lambda: None)
            for number, event in enumerate(events):
                run.add(event)
                if not number % per_turn:
                    await asyncio.sleep(0)  # the loop goes round once per block
                await journal.room()
        await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder, "bench.db")))


def frames(count: int) -> None:
    row = EventRow("run", 1, "text.delta", encode(TextDelta("123456 ")))
    for _ in range(count):
        frame(row)


def main() -> None:
    print(f"{'us/token':28}{'1 chunk a read':>16}{'64 chunks a read':>18}")
    columns = []
    for chunks_per_block in (1, 64):
        data = blocks(chunks_per_block)
        events = decode(data)
        stages: dict[str, Callable[[], object]] = {
            "split into SSE events": partial(split, data),
            "... and JSON, pieces": partial(pieces, data),
            "... and parser, reply": partial(decode, data),
            "log: encode, join, SQLite": partial(log, events, 1),
            "SSE frames out": partial(frames, len(events)),
        }
        columns.append({name: per_token_us(stage) for name, stage in stages.items()})
    for stage, slow in columns[0].items():
        print(f"{stage:28}{slow:16.2f}{columns[1][stage]:18.2f}")


if __name__ == "__main__":
    main()
