"""A file as an answer: whole or one range of it (RFC 9110, section 14), read in blocks and never run by a browser."""

from __future__ import annotations

import asyncio
import os
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.storage.files.kinds import PICTURES
from app.workspace.open_file import OpenFile
from routes.protocol.errors import SAFE_HEADERS, Refused
from tools.base.patterns import lazy_pattern

# A page of the sandbox has no origin, so nothing in it reaches this server as its page does.
SANDBOXED = {"Content-Security-Policy": f"{SAFE_HEADERS['Content-Security-Policy']}; sandbox"}
BLOCK = 262_144
_RANGE = lazy_pattern(r"bytes=(\d{0,18})-(\d{0,18})")


def range_of(header: str, size: int) -> range | None:
    """Return the places of the bytes that are wanted, None where the whole is sent. Raises Refused with 416."""
    found = _RANGE.fullmatch(header.strip())
    if not found or not (found[1] or found[2]):
        return None  # several, or of another unit
    if found[1]:
        start, end = int(found[1]), min(int(found[2] or size) + bool(found[2]), size)
        if found[2] and int(found[2]) < int(found[1]):
            return None
    else:
        start, end = max(0, size - int(found[2])), size
    if start >= end:
        message = f"The file has {size:,} bytes. Ask for some of them, or for all."
        raise Refused(416, "invalid_range", message, {"Content-Range": f"bytes */{size}"})
    return range(start, end)


class FileAnswer(Response):
    """Closes the file when it has been sent, and when the client has left."""

    def __init__(self, request: Request, file: OpenFile) -> None:
        wanted, condition = request.headers.get("range", ""), request.headers.get("if-range")
        etag = f'"{file.tag}"'
        part = range_of(wanted, file.size) if wanted and condition in (None, etag) else None
        super().__init__(status_code=206 if part else 200, headers=headers_of(file, etag))
        self._file, self._part = file, part or range(file.size)
        self.headers["Content-Length"] = str(self._part.stop - self._part.start)
        if part:
            self.headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{file.size}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            at = self._part.stop if scope["method"] == "HEAD" else self._part.start
            request = Request(scope, receive)
            while at < self._part.stop and not await request.is_disconnected():
                size = min(BLOCK, self._part.stop - at)
                block = await asyncio.to_thread(os.pread, self._file.handle, size, at)
                if not block:
                    return  # it has become shorter: the connection is closed, which says that this is not all
                at += len(block)
                await send({"type": "http.response.body", "body": block, "more_body": at < self._part.stop})
            if scope["method"] == "HEAD" or self._part.start == self._part.stop:
                await send({"type": "http.response.body", "body": b""})
        finally:
            os.close(self._file.handle)


def headers_of(file: OpenFile, etag: str) -> dict[str, str]:
    """Pictures and text, as plain text, are shown where they are; all else is saved."""
    shown = file.is_text or file.media_type in PICTURES
    plain = "".join(one if one.isascii() and one.isprintable() and one not in '"\\' else "_" for one in file.name)
    encoded = quote(file.name.encode(errors="replace"), safe="")
    disposition = f"{'inline' if shown else 'attachment'}; filename=\"{plain}\"; filename*=UTF-8''{encoded}"
    media_type = "text/plain; charset=utf-8" if file.is_text else file.media_type
    return {
        "Content-Type": media_type,
        "Content-Disposition": disposition,
        "Accept-Ranges": "bytes",
        "ETag": etag,
    } | SANDBOXED
