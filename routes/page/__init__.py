"""The page: files that any browser may have, because nothing in them is a secret; what they show needs a token."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from routes.errors import Refused

FOLDER = Path(__file__).parent
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Whatever a model writes, the browser runs no script but these files, makes no HTML of text, and asks nobody else.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-cache",  # asked for again each time, answered by 304 as a rule
    "Vary": "Accept, Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class File:
    kind: str
    body: bytes
    small: bytes
    tag: str


@cache
def files() -> dict[str, File]:
    """All files of the page by their path below the folder, read once."""
    found = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.suffix in KINDS}
    return {name: _read(path) for name, path in found.items()}


def _read(path: Path) -> File:
    body = path.read_bytes()
    return File(KINDS[path.suffix], body, gzip.compress(body, mtime=0), f'"{hashlib.sha256(body).hexdigest()[:32]}"')


async def asset(request: Request) -> Response:
    return answer(request, request.path_params["path"])


def wants_page(request: Request) -> bool:
    """Whether a browser asks, rather than curl or a program."""
    return "text/html" in request.headers.get("accept", "")


def answer(request: Request, name: str) -> Response:
    """One of the page's files. Raises Refused."""
    file = files().get(name)
    if file is None:
        raise Refused(404, "not_found", f"The page has no file {name[:80]!a}.")
    headers = HEADERS | {"ETag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.small, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.kind)
    return Response(file.body, headers=headers, media_type=file.kind)
