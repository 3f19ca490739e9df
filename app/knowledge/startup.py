"""The knowledge of a server: its index and its indexer, from the settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from app.config.memory_settings import KnowledgeSettings
from app.config.settings import Settings
from app.core.labels import NO_LABELS
from app.knowledge.index import KnowledgeIndex
from app.knowledge.indexer import Indexer, KnowledgeStore
from app.knowledge.knowledge import Knowledge
from app.labels.run_labels import LabelServices
from app.memory.memories import EMBEDDINGS, Memories
from app.memory.startup import embedder_of
from app.redaction.redactor import Redactor
from tools.base.tasks import in_background
from tools.catalogue import SEARCH_FILES
from tools.sandbox.sandbox import NoSandbox, Sandbox
from tools.tool import Tool

INDEX = "knowledge.db"  # in the data directory


@asynccontextmanager
async def opened_knowledge(
    settings: Settings,
    store: KnowledgeStore,
    memories: Memories,
    labels: LabelServices | None,
    *,
    redactor: Redactor,
    sandbox: Sandbox | NoSandbox,
    unpaused: Callable[[], Awaitable[None]],
) -> AsyncGenerator[Knowledge | None, None]:
    """The knowledge, with the embedder of the memory; None where no folder is named."""
    if not settings.knowledge:
        yield None
        return
    embedder = memories.embedder or embedder_of(settings)
    leaves = embedder is not None and not embedder.is_local
    policy = settings.label_policy
    index = KnowledgeIndex(settings.own_dir / INDEX)
    indexer = Indexer(
        index=index,
        root=settings.workspace,
        folders=settings.knowledge,
        store=store,
        redactor=redactor,
        embedder=embedder,
        sandbox=sandbox,
        labels=labels,
        withheld=policy.withheld(policy.names, EMBEDDINGS, None) if leaves else NO_LABELS,
        unpaused=unpaused,
    )
    try:
        async with in_background(indexer.run_forever(), "index of knowledge"):
            yield Knowledge(index, indexer)
    finally:
        if embedder and embedder is not memories.embedder:
            await embedder.close()
        index.close()


def knowledge_tools(settings: KnowledgeSettings) -> Sequence[Tool]:
    return (SEARCH_FILES,) if settings.knowledge else ()
