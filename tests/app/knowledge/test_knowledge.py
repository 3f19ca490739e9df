"""Knowledge: files and documents are found by words and by meaning, as they are now, with the rights of now."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from array import array
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config.folders import folder_below
from app.core.labels import LabelRule, LabelSource, policy_of
from app.core.rules import OperatorRule, ToolRule
from app.knowledge import files, indexer
from app.knowledge.files import MOST_BYTES, UPLOADS, look
from app.knowledge.index import KnowledgeIndex, Reach
from app.knowledge.indexer import MOST_TEXT, Indexer, sections_of
from app.knowledge.knowledge import MOST_LEFT_OUT, CallKnowledge, Knowledge
from app.knowledge.passages import MOST, passages_of
from app.labels.contents import Contents
from app.labels.file_labels import FileLabels
from app.labels.run_labels import LabelServices
from app.memory.embedders.embedder import Embedder, EmbeddingFailed
from app.policy.classification import Classification
from app.policy.gate import Gate
from app.policy.policy_context import NO_POLICY
from app.policy.rules.compiling import compiled_rules
from app.redaction.redactor import Redactor
from app.storage.changes import StoreFailed
from app.storage.documents import DocumentRow, VersionRow
from app.storage.principals import Principal
from app.storage.sessions import SessionRow
from app.storage.store import Store
from tests.support.access.people import LIMIT_S
from tests.support.databases.postgres import opened
from tools.base.access import FoundPassages
from tools.base.outcome import ToolFailed
from tools.base.rights import Role
from tools.base.tasks import in_background
from tools.extraction.documents import Section
from tools.sandbox.sandbox import NoSandbox, find_sandbox

pytestmark = pytest.mark.anyio
ANN = Principal("ann", Role.ADMIN)
SECRET = "s3cret-w0rd-of-ours"


async def unpaused() -> None:
    """Never paused."""


class Concepts:
    """Texts about the same concept are alike, in any language."""

    name, is_local, fails = "concepts", False, 0
    concepts = (("dog", "hund", "chien"), ("tax", "steuer", "impôt"))

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def vectors(self, texts: Sequence[str], *, are_queries: bool) -> list[bytes]:
        self.texts += texts
        if self.fails:
            self.fails -= 1
            raise EmbeddingFailed("is tired")
        return [array("f", self._vector(text.lower())).tobytes() for text in texts]

    def _vector(self, text: str) -> list[float]:
        about = [float(any(map(text.count, words))) for words in self.concepts]
        return [*about, 1.0, 0.01 * (1 + len(text) % 7)]

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
async def store(tmp_path: Path, database: str) -> AsyncIterator[Store]:
    async with opened(tmp_path) as store:
        yield store


class World:
    """A workspace with its index."""

    def __init__(self, folder: Path, store: Store, folders: Sequence[str] = ("docs",), **more: Any) -> None:
        self.root = folder / "work"
        self.root.mkdir(exist_ok=True)
        self.raw = Concepts()
        self.index = KnowledgeIndex(folder / "knowledge.db")
        self.indexer = Indexer(
            index=self.index, root=self.root, folders=folders, store=store, redactor=Redactor([SECRET]),
            embedder=Embedder(self.raw), unpaused=unpaused, **more,
        )  # fmt: skip
        self.knowledge = Knowledge(self.index, self.indexer)

    def put(self, **files: str) -> None:
        for name, text in files.items():
            path = self.root / name.replace("__", "/").replace("_md", ".md")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    async def update(self) -> None:
        await self.indexer.round()
        await self.indexer.embed()

    async def found(self, query: str, folder: str = "") -> list[str]:
        reach = Reach((str(self.root),), folder)
        return [f"{hit.path}:{hit.passage.first}" for hit in await self.knowledge.search(query, reach)]

    def problems(self) -> dict[str, str]:
        return {path: why for _, path, why in self.index.problems(99)}

    async def call(self, query: str, gate: Gate | None = None, own: Path | None = None, **more: Any) -> FoundPassages:
        own = own or self.root
        access = CallKnowledge(self.knowledge, gate or Gate(ANN), own=own, workspace=own, session="ses_1")
        return await access.search(query, more.get("folder", ()), more.get("limit", 5))


PDF = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R 4 0 R]/Count 2>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]/Contents 5 0 R/Resources<</Font<</F 7 0 R>>>>>>endobj
4 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]/Contents 6 0 R/Resources<</Font<</F 7 0 R>>>>>>endobj
5 0 obj<</Length 44>>stream
BT /F 12 Tf 20 200 Td (First of two.) Tj ET
endstream endobj
6 0 obj<</Length 46>>stream
BT /F 12 Tf 20 200 Td (Lassie is a dog) Tj ET
endstream endobj
7 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Root 1 0 R>>
"""


