"""Memories: found by words and by meaning, by their owner alone, within limits, whatever a search is made of."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from app.core.labels import LabelRule, LabelSource, policy_of
from app.memory.embedders.background import QUESTIONS, STATEMENTS
from app.memory.embedders.embedder import Embedder, EmbeddingFailed
from app.memory.embedders.endpoint import EndpointEmbedder
from app.memory.embedders.local import LocalE5, is_installed
from app.memory.limits import MOST_BYTES, MemoryFull, UnfitMemory
from app.memory.memories import PAUSE_S, Memories, Source
from app.memory.vectors import VectorIndex
from app.memory.words import as_indexed, digest_of, search_words
from app.redaction.redactor import Redactor
from app.storage.labels import SessionLabel
from app.storage.store import Store
from tests.support.access.people import LIMIT_S
from tests.support.databases.postgres import opened
from tests.support.models.upstream import answer, upstream

pytestmark = pytest.mark.anyio
STRANGER = Source("model", "ses_1", "run_1", 3, untrusted=True)
SECRET = "s3cret-w0rd-of-ours"


@pytest.fixture
async def store(tmp_path: Path, database: str) -> AsyncIterator[Store]:
    async with opened(tmp_path) as store:
        yield store


@pytest.fixture
def memories(store: Store) -> Memories:
    return Memories(store, Redactor([SECRET]), 5)


async def texts(memories: Memories, query: str, owner: str = "ann", limit: int = 5) -> list[str]:
    return [found.row.text for found in await memories.search(owner, query, limit)]


async def keep(memories: Memories, *kept: str, owner: str = "ann") -> None:
    for text in kept:
        await memories.remember(owner, text, "fact", Source())


async def test_words_find_a_memory_of_its_owner_alone(memories: Memories) -> None:
    await keep(memories, "The dog is called Bruno.", "飼い犬の名前はポチです", "Wohnt in der Kantstraße 7")
    await keep(memories, "Bruno is a neighbour.", owner="bob")
    await keep(memories, "Bruno is a cat.", owner="ann b")
    assert await texts(memories, "Who is Bruno?") == ["The dog is called Bruno."]
    assert await texts(memories, "bruno", owner="bob") == ["Bruno is a neighbour."]
    assert await texts(memories, "犬の名前は何ですか") == ["飼い犬の名前はポチです"]
    assert await texts(memories, "Kantstrasse, KANTSTRASSEN or Kantstraßen?") == ["Wohnt in der Kantstraße 7"]
    assert await texts(memories, "Is that what you are called? And where is it?") == ["The dog is called Bruno."]
    assert await texts(memories, "Bruno", owner="carl") == []
    row = (await memories.store.memories("ann", 9))[0]
    await memories.delete(row)
    assert await texts(memories, "Kantstraße") == []
    assert await memories.delete_many("ann") == 2 and await texts(memories, "bruno", owner="bob")


@pytest.mark.parametrize(
    "query",
    [
        '"', '""', "* OR *", "NEAR(a b, 5)", "owner : bob", "words : secret OR owner : ann", "a AND NOT b", "{x} : y",
        "^x", "-x", "x*", "'; DROP TABLE memories; --", "\0", "a\0b", "\ud800", "x" * 100_000, "( " * 5_000, "+ + +",
        "e\u0301\u0300" * 999, "你" * 9_999, "", " ", "?",
    ],
)  # fmt: skip
async def test_no_query_is_syntax(memories: Memories, query: str) -> None:
    await keep(memories, "secret of bob", owner="bob")
    await keep(memories, "harmless")
    assert "secret of bob" not in await texts(memories, query)
    assert await texts(memories, "harmless") == ["harmless"]


async def test_limits_and_duplicates(memories: Memories) -> None:
    first, is_new = await memories.remember("ann", "Likes  tea.\u200b", "preference", STRANGER)
    assert (first.text, is_new, first.untrusted, first.session, first.message) == ("Likes tea.", True, True, "ses_1", 3)
    assert await memories.remember("ann", "likes TEA", "fact", STRANGER) == (first, False)
    trusted, is_new = await memories.remember("ann", "Likes tea", "fact", Source())
    assert (trusted.id, trusted.untrusted, is_new) == (first.id, False, False)
    assert await memories.remember("ann", "Likes tea", "fact", STRANGER) == (trusted, False)
    await keep(memories, "one", "two", "three", f"the key is {SECRET}")
    assert SECRET not in (await texts(memories, "key"))[0]
    with pytest.raises(MemoryFull, match="5 memories"):
        await keep(memories, "six")
    await keep(memories, "one")
    for text in ("", " \n\u200b", "x" * (MOST_BYTES + 1), "ä" * (MOST_BYTES // 2 + 1)):
        with pytest.raises(UnfitMemory, match="text: "):
            await keep(memories, text, owner="bob")
    with pytest.raises(UnfitMemory, match="fact, preference"):
        await memories.remember("bob", "x", "poem", Source())
    with pytest.raises(UnfitMemory, match=trusted.id):
        [row] = [row for row in await memories.store.memories("ann", 9) if row.text == "one"]
        await memories.edit(row, text="LIKES tea")
    edited = await memories.edit(trusted, text="Likes coffee", untrusted=False)
    assert await texts(memories, "tea") == [] and await texts(memories, "coffee") == ["Likes coffee"]
    assert (edited.kind, edited.created) == (trusted.kind, trusted.created)


def test_words_of_a_search() -> None:
    assert as_indexed("飼い犬 ok ｔｅｘｔ") == "飼 い 犬 ok text"
    assert search_words("Where is the dog's ID 42?") == [["dog"], ["id"], ["42"]]
    assert search_words("Allergien") == [["allergien"], ["allergi*"]]
    assert search_words("犬の名") == [["犬", "の"], ["の", "名"]]
    assert digest_of("A  b.") == digest_of("a B") != digest_of("a c")


class Flaky:
    """A model in whose space a text is where its first letter points; it fails as often as it shall."""

    name, fails, asked, is_local = "flaky", 0, 0, False

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.may_embed = asyncio.Event()
        self.may_embed.set()

    async def vectors(self, texts: Sequence[str], *, are_queries: bool) -> list[bytes]:
        if not are_queries:
            await self.may_embed.wait()
        self.asked += 1
        self.texts += texts
        if self.fails:
            self.fails -= 1
            raise EmbeddingFailed("is tired")
        return list(map(vector, texts))

    async def close(self) -> None:
        pass


def vector(text: str) -> bytes:
    """All have one direction in common; those that begin with `a` or `b` have one more."""
    return array("f", [float(text[:1] == "a"), float(text[:1] == "b"), 1.0]).tobytes()


async def test_words_alone_are_searched_while_the_embedder_fails(store: Store) -> None:
    now, raw = 1000.0, Flaky()
    memories = Memories(store, Redactor([]), 9, Embedder(raw), lambda: now)
    async with asyncio.timeout(LIMIT_S):
        await keep(memories, "apples", "bread")
        await memories.embedded("ann")
        assert await texts(memories, "a fruit") == ["apples"] and await texts(memories, "best") == ["bread"]
        raw.fails = 1
        assert await texts(memories, "a fruit") == [] and await texts(memories, "apples") == ["apples"]
        asked = raw.asked
        assert await texts(memories, "a fruit") == [] and raw.asked == asked, "it has a pause"
        await keep(memories, "almonds")
        now += PAUSE_S
        await memories.search("ann", "a", 5)  # what it has missed is embedded now
        await memories.embedded("ann")
        assert sorted(await texts(memories, "a fruit")) == ["almonds", "apples"]
        [row] = [row for row in await memories.store.memories("ann", 9) if row.text == "almonds"]
        await memories.edit(row, text="bananas")
        await memories.embedded("ann")
        assert await texts(memories, "a fruit") == ["apples"]
        await memories.embedded("ann")  # the search has looked for what lacks a vector of this space
        other = Flaky()
        other.name = "another"
        again = Memories(store, Redactor([]), 9, Embedder(other))
        assert await texts(again, "a fruit") == ["apples"], "made anew: those of another space are not compared"
        assert "apples" in other.texts
        assert await texts(again, "a fruit", owner="bob") == []
        await memories.close()
        await again.close()


async def test_what_was_stored_just_now_is_found_by_its_meaning(store: Store) -> None:
    """Whichever is made first, the vector of the question or that of the memory, and at most for a moment."""
    raw = Flaky()
    memories = Memories(store, Redactor([]), 9, Embedder(raw))
    async with asyncio.timeout(LIMIT_S):
        await keep(memories, "apples")
        assert await texts(memories, "a fruit") == ["apples"]
        raw.may_embed.clear()
        await keep(memories, "almonds")
        assert await texts(memories, "a fruit") == ["apples"], "a search is not held up"
        raw.may_embed.set()
        assert sorted(await texts(memories, "a fruit")) == ["almonds", "apples"]
        await memories.close()


async def test_an_embedder_of_this_process_is_measured_before_the_first_search() -> None:
    for is_local in (True, False):
        raw = Flaky()
        raw.is_local = is_local
        embedder = Embedder(raw)
        raw.fails = int(is_local)
        await embedder.warm_up()  # whatever fails is tried again by the search
        await embedder.warm_up()
        asked = raw.asked
        assert bool(asked) is is_local
        await embedder.embed_query("a")
        assert (raw.asked == asked + 1) is is_local
        await embedder.close()


SECRET_RULE = policy_of([LabelSource(label="secret")], [LabelRule(label="secret", endpoints=("local",))])
CARRIED = Source("model", "ses_1", "run_1", 0, labels=frozenset({"secret"}))


async def test_labelled_texts_are_embedded_only_where_a_rule_lets_them(store: Store) -> None:
    raw, own = Flaky(), Flaky()
    own.is_local = True
    memories = Memories(store, Redactor([]), 9, Embedder(raw), policy=SECRET_RULE)
    inside = Memories(store, Redactor([]), 9, Embedder(own), policy=SECRET_RULE)
    async with asyncio.timeout(LIMIT_S):
        await keep(memories, "bread")
        kept, _ = await memories.remember("ann", "apples", "fact", CARRIED)
        await memories.embedded("ann")
        found = await memories.search("ann", "apples anew", 5, labels=CARRIED.labels)
        assert [one.row.id for one in found] == [kept.id], "words find it"
        assert "bread" in raw.texts and not {"apples", "apples anew"} & {*raw.texts}
        await inside.search("ann", "an apple", 5, labels=CARRIED.labels)
        await inside.embedded("ann")
        assert {"apples", "an apple"} <= {*own.texts}
        await memories.close()
        await inside.close()


async def test_a_memory_has_the_labels_of_its_conversation(store: Store) -> None:
    memories = Memories(store, Redactor([]), 9)
    early, _ = await memories.remember("ann", "Apples", "fact", Source("model", "ses_1", "run_1"))
    await store.write([SessionLabel("ses_1", "secret", "mark", "", "", 1.0)])
    late, _ = await memories.remember("ann", "Pears", "fact", Source("model", "ses_1", "run_1", labels=frozenset("a")))
    other, _ = await memories.remember("ann", "Plums", "fact", Source("model", "ses_2", "run_2"))
    await memories.edit(early, text="Ripe apples")
    rows = {row.id: row.label_names for row in await store.memories("ann", 9)}
    assert rows == {early.id: {"secret"}, late.id: {"a", "secret"}, other.id: set()}


def test_nearest_with_and_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    index = VectorIndex([("a", vector("a")), ("odd", b"1234"), ("b", vector("b"))])
    plain = sorted(enumerate(index._products(vector("a"))), key=lambda one: -one[1])
    assert [(index.ids[at], score) for at, score in plain] == [("a", 2.0), ("b", 1.0)]
    assert [(near.id, near.similarity) for near in index.nearest(vector("a"), 9)] == [("a", 2.0), ("b", 1.0)]
    assert VectorIndex([]).nearest(vector("a"), 3) == index.nearest(b"", 3) == []


@pytest.mark.skipif(not is_installed(), reason="the extra embeddings is not installed")
async def test_meaning_finds_a_memory_across_languages(store: Store) -> None:
    memories = Memories(store, Redactor([]), 9, Embedder(LocalE5()))
    async with asyncio.timeout(LIMIT_S):
        await keep(
            memories, "Meine Tochter studiert Medizin in Wien.", "Prefers short answers.", "飼い犬の名前はポチです"
        )
        await memories.embedded("ann")
        assert (await texts(memories, "Which subject does my child read at university?"))[0].startswith("Meine Tochter")
        assert (await texts(memories, "What is my pet called?"))[0].startswith("飼い犬")
        await memories.close()


def embeddings(*texts: str) -> str:
    vectors = [{"index": at, "embedding": list(memoryview(vector(one)).cast("f"))} for at, one in enumerate(texts)]
    return json.dumps({"data": vectors[::-1]})


async def test_an_endpoint_embeds(store: Store) -> None:
    background = [answer(embeddings(*"xxxxxx"))] * (len(QUESTIONS) + len(STATEMENTS))
    acts = [*background, answer(embeddings("a")), answer(embeddings("a")), answer("{}"), answer("no", 500)]
    async with asyncio.timeout(LIMIT_S), upstream(*acts) as server:
        embedder = Embedder(EndpointEmbedder(f"{server.base_url}/embeddings", "my-e5", "key-1"))
        memories = Memories(store, Redactor([]), 9, embedder, lambda: 0.0)
        await keep(memories, "apples")
        await memories.embedded("ann")
        assert await texts(memories, "zzz") == ["apples"]
        passage, query = server.asked[-2:]
        assert (passage.json["input"], query.json["input"]) == (["passage: apples"], ["query: zzz"])
        assert (query.json["model"], query.headers["authorization"]) == ("my-e5", "Bearer key-1")
        for trouble in ("answered without", "status 500"):
            with pytest.raises(EmbeddingFailed, match=trouble):
                await embedder.embed_query("zzz")
        await memories.close()
