"""1,000 files of knowledge: time, CPU and size of their index, recall@5 by words, meaning and both, time of searches.

Needs the extra `embeddings`. Files are the pages of docs/, which the questions are about, and beginnings of other real
texts of this machine: manual pages in many languages, descriptions and sources of installed packages.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import quantiles

from msgspec import Struct

from app.knowledge.index import KnowledgeIndex, Reach
from app.knowledge.indexer import Indexer
from app.knowledge.knowledge import Knowledge
from app.memory.embedders.embedder import Embedder
from app.memory.embedders.local import LocalE5
from app.redaction.redactor import Redactor
from app.storage.sqlite.store import SQLiteStore
from tools.base.tasks import in_background

HOME = Path(__file__).parent.parent.parent
QUESTIONS = HOME / "fixtures" / "knowledge" / "questions.jsonl"
FILES, AT, CHARACTERS = 1_000, 5, 600
MANUALS = Path("/usr/share/man")


class Question(Struct, frozen=True):
    part: str
    file: str
    text: str
    question: str


class Delays:
    """The longest time that the event loop was late, and that it worked without a pause."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self.held = 0.0

    async def watch(self) -> None:
        while True:
            due, worked = time.perf_counter() + 0.001, time.thread_time()
            await asyncio.sleep(0.001)
            self.late.append(time.perf_counter() - due)
            self.held = max(self.held, time.thread_time() - worked)


def other_texts() -> Iterator[tuple[str, str]]:
    """Names and texts, the same ones in each run on a machine."""
    packages = Path(next(path for path in sys.path if path.endswith("site-packages")))
    found = [*MANUALS.glob("[a-z][a-z]*/man[1-8]/*.gz"), *packages.glob("*/METADATA"), *packages.glob("*/*.py")]
    chosen = sorted(found)
    random.Random(7).shuffle(chosen)
    for path in chosen:
        with suppress(OSError, UnicodeDecodeError):
            text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
            if len(text) > CHARACTERS // 4:
                yield "-".join(path.parts[-3:]).replace(".gz", ".txt"), text[:CHARACTERS]


def fill(docs: Path) -> int:
    """Write the files; return their size."""
    docs.mkdir(parents=True)
    pages = {path.name: path.read_text() for path in (HOME / "docs").glob("*.md")}
    for name, text in other_texts():
        if len(pages) >= FILES:
            break
        pages[name] = text
    for name, text in pages.items():
        (docs / name).write_text(text)
    return sum(len(text.encode()) for text in pages.values())


async def unpaused() -> None:
    """Never paused."""


def processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def build(indexer: Indexer) -> None:
    for what, work in (("texts", indexer.round), ("vectors", indexer.embed)):
        delays = Delays()
        begun, worked = time.perf_counter(), processor_s()
        async with in_background(delays.watch(), "delays"):
            await work()
        took, worked = time.perf_counter() - begun, processor_s() - worked
        late = quantiles(delays.late, n=1000)[-1] * 1000
        print(
            f"  {what}: {took:.1f} s, {worked:.1f} of a processor; the loop worked at most {delays.held * 1000:.1f} ms "
            f"in a row, and was late by {late:.1f} ms (p99.9), {max(delays.late) * 1000:.0f} at most"
        )


async def recall(knowledge: Knowledge, asked: Sequence[Question], reach: Reach) -> None:
    parts = {part: sum(one.part == part for one in asked) for part in ("words", "paraphrase", "cross")}
    found = {way: dict.fromkeys(parts, 0) for way in ("words", "meaning", "both", "both: its file")}
    took = list[float]()
    for one in asked:
        by_words = knowledge.index.matches(one.question, reach)[:AT]
        by_meaning = [near.id for near in (await knowledge.near(one.question, reach))[0]][:AT]
        begun = time.perf_counter()
        both = [hit.id for hit in await knowledge.search(one.question, reach)][:AT]
        took.append((time.perf_counter() - begun) * 1000)
        for way, ids in (("words", by_words), ("meaning", by_meaning), ("both", both)):
            hits = knowledge.index.hits(ids, reach)
            of_file = [hit for hit in hits if hit.path == f"docs/{one.file}"]
            found[way][one.part] += any(one.text in hit.passage.text for hit in of_file)
            found["both: its file"][one.part] += way == "both" and bool(of_file)
    print(f"  recall@{AT} of {len(asked)} questions {'  '.join(f'{part:>10}' for part in ('all', *parts))}")
    for way, counts in found.items():
        shares = [sum(counts.values()) / len(asked), *(counts[part] / count for part, count in parts.items())]
        print(f"    by {way:20} {'  '.join(f'{share:10.3f}' for share in shares)}")
    print(f"  a search: {quantiles(took, n=20)[9]:.0f} ms (p50), {quantiles(took, n=20)[18]:.0f} ms (p95)")


async def bench() -> None:
    asked = [Question(**json.loads(line)) for line in QUESTIONS.read_text("utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = fill(folder / "work" / "docs")
        store = await SQLiteStore.open(folder / "dragoman.db")
        index = KnowledgeIndex(folder / "knowledge.db")
        indexer = Indexer(
            index=index,
            root=folder / "work",
            folders=("docs",),
            store=store,
            redactor=Redactor([]),
            embedder=Embedder(LocalE5()),
            unpaused=unpaused,
            rest_s=0.0,
        )
        reach = Reach((str(folder / "work"),))
        await build(indexer)
        [(files, passages, _)] = index.counts(indexer.embedder.name if indexer.embedder else "").values()
        held = (folder / "knowledge.db").stat().st_size
        print(f"  {files:,} files of {size:,} bytes: {passages:,} passages, an index of {held:,} bytes")
        begun = time.perf_counter()
        await indexer.round()
        print(f"  a look that finds nothing new: {(time.perf_counter() - begun) * 1000:.0f} ms")
        await recall(Knowledge(index, indexer), asked, reach)
        index.close()
        await store.close()


def main() -> None:
    asyncio.run(bench())


if __name__ == "__main__":
    main()