async def test_documents_are_found_by_their_page(tmp_path: Path, store: Store) -> None:
    sandbox = find_sandbox(hidden=[])
    world = World(tmp_path, store, sandbox=sandbox)
    world.put(docs__a_md="dog")
    (world.root / "docs/report.pdf").write_bytes(PDF)
    (world.root / "docs/cut.pdf").write_bytes(PDF[:40])
    await world.update()
    world.indexer.catch_up_s = 0
    if isinstance(sandbox, NoSandbox) or not importlib.util.find_spec("pypdfium2"):
        pytest.skip("needs a sandbox and the extra documents")
    assert (await world.call("the dog Lassie")).passages[0].place == "docs/report.pdf page 2"
    assert "docs/cut.pdf" in world.problems()


@given(st.text(st.sampled_from("ab# \n語"), max_size=4_000), st.integers(1, 400))
def test_passages_hold_the_lines_that_they_name(text: str, longer: int) -> None:
    text += "x" * 10 * longer
    lines = text.split("\n")
    passages = list(passages_of([Section("", text)]))
    kept = "".join(one.text for one in passages)
    assert all(len(one.text) <= MOST + 1 for one in passages)
    assert sorted(filter(str.isalnum, kept)) == sorted(filter(str.isalnum, text)), "nothing is lost, nothing doubled"
    for one in passages:
        assert one.text in "\n".join(lines[one.first - 1 : one.last])
    assert [one.first for one in passages] == sorted(one.first for one in passages)


async def test_what_is_found_follows_the_files(tmp_path: Path, store: Store) -> None:
    world = World(tmp_path, store)
    world.put(docs__a_md="# Pets\n\nOur dog is called Bruno.", docs__b_md="Die Steuer ist im Mai fällig.", c_md="dog")
    await world.update()
    assert await world.found("Bruno") == ["docs/a.md:1"]
    assert await world.found("impôt") == ["docs/b.md:1"], "by meaning, in another language"
    assert await world.found("Bruno", "docs/deep/") == []
    embedded = len(world.raw.texts)
    (world.root / "docs/a.md").rename(world.root / "docs/pets.md")
    world.put(docs__copy_md="Die Steuer ist im Mai fällig.")
    await world.update()
    assert await world.found("Bruno") == ["docs/pets.md:1"]
    assert sorted(await world.found("Steuer")) == ["docs/b.md:1", "docs/copy.md:1"]
    assert len(world.raw.texts) == embedded + 2, "known contents cost nothing but the two queries"
    world.put(docs__pets_md="\n\nThe cat is called Mia.")
    (world.root / "docs/b.md").unlink()
    await world.update()
    assert await world.found("Bruno") == [] and await world.found("Mia") == ["docs/pets.md:3"]
    assert await world.found("Steuer") == ["docs/copy.md:1"]
    assert world.index.passage_count() == 2, "nothing is left of what is gone"


