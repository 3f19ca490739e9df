"""Documents of a session: read, edited by the person, their suggestions decided, downloaded."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote

from msgspec.structs import asdict
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from app.core.strict_model import StrictModel
from app.documents.library import Gone, Moved, NotDecidable
from app.documents.limits import UnfitDocument
from app.storage.documents import MOST_CHARACTERS, OPEN, DocumentRow, SuggestionRow, VersionRow
from app.transcript.run_request import NotFound
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.file_answer import SANDBOXED
from routes.protocol.numbers import whole_number
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Query, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.patterns import lazy_pattern

MOST_BYTES = 4 * MOST_CHARACTERS
ABOUT = ("id", "session", "title", "kind", "version", "created", "updated")  # of a document's row
SUGGESTION = ("number", "version", "old", "new", "reason", "state", "created", "decided")
EXTENSIONS = {"markdown": "md", "python": "py", "javascript": "js", "typescript": "ts", "plain": "txt", "rust": "rs"}
_EXTENSION = lazy_pattern(r"[a-z0-9]{1,10}")


class DocumentRequest(StrictModel):
    """The body of PUT /documents/{id}: `version` is the one that was edited."""

    version: int = Field(ge=1)
    text: str | None = None
    title: str | None = Field(default=None, max_length=2_000)

    @model_validator(mode="after")
    def _sensible(self) -> DocumentRequest:
        if self.text is None and self.title is None:
            raise ValueError("send text, title or both")
        return self


class SuggestionRequest(StrictModel):
    """The body of POST /documents/{id}/suggestions/{number}."""

    decision: Literal["accept", "reject"]


async def list_documents(request: Request) -> Response:
    """The documents of a session. Oldest first, without their texts. See [documents](#documents-of-a-session)."""
    services = services_of(request)
    session = await services.runs.session(request.path_params["session"], current_principal(request))
    rows = await services.store.documents(session.id)
    return ASCIIResponse({"documents": [await _about(services, row) for row in rows]})


async def show_document(request: Request) -> Response:
    """A document. With its text and its open suggestions."""
    services = services_of(request)
    row = await _document(services, request)
    version = await _version(services, request, row)
    suggestions = [suggestion_fields(one) for one in await _open(services, row)]
    shown = {"shown": version.version, "author": version.author, "run": version.run or None, "text": version.text}
    fields = await _about(services, row) | shown | {"suggestions": suggestions}  # `shown`: the version of the text
    return ASCIIResponse(services.redactor.redact_value(fields))


async def list_versions(request: Request) -> Response:
    """The versions that are kept. Newest first, without their texts."""
    services = services_of(request)
    row = await _document(services, request)
    versions = [asdict(one) | {"run": one.run or None} for one in await services.store.document_versions(row.id)]
    return ASCIIResponse({"document": row.id, "versions": versions})


async def save_document(request: Request) -> Response:
    """Store an edit as a new version.

    The person's `text`, another `title`, or both; 409 `document_changed` with the current `version` if it has moved on.
    """
    services = services_of(request)
    row = await _document(services, request)
    body = await read_fields(request, DocumentRequest, MOST_BYTES)
    try:
        row = await services.runs.documents.save(row, body.version, body.text, body.title)
    except Gone:
        raise _unknown(row.id) from None
    except Moved as moved:
        raise Refused(409, "document_changed", str(moved), version=moved.row.version) from None
    except UnfitDocument as unfit:
        raise Refused(422, "invalid_request", str(unfit)) from None
    return ASCIIResponse(await _about(services, row))


async def decide(request: Request) -> Response:
    """Accept or reject a suggestion. An accepted one makes a new version; 409 `suggestion_decided`."""
    services = services_of(request)
    row = await _document(services, request)
    body = await read_fields(request, SuggestionRequest)
    number = whole_number(request.path_params["number"])
    try:
        decided = await services.runs.documents.decide(
            row, -1 if number is None else number, accept=body.decision == "accept"
        )
    except Gone:
        raise _unknown(row.id) from None
    except KeyError:
        raise NotFound(f"Document {row.id} has no such suggestion. GET /documents/{row.id} lists them.") from None
    except (NotDecidable, UnfitDocument) as reason:
        raise Refused(409, "suggestion_decided", str(reason)) from None
    return ASCIIResponse(await _about(services, decided.row) | {"suggestion": suggestion_fields(decided.suggestion)})


async def download(request: Request) -> Response:
    """The text as a download. A browser saves it and never shows it."""
    services = services_of(request)
    row = await _document(services, request)
    version = await _version(services, request, row)
    name = f"{row.title}.{extension_of(row.kind)}".replace("/", "_")
    disposition = f"attachment; filename*=UTF-8''{quote(name.encode(errors='replace'), safe='')}"
    text = services.redactor.redact(version.text)
    return Response(
        text.encode(),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": disposition} | SANDBOXED,
    )


def extension_of(kind: str) -> str:
    return EXTENSIONS.get(kind) or (kind if _EXTENSION.fullmatch(kind) else "txt")


async def _document(services: Services, request: Request) -> DocumentRow:
    """The document, for the owner of its session. Raises NotFound for others."""
    document = request.path_params["document"]
    row = await services.store.document(document)
    owner = await services.store.owner_of(row.session) if row else None
    if row is None or owner != current_principal(request).name:
        raise _unknown(document)
    return row


def _unknown(document: str) -> NotFound:
    return NotFound(f"There is no document {document[:80]!r}. GET /sessions/{{id}}/documents lists those of a session.")


async def _version(services: Services, request: Request, row: DocumentRow) -> VersionRow:
    given = request.query_params.get("version")
    number = row.version if given is None else whole_number(given)
    version = await services.store.document_version(row.id, number) if number else None
    if version is None:
        raise NotFound(f"Document {row.id} has no such version. GET /documents/{row.id}/versions lists those kept.")
    return version


async def _open(services: Services, row: DocumentRow) -> list[SuggestionRow]:
    return [one for one in await services.store.suggestions(row.id) if one.state == OPEN]


async def _about(services: Services, row: DocumentRow) -> dict[str, Any]:
    """`version` is the latest, `open_suggestions` their number."""
    about = {name: getattr(row, name) for name in ABOUT}
    return about | {"open_suggestions": len(await _open(services, row))}


def suggestion_fields(one: SuggestionRow) -> dict[str, Any]:
    return {name: getattr(one, name) for name in SUGGESTION}


VERSION = Query("version", "an older version; without it the latest", "integer")
ROUTES = (
    *tagged(
        "Sessions",
        Route("GET /sessions/{session}/documents", list_documents, rights="owner", answer={"documents": ["@Document"]}),
    ),
    *tagged(
        "Documents",
        Route("GET /documents/{document}", show_document, rights="owner", answer="@ShownDocument", query=(VERSION,)),
        Route(
            "PUT /documents/{document}",
            save_document,
            rights="owner",
            answer="@Document",
            errors=(409,),
            body=Body(DocumentRequest, {"version": 1, "text": "# Trip"}),
        ),
        Route(
            "GET /documents/{document}/versions",
            list_versions,
            rights="owner",
            answer={"document": "text", "versions": ["object"]},
        ),
        Route(
            "GET /documents/{document}/file",
            download,
            rights="owner",
            query=(VERSION,),
            media=("text/plain", "text/markdown"),
        ),
        Route(
            "POST /documents/{document}/suggestions/{number}",
            decide,
            rights="owner",
            answer={"id": "text", "version": "integer", "suggestion": "@Suggestion"},
            errors=(409,),
            body=Body(SuggestionRequest, {"decision": "accept"}),
        ),
    ),
)
