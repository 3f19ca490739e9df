"""GET /knowledge: the state of the index that `search_files` searches, for admins."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.knowledge.files import DOCUMENTS
from app.knowledge.knowledge import Knowledge
from routes.protocol.errors import ASCIIResponse
from routes.protocol.route import Route, tagged
from routes.services import services_of

MOST_PROBLEMS = 200


async def show_knowledge(request: Request) -> Response:
    """The index of [knowledge](knowledge.md). What is indexed in each workspace, what waits, and what cannot be."""
    services = services_of(request)
    knowledge = services.factory.knowledge
    fields: dict[str, Any] = {"folders": list(services.settings.knowledge), "embedder": None}
    if knowledge is None:
        return ASCIIResponse(fields | {"places": [], "problems": []})
    return ASCIIResponse(services.redactor.redact_value(fields | await asyncio.to_thread(_state, knowledge)))


def _state(knowledge: Knowledge) -> dict[str, Any]:
    index, indexer = knowledge.index, knowledge.indexer
    embedder = indexer.embedder.name if indexer.embedder else None

    def shown(place: str) -> str:
        return place if place.startswith(f"{DOCUMENTS}:") else os.path.relpath(place, indexer.root)

    counted = index.counts(embedder or "")
    names = "files", "passages", "embedded"
    places = [
        {"place": shown(one), **dict(zip(names, counted.get(one, (0, 0, 0)), strict=True))}
        | {"pending": indexer.pending.get(one, 0)}
        for one in sorted(counted.keys() | indexer.pending.keys())
    ]
    problems = [
        {"place": shown(place), "path": path, "reason": reason} for place, path, reason in index.problems(MOST_PROBLEMS)
    ]
    return {"embedder": embedder, "places": places, "problems": problems}


ROUTES = tagged(
    "Server",
    Route(
        "GET /knowledge",
        show_knowledge,
        rights="admin",
        answer={"folders": ["text"], "embedder": "text?", "places": ["object"], "problems": ["object"]},
        errors=(503,),
    ),
)
