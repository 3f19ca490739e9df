"""The memory of a server: its embedder, its tools, and what a run gets of it, from the settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from app.config.memory_settings import MemorySettings
from app.memory.desk import OwnMemory
from app.memory.embedders.embedder import Embedder
from app.memory.embedders.endpoint import EndpointEmbedder
from app.memory.embedders.local import LocalE5, is_installed
from app.memory.memories import Memories
from app.redaction.redactor import Redactor
from app.storage.memories import MemoryStore
from tools.catalogue import MEMORY
from tools.tool import Tool


@asynccontextmanager
async def opened_memory(
    settings: MemorySettings, store: MemoryStore, redactor: Redactor
) -> AsyncGenerator[Memories, None]:
    """The memories; while the memory is off its rows can be read and deleted, and nothing is embedded."""
    embedder = embedder_of(settings) if settings.memory else None
    memories = Memories(store, redactor, settings.memory_rows, embedder)
    try:
        yield memories
    finally:
        await memories.close()


def embedder_of(settings: MemorySettings) -> Embedder | None:
    """The endpoint that embeds, else the package in this process, else none."""
    if settings.memory_embeddings_url:
        key = settings.memory_embeddings_key
        endpoint = EndpointEmbedder(
            settings.memory_embeddings_url,
            settings.memory_embeddings_model or "",
            key.get_secret_value() if key else None,
        )
        return Embedder(endpoint)
    return Embedder(LocalE5()) if is_installed() else None


def memory_tools(settings: MemorySettings) -> Sequence[Tool]:
    return MEMORY if settings.memory else ()


def memory_of_run(settings: MemorySettings, memories: Memories | None, owner: str) -> OwnMemory | None:
    """Return what a run of this principal gets of the memory; None where it is off."""
    if memories is None or not settings.memory:
        return None
    return OwnMemory(*(memories, owner, settings.memory_lines, settings.memory_relevance, settings.memory_extraction))
