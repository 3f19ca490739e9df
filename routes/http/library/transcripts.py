"""Conversations of other programs come in, and those of here leave as files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from app.core.messages import shown
from routes.http.library.listing import write_list
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.file_answer import SANDBOXED
from routes.protocol.raw_body import BodyLimits, read_body
from routes.protocol.redaction_middleware import REDACTED
from routes.protocol.route import Query, Route, tagged
from routes.services import current_principal, services_of
from routes.transcripts.exports import EXPORTS, exported
from routes.transcripts.formats import FORMATS, MOST_BYTES, Skipped, transcripts_of
from routes.transcripts.importing import Importer
from tools.base.patterns import lazy_pattern

WORDS = lazy_pattern(r"\w+")
MOST_PARTS = 2_000_000
ONE_BY_ONE = "Send the conversations that you need one by one."
TOO_LONG = f"A transcript may have {MOST_BYTES >> 20} MB. {ONE_BY_ONE}"
TOO_MANY = f"A transcript may have {MOST_PARTS:,} values. {ONE_BY_ONE}"


async def import_sessions(request: Request) -> Response:
    """Import the conversations of another program's file.

    Each becomes a session that goes on here, or what is new in it joins the session that it became earlier. Its calls
    are history, and all of it is untrusted. What cannot be read is skipped. See [import](import.md).
    """
    services, principal = services_of(request), current_principal(request)
    kind, skipped = _chosen(request, FORMATS), Skipped()
    async with AsyncExitStack() as held:
        usual = services.settings.max_message_bytes
        data = await read_body(request, BodyLimits(usual, MOST_BYTES, MOST_PARTS, TOO_LONG, TOO_MANY), held, 300)
        found = await asyncio.to_thread(transcripts_of, kind, data, skipped)
        importer = Importer(services, principal, kind, skipped)
        done = [one | {"left_out": each.left_out} for each in found if (one := await importer.put(each))]
    if not done:
        raise Refused(422, "unknown_transcript", f"No message of the file can be read. {skipped[0]['reason']}")
    await write_list(services, principal.name, [])
    return ASCIIResponse({"sessions": done, "skipped": skipped})


async def export_session(request: Request) -> Response:
    """A conversation as a file.

    `markdown`, `html` (one file that reads nothing from elsewhere), `responses` (the input of a request to
    `/v1/responses`) or `json`.
    """
    services = services_of(request)
    row = await services.runs.session(request.path_params["session"], current_principal(request))
    export = EXPORTS[_chosen(request, EXPORTS, "markdown")]
    language = {"LANG": request.headers.get("accept-language", "").partition(",")[0].replace("-", "_")}
    one = await exported(services.store, row, services.redactor, shown)
    written = await asyncio.to_thread(export.write, one, language)
    setattr(request.state, REDACTED, True)
    name = "-".join(WORDS.findall(one["title"]))[:60] or row.id
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}.{export.ending}"} | SANDBOXED
    return Response(written.encode(errors="replace"), media_type=export.media_type, headers=headers)


def _chosen(request: Request, formats: Mapping[str, object], usual: str = "") -> str:
    if (kind := request.query_params.get("format", usual)) not in formats:
        raise Refused(400, "invalid_query", f"format: {kind[:40]!a} is none of {', '.join(formats)}")
    return kind


ROUTES = tagged(
    "Sessions",
    Route(
        "POST /sessions/import",
        import_sessions,
        rights="user",
        answer={"sessions": ["object"], "skipped": ["object"]},
        errors=(408, 413, 422),
        takes_file=True,
        query=(Query("format", ", ".join(FORMATS), required=True),),
    ),
    Route(
        "GET /sessions/{session}/export",
        export_session,
        rights="owner",
        media=tuple(dict.fromkeys(one.media_type for one in EXPORTS.values())),
        query=(Query("format", f"{', '.join(EXPORTS)}; the first of them by default"),),
    ),
)
