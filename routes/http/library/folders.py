"""/folders: the folders of a principal's list of conversations."""

from __future__ import annotations

import asyncio
import time
from secrets import token_hex

from msgspec.structs import replace
from pydantic import Field, field_validator
from starlette.requests import Request
from starlette.responses import Response

from app.core.strict_model import StrictModel
from app.storage.library.folders import FolderEmptied, FolderRemoved, FolderRenamed, FolderRow
from app.transcript.titles import one_line
from routes.http.library.listing import folder_fields, folder_of, folders_of, write_list
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, current_principal, services_of

MOST_FOLDERS = 100
LONGEST_NAME = 80  # visible characters
MOST_WRITTEN = 1_000  # characters, invisible ones included
MOST_BYTES = 16 * 1024

_changing = asyncio.Lock()  # else two requests might both find the last room


class FolderRequest(StrictModel):
    """The body of POST /folders and PATCH /folders/{id}."""

    name: str = Field(max_length=MOST_WRITTEN)

    @field_validator("name")
    @classmethod
    def _visible(cls, name: str) -> str:
        name = one_line(name)
        if not 1 <= len(name) <= LONGEST_NAME:
            raise ValueError(f"has {len(name)} visible characters; send 1 to {LONGEST_NAME}")
        return name


async def list_folders(request: Request) -> Response:
    """The folders of your list of conversations.

    By name, each with the number of its `sessions`, without archived ones.
    """
    return ASCIIResponse({"folders": await folders_of(services_of(request), current_principal(request).name)})


async def add_folder(request: Request) -> Response:
    """Add a folder. A name has 80 characters at most, the list 100 folders; 409 `name_taken` or `too_many_folders`."""
    services, principal = services_of(request), current_principal(request).name
    body = await read_fields(request, FolderRequest, MOST_BYTES)
    async with _changing:
        if len(await services.store.folders(principal)) >= MOST_FOLDERS:
            raise Refused(409, "too_many_folders", f"There are {MOST_FOLDERS} folders. Delete one first.")
        await _check_name(services, principal, body.name)
        row = FolderRow(f"fld_{token_hex(10)}", principal, body.name, time.time())
        await write_list(services, principal, [row])
    return ASCIIResponse(folder_fields(row, {}), 201)


async def rename_folder(request: Request) -> Response:
    """Rename a folder."""
    services, principal = services_of(request), current_principal(request).name
    await folder_of(services, principal, request.path_params["folder"])
    body = await read_fields(request, FolderRequest, MOST_BYTES)
    async with _changing:
        row = await folder_of(services, principal, request.path_params["folder"])
        await _check_name(services, principal, body.name, besides=row.id)
        await write_list(services, principal, [FolderRenamed(row.id, body.name)])
    sizes = await services.store.folder_sizes(principal)
    return ASCIIResponse(folder_fields(replace(row, name=body.name), sizes))


async def delete_folder(request: Request) -> Response:
    """Delete a folder, not its conversations. They are in no folder then."""
    services, principal = services_of(request), current_principal(request).name
    row = await folder_of(services, principal, request.path_params["folder"])
    await write_list(services, principal, [FolderEmptied(row.id), FolderRemoved(row.id)])
    return Response(status_code=204)


async def _check_name(services: Services, principal: str, name: str, besides: str = "") -> None:
    rows = await services.store.folders(principal)
    if any(row.name.casefold() == name.casefold() and row.id != besides for row in rows):
        raise Refused(409, "name_taken", f"There is a folder {name!r} already. Choose another name.")


ROUTES = tagged(
    "Sessions",
    Route("GET /folders", list_folders, rights="user", answer={"folders": ["@Folder"]}),
    Route(
        "POST /folders",
        add_folder,
        rights="user",
        answer="@Folder",
        statuses=(201,),
        errors=(409,),
        body=Body(FolderRequest, {"name": "Travel"}),
    ),
    Route(
        "PATCH /folders/{folder}",
        rename_folder,
        rights="owner",
        answer="@Folder",
        errors=(409,),
        body=Body(FolderRequest, {"name": "Travel"}),
    ),
    Route("DELETE /folders/{folder}", delete_folder, rights="owner"),
)
