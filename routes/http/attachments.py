"""GET /sessions/{session}/files/{sha256}: the bytes of a file, for the session's owner."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.storage.files.kinds import PICTURES, UnknownKind, kind_of
from app.transcript.run_request import NotFound
from routes.protocol.file_answer import SANDBOXED
from routes.protocol.route import Route, tagged
from routes.services import current_principal, services_of

UNKNOWN = "application/octet-stream"


async def show_file(request: Request) -> Response:
    """A file of its messages, or a picture of its results.

    Pictures are shown where they are; a PDF, which a viewer would run, and what MCP servers sent, are downloads.
    """
    services, sha256 = services_of(request), request.path_params["sha256"]
    session = await services.runs.session(request.path_params["session"], current_principal(request))
    data = await services.store.file(sha256, session.id)
    if data is None:
        raise NotFound(f"Session {session.id} has no file {sha256!r}. GET /sessions/{session.id} lists them.")
    media_type = media_type_of(data)
    how = "inline" if media_type in PICTURES else "attachment"
    name = f"{sha256[:16]}.{'bin' if media_type == UNKNOWN else media_type.partition('/')[2]}"
    headers = {"Content-Disposition": f'{how}; filename="{name}"'} | SANDBOXED
    return Response(data, media_type=media_type, headers=headers)


def media_type_of(data: bytes) -> str:
    """By the bytes alone; of what is no picture and no PDF nothing is claimed."""
    try:
        return kind_of(data).media_type
    except UnknownKind:
        return UNKNOWN


ROUTES = tagged(
    "Sessions",
    Route("GET /sessions/{session}/files/{sha256}", show_file, rights="owner", media=("application/octet-stream",)),
)
