"""Parts of the list of conversations: what is pinned, archived or in a folder, and what a search has found."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from starlette.requests import Request

from app.core.profile_spec import MODE_NAMES, modes_in
from app.storage.changes import Change
from app.storage.library.folders import FolderRow, ListChanged, SessionArchived, SessionMoved, SessionPinned, Shelf
from app.storage.search_words import words_of
from app.storage.sessions import FoundSession, SessionRow, SessionTitle
from app.transcript.run_request import NotFound
from app.transcript.titles import places_of, snippet
from routes.protocol.errors import Refused
from routes.protocol.requests import SessionRequest
from routes.services import Services

FLAGS = {"true": True, "false": False}


def session_fields(row: SessionRow, busy: Collection[str]) -> dict[str, Any]:
    """A session as JSON. `busy`: ids of sessions that have a run."""
    used = {"created": row.created, "updated": row.updated, "running": row.id in busy}
    place = {"pinned": bool(row.pinned), "archived": bool(row.archived), "folder": row.folder or None}
    options = {name: value for name, value in json.loads(row.options).items() if name not in MODE_NAMES}
    narrowed = {"disabled_tools": json.loads(row.disabled), "profile": options.pop("profile", None), "options": options}
    return {"id": row.id, "title": row.title} | used | place | narrowed | modes_in(row.options)


def folder_fields(row: FolderRow, sizes: dict[str, int]) -> dict[str, Any]:
    return {"id": row.id, "name": row.name, "created": row.created, "sessions": sizes.get(row.id, 0)}


def found_fields(found: FoundSession, query: str) -> dict[str, Any]:
    """The part of the message that has the words, and the run to jump to; empty where only the title has them."""
    words = words_of(query)
    part = snippet(found.text, words)
    title, marks = places_of(found.session.title, words), places_of(part, words)
    return {"snippet": part, "marks": marks, "title_marks": title, "run": found.run or None}


async def shelf_of(services: Services, request: Request, principal: str) -> Shelf | None:
    """The part of the list that the query asks for; None for all of it. Raises Refused, NotFound."""
    query = request.query_params
    flags = {name: _flag(query[name], name) for name in ("archived", "pinned") if name in query}
    folder = query.get("folder")
    if folder is not None:
        await folder_of(services, principal, folder)
    return Shelf(folder, **flags) if flags or folder is not None else None


def _flag(given: str, name: str) -> bool:
    if given not in FLAGS:
        raise Refused(400, "invalid_query", f"{name}: {given[:40]!a} is neither true nor false")
    return FLAGS[given]


async def folder_of(services: Services, principal: str, folder: str) -> FolderRow:
    """Raises NotFound."""
    for row in await services.store.folders(principal):
        if row.id == folder:
            return row
    raise NotFound(f"There is no folder {folder[:80]!r}. GET /folders lists yours.")


async def folders_of(services: Services, principal: str) -> list[dict[str, Any]]:
    """The folders of a principal, by name, each with the number of its conversations. Raises StoreFailed."""
    rows, sizes = await services.store.folders(principal), await services.store.folder_sizes(principal)
    return [folder_fields(row, sizes) for row in sorted(rows, key=lambda row: (row.name.casefold(), row.id))]


async def place_changes(services: Services, row: SessionRow, body: SessionRequest) -> list[Change]:
    """The changes of its title and its place in the list that a request asks for, of all branches of a conversation.

    Raises NotFound, StoreFailed.
    """
    changes: list[Change] = []
    if body.moves and body.folder:
        await folder_of(services, row.principal, body.folder)
    others = await services.store.other_branches([row.id])
    for session in (row.id, *others.get(row.id, ())):
        if body.title is not None:
            changes.append(SessionTitle(session, body.title))
        if body.pinned is not None:
            changes.append(SessionPinned(session, body.pinned))
        if body.archived is not None:
            changes.append(SessionArchived(session, body.archived))
        if body.moves:
            changes.append(SessionMoved(session, body.folder or ""))
    return changes


async def write_list(services: Services, principal: str, changes: Sequence[Change]) -> None:
    """Write changes of a principal's list, and let pages that show it read it again. Raises StoreFailed."""
    await services.store.write([*changes, ListChanged(principal)])
    services.runs.notifier.notify(principal)
