"""The memories of a principal: listed, searched, added, edited and deleted by their owner."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator
from starlette.requests import Request
from starlette.responses import Response

from app.core.strict_model import StrictModel
from app.memory.limits import MOST_BYTES, MOST_PAGE
from app.memory.memories import Source
from app.storage.memories import MemoryFilter, MemoryRow
from app.transcript.run_request import NotFound
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.numbers import query_number
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Query, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.access import FACT

LISTED = 50  # memories of one answer that asks for no number
LONGEST_QUERY = 1_000  # characters
MOST_BODY = 16 * MOST_BYTES  # with JSON's escapes
SHOWN = ("id", "kind", "text", "untrusted", "author", "created", "updated")
TRUTH = {"true": True, "false": False}


class NewMemory(StrictModel):
    """The body of POST /memory."""

    text: str
    kind: str = FACT


class MemoryEdit(StrictModel):
    """The body of PATCH /memory/{id}."""

    text: str | None = None
    kind: str | None = None
    untrusted: bool | None = None

    @model_validator(mode="after")
    def _sensible(self) -> MemoryEdit:
        if self.text is None and self.kind is None and self.untrusted is None:
            raise ValueError("send text, kind, untrusted or several of them")
        return self


async def list_memories(request: Request) -> Response:
    """Your memories, the latest changed first. Or the best matches of `q`. See [memory](memory.md#over-http)."""
    services, owner = services_of(request), current_principal(request).name
    limit = query_number(request, "limit", LISTED, least=1, most=MOST_PAGE)
    query, before = request.query_params.get("q", "").strip(), request.query_params.get("before")
    if query:
        return ASCIIResponse({"memories": await _found(services, owner, query, limit), "next": None})
    if before is not None:
        await _memory(services, request, before)
    only = MemoryFilter(request.query_params.get("session"), _truth(request, "untrusted"))
    rows = await services.store.memories(owner, limit + 1, before, only)
    following = rows[limit - 1].id if len(rows) > limit else None
    total = await services.store.memory_count(owner, only)
    return ASCIIResponse(
        {"memories": [_fields(services, row) for row in rows[:limit]], "next": following}
        | {"total": total, "enabled": services.settings.memory}
    )


async def _found(services: Services, owner: str, query: str, limit: int) -> list[dict[str, Any]]:
    """Each with `similarity`, null where it was found by words only."""
    if len(query) > LONGEST_QUERY:
        raise Refused(400, "invalid_query", f"q is longer than {LONGEST_QUERY:,} characters; search for fewer words")
    found = await services.factory.memories.search(owner, query, limit)
    return [_fields(services, one.row) | {"similarity": one.similarity} for one in found]


async def add_memory(request: Request) -> Response:
    """Add a memory. 201 for a new one, 200 for one with this text that was there."""
    services, owner = services_of(request), current_principal(request).name
    body = await read_fields(request, NewMemory, MOST_BODY)
    row, is_new = await services.factory.memories.remember(owner, body.text, body.kind, Source())
    return ASCIIResponse(_fields(services, row), status_code=201 if is_new else 200)


async def show_memory(request: Request) -> Response:
    """A memory."""
    services = services_of(request)
    return ASCIIResponse(_fields(services, await _memory(services, request, request.path_params["memory"])))


async def edit_memory(request: Request) -> Response:
    """Edit a memory. `text`, `kind` and `untrusted`, or some of them."""
    services = services_of(request)
    row = await _memory(services, request, request.path_params["memory"])
    body = await read_fields(request, MemoryEdit, MOST_BODY)
    try:
        row = await services.factory.memories.edit(row, text=body.text, kind=body.kind, untrusted=body.untrusted)
    except KeyError:
        raise _unknown(row.id) from None
    return ASCIIResponse(_fields(services, row))


async def delete_memory(request: Request) -> Response:
    """Delete a memory."""
    services = services_of(request)
    await services.factory.memories.delete(await _memory(services, request, request.path_params["memory"]))
    return Response(status_code=204)


async def delete_memories(request: Request) -> Response:
    """Delete the memories of a session, or all. The answer says how many."""
    services, owner = services_of(request), current_principal(request).name
    session, everything = request.query_params.get("session"), _truth(request, "all")
    if bool(session) == bool(everything):
        raise Refused(400, "invalid_query", "send ?session=ID for those of one conversation, or ?all=true for all")
    return ASCIIResponse({"deleted": await services.factory.memories.delete_many(owner, session or None)})


def _truth(request: Request, name: str) -> bool | None:
    given = request.query_params.get(name)
    if given is not None and given not in TRUTH:
        raise Refused(400, "invalid_query", f"{name} is {given[:40]!a}; send true or false")
    return None if given is None else TRUTH[given]


async def _memory(services: Services, request: Request, memory: str) -> MemoryRow:
    """The memory, for its owner. Raises NotFound for others."""
    row = await services.store.memory(memory)
    if row is None or row.owner != current_principal(request).name:
        raise _unknown(memory)
    return row


def _unknown(memory: str) -> NotFound:
    return NotFound(f"There is no memory {memory[:80]!r}. GET /memory lists them.")


def _fields(services: Services, row: MemoryRow) -> dict[str, Any]:
    source = {"session": row.session, "run": row.run, "message": row.message} if row.run else None
    fields = {name: getattr(row, name) for name in SHOWN} | {"labels": sorted(row.label_names), "source": source}
    return dict(services.redactor.redact_value(fields))


ROUTES = tagged(
    "Memory",
    Route(
        "GET /memory",
        list_memories,
        rights="user",
        answer={"memories": ["@Memory"], "next": "text?", "total": "integer", "enabled": "boolean"},
        query=(
            Query("q", "words; the best matches come first"),
            Query("before", "`next` of the page before"),
            Query("session", "only those of this session"),
            Query("untrusted", "only those from untrusted text, or only others", "boolean"),
            Query("limit", "at most so many", "integer"),
        ),
    ),
    Route(
        "POST /memory",
        add_memory,
        rights="user",
        answer="@Memory",
        statuses=(200, 201),
        errors=(409,),
        body=Body(NewMemory, {"text": "Likes tea", "kind": "preference"}),
    ),
    Route(
        "DELETE /memory",
        delete_memories,
        rights="user",
        answer={"deleted": "integer"},
        query=(Query("session", "those of this session"), Query("all", "true deletes all", "boolean")),
    ),
    Route("GET /memory/{memory}", show_memory, rights="owner", answer="@Memory"),
    Route(
        "PATCH /memory/{memory}",
        edit_memory,
        rights="owner",
        answer="@Memory",
        errors=(409,),
        body=Body(MemoryEdit, {"text": "Likes green tea"}),
    ),
    Route("DELETE /memory/{memory}", delete_memory, rights="owner"),
)
