"""The memory of a server: its embedder, its tools, and what a run gets of it, from the settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from app.budget.budgets import Ledger
from app.budget.run_budget import RunBudget
from app.budget.side_query import SideQuery
from app.config.memory_settings import MemorySettings
from app.config.settings import Settings
from app.core.labels import Labels
from app.log.event_writer import EventWriter
from app.memory.call_memory import OwnMemory
from app.memory.embedders.embedder import Embedder
from app.memory.embedders.endpoint import EndpointEmbedder
from app.memory.embedders.local import LocalE5, is_installed
from app.memory.extraction import Extraction
from app.memory.memories import Memories
from app.memory.tool_meaning import ToolMeaning
from app.models.endpoints.model_registry import Models
from app.replicas.peers import Peers
from app.storage.kill_switch import KillSwitch
from app.storage.principals import Principal
from app.storage.store import Store
from tools.base.tasks import in_background
from tools.catalogue import MEMORY
from tools.tool import Tool


@asynccontextmanager
async def opened_memory(
    settings: Settings,
    store: Store,
    *,
    models: Models,
    ledger: Ledger,
    journal: EventWriter,
    switch: KillSwitch,
    peers: Peers,
) -> AsyncGenerator[Memories, None]:
    """The memories; while the memory is off its rows can be read and deleted, and nothing is embedded or extracted.

    One server extracts for all.
    """
    embedder = embedder_of(settings) if settings.memory else None
    memories = Memories(
        store, journal.redactor, settings.memory_rows, embedder, policy=settings.label_policy, peers=peers
    )

    def query(principal: Principal, labels: Labels) -> SideQuery:
        utility = models.utility(models.route(None, principal.name, labels))
        return SideQuery(utility, RunBudget(ledger, principal), utility, settings.summary_time_limit_s)

    try:
        async with AsyncExitStack() as stack:
            if embedder:
                await stack.enter_async_context(in_background(embedder.warm_up(), "the embedder of the memory"))
            if settings.memory and settings.memory_extraction:
                extraction = Extraction(store, memories, query, journal, switch.unpaused)
                working = peers.on_duty("memories", extraction.run_forever)
                await stack.enter_async_context(in_background(working, "extraction of memories"))
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


def tool_meaning_of(memories: Memories, stack: AsyncExitStack) -> ToolMeaning | None:
    """Return what knows the meaning of tools, until `stack` closes: the memory's embedder, if it may have all texts."""
    if memories.embedder is None or memories.withholds:
        return None
    meaning = ToolMeaning(memories.embedder)
    stack.push_async_callback(meaning.close)
    return meaning


def memory_tools(settings: MemorySettings) -> Sequence[Tool]:
    return MEMORY if settings.memory else ()


def memory_of_run(settings: MemorySettings, memories: Memories, owner: str) -> OwnMemory | None:
    """Return what a run of this principal gets of the memory; None where it is off."""
    if not settings.memory:
        return None
    return OwnMemory(
        memories=memories,
        owner=owner,
        lines=settings.memory_lines,
        floor=settings.memory_relevance,
        extracts=settings.memory_extraction,
    )
