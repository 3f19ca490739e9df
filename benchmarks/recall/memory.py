"""Recall@5 of the memory by words, by meaning and by both, over fixtures/memory; and a search among 10,000 rows.

Needs the extra `embeddings`. Searches are whole, through the store, as the tool `recall_memory` makes them.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct

from app.config.memory_settings import MemorySettings
from app.memory.embedders.embedder import Embedder
from app.memory.embedders.local import LocalE5
from app.memory.memories import Memories, Source
from app.memory.search import CANDIDATES
from app.memory.words import as_indexed, search_words
from app.redaction.redactor import Redactor
from app.storage.memories import MemoryRow, VectorRow
from app.storage.sqlite.store import SQLiteStore

FACTS = Path(__file__).parent.parent.parent / "fixtures" / "memory" / "facts.jsonl"
OWNER, AT, ROWS, ASKED = "ann", 5, 10_000, 40
UNRELATED = (
    *("Fix the failing test in test_app.py", "SELECT * FROM orders WHERE id = 4;", "Explain the theory of relativity"),
    *("Hello", "What is 17 * 23?", "Refactor this function to use async", "今日の天気は？", "continue"),
    *("How do I reverse a linked list in C?", "Wer war der erste Kanzler der Bundesrepublik?", "Why is the sky blue?"),
)


class Question(Struct, frozen=True):
    part: str
    fact_language: str
    question_language: str
    fact: str
    question: str


class Recall(Struct):
    """The questions of each part, and those of them whose fact was among the first five, by way."""

    asked: dict[str, int]
    found: dict[str, dict[str, int]]

    def share(self, way: str, part: str) -> float:
        return self.found[way][part] / self.asked[part]


def questions() -> list[Question]:
    return [Question(**json.loads(line)) for line in FACTS.read_text("utf-8").splitlines()]


async def memories_of(store: SQLiteStore, asked: Sequence[Question]) -> Memories:
    memories = Memories(store, Redactor([]), 2 * ROWS, Embedder(LocalE5()))
    for one in asked:
        await memories.remember(OWNER, one.fact, "fact", Source())
    await memories.embedded(OWNER)
    return memories


async def measured(store: SQLiteStore, asked: Sequence[Question]) -> tuple[Recall, Memories]:
    """Recall@5 by words alone, by meaning alone, and of whole searches."""
    memories = await memories_of(store, asked)
    parts = ("all", "paraphrase", "cross", "exact")
    recall = Recall({part: sum(one.part in (part, "all") or part == "all" for one in asked) for part in parts}, {})
    ids = {row.id: row.text for row in await store.memories(OWNER, len(asked))}
    for one in asked:
        by_words = (await store.memory_matches(OWNER, search_words(one.question), CANDIDATES))[:AT]
        by_meaning = [near.id for near in await memories.near(OWNER, one.question)][:AT]
        both = [found.row.id for found in await memories.search(OWNER, one.question, AT)]
        for way, found in (("words", by_words), ("meaning", by_meaning), ("both", both)):
            hits = recall.found.setdefault(way, dict.fromkeys(parts, 0))
            hit = one.fact in [ids[memory] for memory in found]
            hits["all"] += hit
            hits[one.part] += hit
    return recall, memories


async def fill(store: SQLiteStore, memories: Memories) -> None:
    """Fill the memory up to ROWS with texts made of its words and with vectors near to those that it has."""
    chance = random.Random(7)
    assert memories.embedder
    name, rows = memories.embedder.name, list[MemoryRow | VectorRow]()
    words = [word for one in questions() for word in one.fact.split()]
    vectors = await store.memory_vectors(OWNER, name)
    for number in range(ROWS - len(vectors)):
        text = " ".join(chance.choices(words, k=9))
        row = MemoryRow(
            id=f"mem_{number:020}",
            owner=OWNER,
            digest=f"{number:064}",
            kind="fact",
            text=text,
            words=as_indexed(text),
            untrusted=False,
            author="model",
            session="ses_1",
            run="run_1",
            message=0,
            labels="[]",
            created=1.0,
            updated=1.0,
        )
        rows += [row, VectorRow(row.id, OWNER, row.digest, name, chance.choice(vectors)[1])]
    for at in range(0, len(rows), 1_000):
        await store.write(rows[at : at + 1_000])
    memories.forget_vectors(OWNER)


async def timed(memories: Memories, asked: Sequence[Question]) -> list[tuple[float, float]]:
    """Milliseconds of each search, and those of them that a processor worked; the first one reads the vectors."""
    took = list[tuple[float, float]]()
    for one in asked[: ASKED + 1]:
        begun, worked = time.perf_counter(), time.process_time()
        await memories.search(OWNER, one.question, AT)
        took.append(((time.perf_counter() - begun) * 1000, (time.process_time() - worked) * 1000))
    return took


async def bench() -> None:
    asked = questions()
    with tempfile.TemporaryDirectory() as folder:
        store = await SQLiteStore.open(Path(folder) / "memory.db")
        recall, memories = await measured(store, asked)
        print(f"recall@{AT} of {len(asked)} facts    {'  '.join(f'{part:>10}' for part in recall.asked)}")
        for way in recall.found:
            shares = "  ".join(f"{recall.share(way, part):10.3f}" for part in recall.asked)
            print(f"  by {way:18} {shares}")
        lines = [
            len(await memories.search(OWNER, text, AT, floor=MemorySettings().memory_relevance)) for text in UNRELATED
        ]
        print(f"lines beside a message that has to do with none of them: {sum(lines) / len(lines):.1f} of {AT}")
        await fill(store, memories)
        chosen = random.Random(3).sample(asked, ASKED + 1)
        [(first, _), *_] = await timed(memories, chosen)
        later = await timed(memories, chosen)  # by then the database is tidy
        whole, worked = median(one[0] for one in later), median(one[1] for one in later)
        print(f"{ROWS:,} rows: first search {first:.0f} ms, then {whole:.1f} ms, {worked:.1f} of a processor")
        await memories.close()
        await store.close()


def main() -> None:
    asyncio.run(bench())


if __name__ == "__main__":
    main()
