"""The indexer: looks at all workspaces again and again, and brings the index up to date with what it finds.

Its steps are short, run beside the event loop, and each is stored: a killed server goes on where it was. A text can be
found by its words before its vectors are made, which take most of the time. After a step it rests as long as that took.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from app.config.folders import PEOPLE
from app.core.labels import NO_LABELS, Labels
from app.core.messages import Message
from app.knowledge.files import DOCUMENTS, FileContent, Unreadable, look, read_whole
from app.knowledge.index import KnowledgeIndex, Unembedded
from app.knowledge.passages import Passage, passages_of
from app.labels.run_labels import LabelServices
from app.memory.embedders.embedder import Embedder, EmbeddingFailed
from app.redaction.redactor import Redactor
from app.storage.changes import StoreFailed
from app.storage.documents import DocumentStore
from tools.base.tasks import in_background, wait_at_most
from tools.extraction.documents import Section, UnreadableDocument, extracted
from tools.extraction.formats import HEAD, format_of
from tools.sandbox.sandbox import NO_SANDBOX, NoSandbox, Sandbox

EVERY_S = 30.0  # between two looks
CATCH_UP_S = 2.0  # that a search waits for a look
REST_S = 2.0  # after a step, at most
PAUSE_S = 60.0  # without vectors after the embedder has failed
BATCH = 4  # passages whose vectors are made at a time: a search waits for one of them
EMBEDDED = 700  # characters of a passage that its vector is made of
MOST_TEXT = 2 << 20  # bytes of a text
MOST_PASSAGES = 100_000  # of the index: 150 MB of vectors
MOST_PEOPLE = 1_000
FULL = f"the index has {MOST_PASSAGES:,} passages, which is the most"
_log = logging.getLogger(__name__)


class KnowledgeStore(DocumentStore, Protocol):
    async def owner_of(self, session: str) -> str | None: ...

    async def tainted(self, session: str) -> bool: ...


class Indexer(Struct, kw_only=True):
    """`folders` are those of the setting. Texts with labels of `withheld` are not given to the embedder."""

    index: KnowledgeIndex
    root: Path
    folders: Sequence[str]
    store: KnowledgeStore
    redactor: Redactor
    embedder: Embedder | None
    sandbox: Sandbox | NoSandbox = NO_SANDBOX
    labels: LabelServices | None = None
    withheld: Labels = NO_LABELS
    unpaused: Callable[[], Awaitable[None]]
    pending: dict[str, int] = field(default_factory=dict)  # files by their place
    catch_up_s: float = CATCH_UP_S
    rest_s: float = REST_S
    resumes: float = 0.0  # when the embedder is used again after a failure
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)  # texts may lack vectors
    _next: asyncio.Event = field(default_factory=asyncio.Event)  # set when the next round has ended
    _passages: int = 0
    _after: int = 0  # the passage that the embedder has failed at: the others come first

    async def run_forever(self) -> None:
        async with in_background(self._repeat(self.embed, self._changed), "vectors of knowledge"):
            await self._repeat(self.round, self._wake)

    async def _repeat(self, work: Callable[[], Awaitable[None]], wake: asyncio.Event) -> None:
        while True:
            wake.clear()
            try:
                await self.unpaused()
                await work()
            except (StoreFailed, OSError) as failure:
                _log.warning("files are not indexed, retrying later: %s", failure)
            await wait_at_most(EVERY_S, wake)

    async def catch_up(self) -> None:
        """Wait, but not for long, until all that is there now can be found by its words."""
        ends = self._next
        self._wake.set()
        await wait_at_most(self.catch_up_s, ends)

    async def round(self) -> None:
        """Bring the texts of the index up to date. Raises StoreFailed."""
        ends, self._next = self._next, asyncio.Event()
        try:
            if not self._passages:  # the first one: what was in the way of files may have gone
                await asyncio.to_thread(self.index.forget_problems)
            self._passages = await asyncio.to_thread(self.index.passage_count)
            places = await asyncio.to_thread(_workspaces, self.root)
            there = {str(one) for one in places}
            for workspace in places:
                await self._update_files(workspace)
            if DOCUMENTS in self.folders:
                there |= await self._update_documents()
            for place in set(await asyncio.to_thread(self.index.places)) - there:
                paths = await asyncio.to_thread(self.index.stamps, place)
                await asyncio.to_thread(self.index.remove, place, list(paths))
            while await asyncio.to_thread(self.index.tidy):
                await self.unpaused()
        finally:
            ends.set()
            self._changed.set()

    async def _update_files(self, workspace: Path) -> None:
        place = str(workspace)
        try:
            seen = await asyncio.to_thread(look, workspace, self.folders)
        except OSError as error:
            _log.warning("the workspace %s cannot be looked at: %s", workspace, error.strerror)
            return

        async def read(path: str) -> FileContent:
            return await asyncio.to_thread(read_whole, workspace, path)

        problems = {path: why for path, why in seen.problems.items() if path not in seen.stamps}
        await self._update(place, seen.stamps | dict.fromkeys(problems, ""), read, problems)

    async def _update_documents(self) -> set[str]:
        """Index the documents of all principals; return their places."""
        versions = dict[str, dict[str, str]]()
        for one in await self.store.owned_documents():
            versions.setdefault(place_of_documents(one.principal), {})[one.document] = str(one.version)

        async def read(document: str) -> FileContent:
            row = await self.store.document(document)
            version = await self.store.document_version(document, row.version) if row else None
            if version is None:
                raise Unreadable("it was deleted")
            return FileContent(version.text.encode(), str(version.version))

        for place, stamps in versions.items():
            await self._update(place, stamps, read, {})
        return set(versions)

    async def _update(
        self,
        place: str,
        stamps: dict[str, str],
        read: Callable[[str], Awaitable[FileContent]],
        problems: dict[str, str],
    ) -> None:
        known = await asyncio.to_thread(self.index.stamps, place)
        changed = [path for path, stamp in stamps.items() if known.get(path) != stamp]
        for left, path in zip(range(len(changed), 0, -1), changed, strict=True):
            self.pending[place] = left
            begun = time.monotonic()
            try:
                if path in problems:
                    raise Unreadable(problems[path])
                await self._put(place, path, await read(path))
            except Unreadable as why:
                await asyncio.to_thread(self.index.put_problem, place, path, stamps[path], str(why))
            if left > 1:
                await self._rest(begun)
        self.pending.pop(place, None)
        if gone := [path for path in known if path not in stamps]:  # by now what was renamed has its content
            await asyncio.to_thread(self.index.remove, place, gone)

    async def _put(self, place: str, path: str, content: FileContent) -> None:
        """Raises Unreadable."""
        digest = await asyncio.to_thread(lambda: sha256(content.data).digest())
        if await asyncio.to_thread(self.index.link, place, path, content.stamp, digest):
            return
        sections = await sections_of(content.data, path, self.sandbox)
        passages = await asyncio.to_thread(self._redacted, sections)
        if self._passages + len(passages) > MOST_PASSAGES:
            raise Unreadable(FULL)
        self._passages += len(passages)
        await asyncio.to_thread(self.index.put, place, path, content.stamp, digest, passages)

    def _redacted(self, sections: Sequence[Section]) -> list[Passage]:
        return list(passages_of(self.redactor.redact_value(sections)))  # before a cut can be within a secret

    async def embed(self) -> None:
        """Make vectors until all are made, or the embedder fails. Raises StoreFailed."""
        embedder, held = self.embedder, set[int]()
        while embedder and self.resumes <= (begun := time.monotonic()):
            await self.unpaused()
            missing = await asyncio.to_thread(self.index.unembedded, embedder.name, self._after, list(held), BATCH)
            if not missing:
                self._after = 0
                return
            held |= {one.content for one in missing if await self._is_withheld(one)}
            given = [one for one in missing if one.content not in held]
            try:
                vectors = await embedder.embed_passages([one.text.strip()[:EMBEDDED] for one in given])
            except EmbeddingFailed as failure:
                self._after = missing[-1].id
                self.failed(failure)
                return
            made = {one.id: vector for one, vector in zip(given, vectors, strict=True)}
            await asyncio.to_thread(self.index.put_vectors, embedder.name, made)
            await self._rest(begun)

    def failed(self, failure: EmbeddingFailed) -> None:
        self.resumes = time.monotonic() + PAUSE_S
        _log.warning("files are searched by words alone for %g s: the embedder %s", PAUSE_S, failure)

    async def _is_withheld(self, one: Unembedded) -> bool:
        """Return True if it has a label that the embedder may not have, by what it says or by one of its files."""
        if not self.withheld or self.labels is None:
            return False
        message = Message("user", one.text)
        if self.withheld & await asyncio.to_thread(self.labels.contents.labels, [message], NO_LABELS):
            return True
        for place, path in await asyncio.to_thread(self.index.files_of, one.content):
            if await labels_at(self.labels, self.store, place, path) & self.withheld:
                return True
        return False

    async def _rest(self, begun: float) -> None:
        await asyncio.sleep(min(self.rest_s, time.monotonic() - begun))


def place_of_documents(principal: str) -> str:
    return f"{DOCUMENTS}:{principal}"


async def labels_at(labels: LabelServices, store: KnowledgeStore, place: str, path: str) -> Labels:
    """Return the labels of an indexed file, or of a document. Raises StoreFailed."""
    if not place.startswith(f"{DOCUMENTS}:"):
        return await asyncio.to_thread(labels.book.of_path, Path(place), path)
    row = await store.document(path)
    return await labels.of_session(row.session if row else "")


async def sections_of(data: bytes, name: str, sandbox: Sandbox | NoSandbox) -> Sequence[Section]:
    """The parts of a file with their texts, as `read_file` shows them. Raises Unreadable."""
    found = format_of(data[:HEAD], data[-HEAD:], name)
    if found and not found.is_plain:
        try:
            return (await extracted(data, name, sandbox)).sections
        except UnreadableDocument as why:
            if found.marks:  # else it is a text, too
                raise Unreadable(f"it {why}") from why
    if b"\0" in data[:HEAD]:
        raise Unreadable("it is no text")
    if len(data) > MOST_TEXT:
        raise Unreadable(f"it has more than {MOST_TEXT >> 20} MB of text")
    return [Section("", data.decode(errors="replace"))]


def _workspaces(root: Path) -> list[Path]:
    """The workspace of admins, and those of the other principals."""
    try:
        people = sorted(one for one in (root / PEOPLE).iterdir() if one.is_dir() and not one.is_symlink())
    except OSError:
        people = []
    return [root, *([] if (root / PEOPLE).is_symlink() else people[:MOST_PEOPLE])]