async def test_what_cannot_be_searched_has_a_reason(tmp_path: Path, store: Store) -> None:
    world = World(tmp_path, store)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/x.md").write_text("dog outside")
    world.put(
        docs__good_md="a dog", docs__large="dog " * (MOST_TEXT // 4 + 1), docs__closed="dog", docs__locked__x="dog"
    )
    docs = world.root / "docs"
    (docs / "binary").write_bytes(b"dog\0dog")
    (docs / "latin1.txt").write_bytes("Grüße latin".encode("latin-1"))
    with (docs / "huge").open("wb") as file:
        file.truncate(100 << 20)
    (docs / "link.md").symlink_to(tmp_path / "outside/x.md")
    (docs / "folder").symlink_to(tmp_path / "outside")
    (docs / ".env").write_text("dog")
    (docs / "id_rsa").write_text("dog")
    (docs / "two\nlines.md").write_text("dog")
    (docs / "pipe").unlink(missing_ok=True)
    os.mkfifo(docs / "pipe")
    (docs / "closed").chmod(0)
    (docs / "locked").chmod(0)
    await world.update()
    (docs / "locked").chmod(0o700)
    assert await world.found("dog") == ["docs/good.md:1"] or os.geteuid() == 0
    problems = world.problems()
    assert {"docs/binary", "docs/large", "docs/huge"} <= problems.keys()
    assert problems["docs/huge"] == f"it has more than {MOST_BYTES >> 20} MB"
    if os.geteuid():
        assert "cannot be" in problems["docs/closed"] and "cannot be read" in problems["docs/locked"]
    assert await world.found("latin") == ["docs/latin1.txt:1"]
    docs.joinpath("binary").write_text("a dog by now")
    await world.update()
    assert "docs/binary" not in world.problems()


async def test_a_call_shows_what_read_file_would(tmp_path: Path, store: Store) -> None:
    world = World(tmp_path, store, folders=("docs", UPLOADS))
    world.put(
        docs__a_md="dog Anna", upload_md="dog Uwe", people__bob__upload_md="dog of Bob", people__bob__docs__b_md="dog B"
    )
    await world.update()
    bob = world.root / "people/bob"
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        running = group.create_task(world.indexer.run_forever())

        async def places(**more: Any) -> set[str]:
            return {one.place for one in (await world.call("dog", **more)).passages}

        assert await places() == {"docs/a.md:1", "upload.md:1"}
        assert await places(folder=("docs",)) == {"docs/a.md:1"}
        assert await places(own=bob, gate=Gate(Principal("bob", Role.USER))) == {"upload.md:1", "docs/b.md:1"}
        rule = OperatorRule.model_validate(
            {"tool": "read_file", "action": "ask", "reason": "Ask.", "paths": ["docs/**"]}
        )
        asking = Gate(ANN, replace(NO_POLICY, workspace=world.root, rules=compiled_rules([rule])))
        assert await places(gate=asking) == {"upload.md:1"}
        assert (
            await places(
                gate=Gate(ANN, classification=Classification((ToolRule(match="read_file", approval="always"),)))
            )
            == set()
        )
        (tmp_path / "link").symlink_to(world.root)
        docs = folder_below(tmp_path / "link", "docs")  # of a conversation, by its real path
        access = CallKnowledge(world.knowledge, Gate(ANN), own=world.root, workspace=docs, session="s")
        assert [one.place for one in (await access.search("dog", (), 5)).passages] == ["a.md:1"]
        with pytest.raises(ToolFailed, match="query is empty"):
            await world.call(" \n")
        assert (await world.call('"*:^( NEAR', limit=3)).passages == []
        world.put(docs__late_md="A dog that was written a moment ago: Lassie")
        assert (await world.call("Lassie")).passages[0].place == "docs/late.md:1"
        running.cancel()
    (world.root / "docs/a.md").write_text("cat")  # nothing looks at it by now
    world.indexer.catch_up_s = 0
    found = await world.call("Anna")
    assert (found.passages, found.left_out) == ([], 1)


async def test_the_workspace_may_be_behind_a_link(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, store)
    (tmp_path / "link").symlink_to(world.root)
    world.indexer.root, world.indexer.catch_up_s = tmp_path / "link", 0
    world.put(docs__a_md="dog Anna", docs__own__a_md="dog Olga")
    await world.update()
    own = folder_below(world.indexer.root, "docs/own")
    async with asyncio.timeout(LIMIT_S):
        while not world.index.stamps(str(world.indexer.root))["docs/own/a.md"]:  # just written
            await world.update()
    monkeypatch.setattr(files, "sha256", None)  # a file that has its stamp is not read again
    access = CallKnowledge(world.knowledge, Gate(ANN), own=world.indexer.root, workspace=own, session="s")
    assert [one.text for one in (await access.search("dog", (), 5)).passages] == ["dog Olga"]


async def test_a_search_looks_at_few_files_that_have_changed(tmp_path: Path, store: Store) -> None:
    world = World(tmp_path, store)
    world.indexer.catch_up_s = 0
    names = [f"docs__{number}_md" for number in range(MOST_LEFT_OUT + 20)]
    world.put(**dict.fromkeys(names, "a dog"))
    await world.update()
    world.put(**dict.fromkeys(names, "a cat"))
    assert (await world.call("dog")).left_out == MOST_LEFT_OUT


def test_a_look_ends_where_there_are_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 2)
    for name in ("a", "b", "c", "d/e"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    scans = iter([os.scandir])  # one
    monkeypatch.setattr(os, "scandir", lambda folder: next(scans)(folder))
    seen = look(tmp_path, ["."])
    assert (len(seen.stamps), [*seen.problems]) == (2, [""])


async def test_documents_are_found_by_those_who_may_read_documents(tmp_path: Path, store: Store) -> None:
    world = World(tmp_path, store, folders=("documents",))
    world.indexer.catch_up_s = 0
    row = DocumentRow("doc_1", "ses_2", "Plan", "markdown", version=1, seen=1, created=0, updated=0)
    await store.write([SessionRow("ses_2", "ann", 0, ""), row, VersionRow("doc_1", 1, "model", "", "", 0, "dog Waldo")])
    await world.update()
    assert [one.place for one in (await world.call("Waldo")).passages] == ['document doc_1 "Plan":1']
    rule = ToolRule(match="read_document", approval="always")
    assert (await world.call("Waldo", Gate(ANN, classification=Classification((rule,))))).left_out == 1


def test_a_file_that_goes_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    scan = os.scandir

    @contextmanager
    def scandir(folder: int) -> Iterator[list[os.DirEntry[str]]]:
        with scan(folder) as entries:
            found = sorted(entries, key=attrgetter("name"))
            (tmp_path / "a").unlink()
            yield found

    monkeypatch.setattr(os, "scandir", scandir)
    assert look(tmp_path, ["."]).stamps.keys() == {"b", "c"}


async def test_a_failure_of_the_machine_ends_no_indexing(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, full = World(tmp_path, store), iter([OSError(28, "No space left on device")])
    world.put(docs__a_md="dog Anna")

    async def sections(*given: Any) -> Sequence[Section]:
        for error in full:
            raise error
        return await sections_of(*given)

    monkeypatch.setattr(indexer, "sections_of", sections)
    async with in_background(world.indexer.run_forever(), "indexer"):
        await world.indexer.catch_up()
        assert [one.text for one in (await world.call("Anna")).passages] == ["dog Anna"]


async def test_a_file_that_has_just_changed_is_read_again(tmp_path: Path, store: Store) -> None:
    world = World(tmp_path, store)
    for number in range(9):  # of one size, and within a tick of the clock of the file system
        world.put(docs__a_md=f"version{number}")
        await world.indexer.round()
        assert await world.found(f"version{number}") == ["docs/a.md:1"]
    stamp = (world.root / "docs/a.md").stat()
    world.put(docs__a_md="version9")
    os.utime(world.root / "docs/a.md", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    await world.indexer.round()
    assert await world.found("version9") == ["docs/a.md:1"]


async def test_a_damaged_index_is_made_anew_and_a_killed_one_goes_on(tmp_path: Path, store: Store) -> None:
    world = World(tmp_path, store)
    world.put(**{f"docs__{number}_md": f"dog number{number}" for number in range(6)})
    world.raw.fails = 1
    await world.update()
    assert await world.found("number4") == ["docs/4.md:1"], "by words while the embedder fails"
    world.indexer.resumes = 0
    world.index.close()
    again = World(tmp_path, store)
    again.index.put = None  # type: ignore[assignment, method-assign]  # known contents are not stored again
    await again.update()
    assert [embedded for _, _, embedded in again.index.counts("concepts/1").values()] == [6]
    again.index.close()
    path = tmp_path / "knowledge.db"
    for damage in (b"no database at all" * 400, path.read_bytes()[:4096] + b"\xff" * 8192):
        path.write_bytes(damage)
        mended = World(tmp_path, store)
        with suppress(StoreFailed):
            await mended.update()
        await mended.update()
        assert await mended.found("number4") == ["docs/4.md:1"]
        mended.index.close()


async def test_secrets_are_not_indexed_and_labels_keep_texts_from_the_embedder(tmp_path: Path, store: Store) -> None:
    source = LabelSource(label="private", paths=("docs/private/**",), patterns=("Passport \\d+",))
    policy = policy_of([source], [LabelRule(label="private", endpoints=("local",))])
    labels = LabelServices(FileLabels(policy, tmp_path / "work"), store, contents=Contents.of(policy))
    world = World(tmp_path, store, labels=labels, withheld=frozenset({"private"}))
    cut = f"{'x' * (MOST - 3)}{SECRET}"  # a passage ends within it
    world.put(
        docs__a_md=f"dog {SECRET}", docs__cut_md=cut, docs__private__b_md="dog of Berta", docs__c_md="Passport 4711"
    )
    await world.update()
    assert await world.found("Berta") == ["docs/private/b.md:1"]
    assert not any(SECRET in text or "Berta" in text or "4711" in text for text in world.raw.texts[:-1])
    assert SECRET[3:].encode() not in (tmp_path / "knowledge.db").read_bytes()
