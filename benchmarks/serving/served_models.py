"""Served models: the time from asleep to the first token, and the estimate of memory beside the process's own.

Two real models, each at two contexts with one and with two slots. The resident memory is read after prompts that fill
every slot; the prompt cache, which fills up over time, is not part of the estimate here.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import psutil

from app.core.messages import Message
from app.core.provider import ModelRequest, TextChunk
from app.models.embedded.supervisor import SMOLLM2, package_folder
from app.models.serving.catalogue import ServingOptions, checked_row, estimate_of, served_spec
from app.models.serving.connection import ServedConnection
from app.models.serving.memory import MIB, PROMPT_CACHE
from app.models.serving.pool import ModelPool
from app.storage.served_models import ServedModelRow
from app.storage.sqlite.store import SQLiteStore
from tests.support.models.real_models import GEMMA

CONTEXTS = (2048, 8192)
SLOTS = (1, 2)
WORDS = 1800  # of a prompt, each about a token
TRIES = 3


def rows(folder: Path) -> Iterator[ServedModelRow]:
    for path in (package_folder(SMOLLM2.package) / SMOLLM2.file, GEMMA):
        for context in CONTEXTS:
            for slots in SLOTS:
                wanted = ServingOptions(f"{path.stem[:8]}-{context}-{slots}", context, slots)
                yield checked_row(path, wanted, "benchmark", folder / "work")


async def first_token_s(connection: ServedConnection, words: int) -> float:
    started = time.perf_counter()
    request = ModelRequest([Message("user", "word " * words)], max_tokens=2)
    async with aclosing(connection.provider(None).stream(request)) as pieces:
        async for piece in pieces:
            if isinstance(piece, TextChunk):
                break
    return time.perf_counter() - started


async def measured(folder: Path, row: ServedModelRow) -> str:
    store = await SQLiteStore.open(folder / "benchmark.db")
    await store.write([row])
    connection = ServedConnection(ModelPool(store), served_spec(row), None, "lean")
    try:
        cold = []
        for _ in range(TRIES):
            await connection.member.stop()
            cold.append(await first_token_s(connection, 4))
        await asyncio.gather(*(first_token_s(connection, WORDS) for _ in range(row.slots)))
        assert connection.member.process
        resident = psutil.Process(connection.member.process.pid).memory_info().rss
    finally:
        await connection.close()
        await store.close()
    need = estimate_of(row).bytes - PROMPT_CACHE
    sizes = f"{need / MIB:,.0f} | {resident / MIB:,.0f} | {(need - resident) / resident:+.0%}"
    return f"| {Path(row.path).stem} | {row.context} x {row.slots} | {sizes} | {min(cold):.2f} |"


async def report() -> None:
    print("| model | context x slots | estimate (MiB) | resident (MiB) | difference | first token (s) |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(Path(folder)):
            print(await measured(Path(folder), row), flush=True)


def main() -> None:
    asyncio.run(report())


if __name__ == "__main__":
    main()
