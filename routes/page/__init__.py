"""The page: files that any browser may have, because nothing in them is a secret; what they show needs a token."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from anyio import to_thread
from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from routes.page.joined import ALONE, DECIDE, FIRST, TURNS, Modules
from routes.page.vendored import VENDOR, table_digest, vendored_body
from routes.protocol.errors import Refused
from routes.protocol.route import Route, tagged
from routes.texts import Table, languages, page_table
from tools.base.patterns import lazy_pattern
from tools.mcp.definitions import ORIGIN

FOLDER = Path(__file__).parent
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "text/json; charset=utf-8",  # application/json is an answer of the API, in which secrets are looked for
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
VENDORED_KINDS = KINDS | {
    ".mjs": KINDS[".js"],
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
# Whatever a model writes, the browser runs only these scripts, makes no HTML of text, and connects to no other host.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "font-src 'self'",
        "connect-src 'self'",
        "frame-src 'self'",  # frame/artefact.html: all other answers of the server are shown in no frame
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types push-worker highlight-worker feed-worker",  # which make no addresses but those of the workers
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    # Browsers look up the hosts of links before anybody follows one: a name could carry what a model has read.
    "X-DNS-Prefetch-Control": "off",
}
# What is no document runs and shows nothing by itself: a hundred files need not carry all of it.
PART = {"Content-Security-Policy": "default-src 'none'"}
# A worker has the policy that its own file came with.
WORKERS = {
    "js/text/highlight_worker.js": {"Content-Security-Policy": "default-src 'none'; script-src 'self'"},
    "js/feed/feed_worker.js": {"Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'"},
    "js/notifications/push_worker.js": {
        "Content-Security-Policy": "default-src 'none'; connect-src 'self'",
        "Service-Worker-Allowed": "/",  # of the installed page, for the page that says that the server is not there
    },
}
# Documents of models in a frame: their own scripts and styles, and nothing that leaves it. `Connection-Allowlist` is
# for what content policies do not see: WebRTC, preconnects, host names, the frame's own navigation.
FRAME = "frame/artefact.html"
FRAME_POLICY = "; ".join(
    (
        "default-src 'none'",
        "connect-src{connect}",
        "script-src 'unsafe-inline' 'unsafe-eval'{resource}",
        "style-src 'unsafe-inline'{resource}",
        "img-src data: blob:{resource}",
        "font-src data:{resource}",
        "media-src data: blob:{resource}",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'self'",
        "sandbox allow-scripts allow-forms",  # for the event `submit`: `form-action` lets none out
        "require-trusted-types-for 'script'",  # what becomes HTML is read for frames first
        "trusted-types own default",
    )
)
DEVICES = (
    *("accelerometer", "autoplay", "camera", "clipboard-read", "clipboard-write", "display-capture"),
    *("encrypted-media", "fullscreen", "geolocation", "gyroscope", "hid", "microphone", "midi", "payment"),
    *("picture-in-picture", "publickey-credentials-get", "screen-wake-lock", "serial", "usb"),
)
OFFLINE = {"Connection-Allowlist": "()"}
FRAME_HEADERS = {
    "Connection-Allowlist": "({allowed})",
    "Content-Security-Policy": FRAME_POLICY,
    "Permissions-Policy": ", ".join(f"{name}=()" for name in DEVICES),
    "X-DNS-Prefetch-Control": "off",
}
# An empty page by which a browser shows that it heeds `Connection-Allowlist`: its content policy would allow what the
# other header refuses.
PROBE = "frame/probe.html"
PROBE_HEADERS = OFFLINE | {"Content-Security-Policy": "default-src 'none'; connect-src 'self'; frame-ancestors 'self'"}
OWN_HEADERS = WORKERS | {PROBE: PROBE_HEADERS}
DOCUMENTS = (".html", ".svg")
ASK_AGAIN = "no-cache"  # each time, which 304 answers as a rule
FOR_EVER = "public, max-age=31536000, immutable"
INDEX = "index.html"
SHARED = "shared.html"  # the page of a shared conversation, which only reads
OTHERS = (SHARED, "decide.html")  # pages beside the index; a push message opens the second one
STYLES = "page.css"  # all styles in one file, in the order of the index: a browser draws nothing before it has them
STYLE = lazy_pattern(rb' *<link rel="stylesheet" href="/page/([^"]+)" />\n')
TITLE, LINK = b"</title>\n", b'    <link rel="stylesheet" href="/page/page.css" />\n'
PLACE = b'"/page/'  # what the index has in front of the name of a file
VERSION = lazy_pattern(r"([0-9a-f]{16})/")
COMMENTS = lazy_pattern(rb"^[ \t]*(?:/\*(?:(?!\*/).)*\*/[ \t]*$|//[^\n]*$)", re.MULTILINE | re.DOTALL)
# No text of a script goes over several lines (tests/house has it): what a quote follows may be within one.
INDENT = lazy_pattern(rb"^[ \t]+", re.MULTILINE)
REMARKS = lazy_pattern(rb"[ \t]+// [^\n\"'`]*$", re.MULTILINE)
NOT_WANTED = lazy_pattern(r"\s*q=0(\.0*)?\s*")
# Whole keys, as in `t("a.b")`; and the beginnings of keys that are put together: `a.${b}` and `ts("a", ...)` use all
# below "a.".
WHOLE = lazy_pattern(r"""["'`]([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_]+)+)["'`]""")
BEGUN = lazy_pattern(r"""["'`]([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_]+)*\.)[${]|\bts\(\s*["']([\w.]+)["']""")


class File(Struct, frozen=True):
    kind: str
    body: bytes
    small: bytes
    tag: str


@cache
def files() -> dict[str, File]:
    """The page's own files by their path below the folder, read once: a change takes a restart."""
    paths = [path for path in FOLDER.rglob("*") if path.suffix in KINDS and VENDOR not in path.parents]
    found = {path.relative_to(FOLDER).as_posix(): path for path in paths}
    bodies = {name: without_comments(path) for name, path in sorted(found.items())}
    modules = Modules({name: body for name, body in bodies.items() if name.endswith(".js")})
    texts = text_files(modules)
    bodies |= texts | modules.served(WORKERS, texts)
    index = bodies[INDEX]
    bodies[STYLES] = b"".join(bodies[name.decode()] for name in STYLE.findall(index))
    bodies[INDEX] = STYLE.sub(b"", index).replace(TITLE, TITLE + LINK)
    version = PLACE + version_of(bodies.values()).encode() + b"/"
    bodies |= {name: bodies[name].replace(PLACE, version) for name in (INDEX, *OTHERS, STYLES)}
    return {name: _file(Path(name).suffix, body) for name, body in bodies.items()}


@cache
def vendored(name: str) -> File | None:
    """A file of a library, packed when it is first asked for: some are large, and most days nobody needs them."""
    body = vendored_body(name) if name.startswith("vendor/") else None
    return None if body is None else _file(Path(name).suffix, body)


def without_comments(path: Path) -> bytes:
    """A fifth of what would travel is comments and indents; all lines keep their numbers."""
    text = path.read_bytes()
    if path.suffix not in (".js", ".css"):
        return text
    bare = INDENT.sub(b"", COMMENTS.sub(lambda found: b"\n" * found[0].count(b"\n"), text))
    return REMARKS.sub(b"", bare) if path.suffix == ".js" else bare


def version_of(bodies: Iterable[bytes]) -> str:
    """The version in the URLs of the page's files: browsers cache them until one has changed, and no page is mixed."""
    digest = hashlib.sha256()
    for body in bodies:
        digest.update(hashlib.sha256(body).digest())
    return hashlib.sha256(digest.digest() + table_digest()).hexdigest()[:16]


def _file(suffix: str, body: bytes) -> File:
    return File(VENDORED_KINDS[suffix], body, gzip.compress(body, mtime=0), hashlib.sha256(body).hexdigest()[:32])


async def asset(request: Request) -> Response:
    """A file of the page. The files contain no secrets. The name may have the version of the page in front."""
    path: str = request.path_params["path"]
    version = VERSION.match(path)
    name = path[version.end() :] if version else path
    if name.startswith("vendor/"):
        await to_thread.run_sync(vendored, name)  # some take a second to pack
    if version is None:
        return await _answer(request, path, ASK_AGAIN)
    await _pack()
    # A page that was loaded before an upgrade may come for the rest of it: it gets what there is now.
    current = PLACE + version[1].encode() in files()[INDEX].body
    return await _answer(request, name, FOR_EVER if current else ASK_AGAIN)


def wants_page(headers: Headers) -> bool:
    """Return whether the client is a browser, rather than curl or a program."""
    return "text/html" in headers.get("accept", "")


async def index(request: Request) -> Response:
    return await _answer(request, INDEX, ASK_AGAIN, "Accept, Accept-Encoding")


async def shared(request: Request, headers: Mapping[str, str], status: int = 200) -> Response:
    """The page of a shared conversation, which is never kept."""
    answer = await _answer(request, SHARED, "no-store", "Accept, Accept-Encoding")
    answer.headers.update(headers)
    if answer.status_code == 200:
        answer.status_code = status
    return answer


async def _pack() -> None:
    if not files.cache_info().currsize:
        await to_thread.run_sync(files)  # which takes more than a tenth of a second


async def _answer(request: Request, name: str, cache_control: str, vary: str = "Accept-Encoding") -> Response:
    await _pack()
    file = files().get(name) or vendored(name)
    if file is None:
        raise Refused(404, "not_found", f"The page has no file {name[:80]!a}. GET / is the page.")
    small = _takes_gzip(request.headers.get("accept-encoding", ""))
    tag = f'"{file.tag}-gzip"' if small else f'"{file.tag}"'
    headers = _safety(name, request.query_params) | {"Cache-Control": cache_control, "Vary": vary, "ETag": tag}
    if tag in _tags(request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    if small:
        return Response(file.small, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.kind)
    return Response(file.body, headers=headers, media_type=file.kind)


def _safety(name: str, asked: Mapping[str, str]) -> dict[str, str]:
    if name == FRAME:
        origins = {kind: ORIGIN.findall(asked.get(kind, "")) for kind in ("connect", "resource")}
        reached = {kind: "".join(f" {origin}" for origin in found) for kind, found in origins.items()}
        reached["allowed"] = " ".join(f'"{origin}"' for found in origins.values() for origin in found)
        return {header: value.format_map(reached) for header, value in FRAME_HEADERS.items()}
    return OWN_HEADERS.get(name) or (HEADERS if name.endswith(DOCUMENTS) else PART)


def _takes_gzip(accepted: str) -> bool:
    codings = (one.partition(";") for one in accepted.lower().split(","))
    return any(name.strip() == "gzip" and not NOT_WANTED.fullmatch(weight) for name, _, weight in codings)


def _tags(given: str) -> set[str]:
    """Those that a browser has; a proxy that packs answers itself makes them weak."""
    return {one.strip().removeprefix("W/") for one in given.split(",")}


def text_files(modules: Modules) -> dict[str, bytes]:
    """The tables of the texts that come with each joined file, and of the rest, by their names.

    `texts/<language>.json` is of the first screen, `.turns` of the conversation, `.more` of what is opened later.
    """
    parts = {"": (*modules.members(FIRST), *ALONE), ".turns": (*modules.members(TURNS), DECIDE)}
    found: dict[str, bytes] = {}
    for language in languages():
        left = page_table(language)
        for part, members in parts.items():
            needed = keys_in(modules.source(members), left)
            found[f"texts/{language}{part}.json"] = _packed({key: left[key] for key in left if key in needed})
            left = {key: left[key] for key in left if key not in needed}
        found[f"texts/{language}.more.json"] = _packed(left)
    return found


def keys_in(source: str, table: Table) -> set[str]:
    """The keys of the table that a source uses."""
    whole = set(WHOLE.findall(source))
    begun = tuple(first or f"{second}." for first, second in BEGUN.findall(source))
    return {key for key in table if key in whole or key.startswith(begun)}


def _packed(table: Table) -> bytes:
    return json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()


ROUTES = tagged(
    "Server",
    Route("GET /page/{path:path}", asset, rights="open", statuses=(200, 304), media=("application/octet-stream",)),
)
