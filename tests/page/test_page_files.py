"""The page's files over HTTP: what comes with them, how little travels, and what is no file of the page."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from os.path import normpath
from pathlib import Path

import httpx2
import pytest

from app.models.scripted import Scripted
from routes.page import FOLDER, FRAME, INDEX, KINDS, PROBE, VENDORED_KINDS, files, vendored, without_comments
from routes.page.joined import GROUPS
from routes.page.vendored import VENDOR
from routes.protocol.errors import SAFE_HEADERS
from routes.texts import languages
from tests.support.access.people import bearer
from tests.support.server.serving import Served, serving
from tests.tasks.vendor import vendored_names

pytestmark = pytest.mark.anyio

LIMIT_S = 60
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8", "accept-encoding": "gzip, deflate, br"}
FIRST_LOAD = 110_000  # bytes of files, as they travel; test_first_load.py counts the rest, too
NAMES = sorted(
    [
        path.relative_to(FOLDER).as_posix()
        for path in FOLDER.rglob("*")
        if path.suffix in KINDS and VENDOR not in path.parents
    ]
    + [f"texts/{name}{part}.json" for name in languages() for part in ("", ".turns", ".more")]
    + [*GROUPS]
)
TYPES = ["push-worker", "highlight-worker", "feed-worker"]
IMPORTED = re.compile(r'(?:\bfrom|\bimport)\s*"(\.{1,2}/[^"]+)"')  # at once; `import(...)` is for later
ELSEWHERE = re.compile(
    r"""url\((?!\s*["']?(?:data:|/page/|\$\{urlOf\())|@import|\b(?:from|import)\s*\(?\s*["'](?!,|\.{1,2}/)|["'`]//\w|fetch\(\s*["'`]\w+:"""
)
SUBRESOURCE = re.compile(r'(?:src|href)="(/[^"]+)"')


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[Served, None]:
    async with asyncio.timeout(LIMIT_S), serving(folder, Scripted([])) as served:
        yield served


async def got(served: Served, path: str, **headers: str) -> httpx2.Response:
    answer = await served.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert answer.status_code == 200, f"{path}: {answer.text}"
    return answer


async def raw(served: Served, path: str) -> tuple[int, str]:
    """As it is written here: clients tidy a path up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.client.base_url.port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode("latin-1"))
        answer = (await reader.read()).decode()
    finally:
        writer.close()
        await writer.wait_closed()
    return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]


def first_load(index: str) -> list[str]:
    """Paths of all that a browser fetches before the page works."""
    left = list(dict.fromkeys(SUBRESOURCE.findall(index)))
    for path in left:  # which grows
        text = files()[path.split("/", 3)[3]].body.decode() if path.endswith(".js") else ""
        left += [found for name in IMPORTED.findall(text) if (found := normpath(f"{path}/../{name}")) not in left]
    return left


def policy_of(answer: httpx2.Response) -> dict[str, list[str]]:
    parts = (part.split() for part in answer.headers["content-security-policy"].split(";"))
    return {name: sources for name, *sources in parts}


async def test_every_file_comes_with_a_policy_that_lets_nothing_else_in(tmp_path: Path) -> None:
    assert {*NAMES, "page.css"} == files().keys() and len(NAMES) > 20
    async with server(tmp_path) as served:
        for path in ["/", *(f"/page/{name}" for name in files())]:
            answer = await got(served, path, **BROWSER)
            policy = policy_of(answer)
            if path == f"/page/{FRAME}":
                assert "sandbox allow-scripts" in answer.headers["content-security-policy"]
                assert answer.headers["connection-allowlist"] == "()" and policy["frame-ancestors"] == ["'self'"]
                assert not {"'self'", "*", "http:", "https:"} & {one for part in policy.values() for one in part[1:]}
                continue
            assert policy["default-src"] == ["'none'"]
            if path == f"/page/{PROBE}":  # empty; what its own policy allows the other header refuses
                assert answer.headers["connection-allowlist"] == "()" and policy["connect-src"] == ["'self'"]
                assert {*policy} == {"default-src", "connect-src", "frame-ancestors"}
                continue
            assert answer.headers["content-type"] == (KINDS[".html"] if path == "/" else KINDS[Path(path).suffix])
            assert answer.headers["x-content-type-options"] == "nosniff"
            if path.endswith((".js", ".css", ".json", ".png", ".webmanifest")):
                continue  # no document: with that policy it is nothing but what another one loads
            assert policy["script-src"] == policy["connect-src"] == policy["frame-src"] == ["'self'"]
            assert policy["require-trusted-types-for"] == ["'script'"] and policy["trusted-types"] == TYPES
            assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == ["'none'"]
            sources = {source for given in policy.values() for source in given}
            assert sources <= {"'none'", "'self'", "'script'", "blob:", "data:", *TYPES}, path
            assert answer.headers["x-dns-prefetch-control"] == "off", "the name of a host could tell what was read"
            own = {"Content-Security-Policy", "Cache-Control"}
            assert {name for name, value in SAFE_HEADERS.items() if answer.headers.get(name) != value} == own


async def test_libraries_are_fetched_like_other_files_when_they_are_needed(tmp_path: Path) -> None:
    async with server(tmp_path) as served:
        for name in vendored_names():
            answer = await got(served, f"/page/{name}", **BROWSER)
            assert answer.headers["content-type"] == VENDORED_KINDS[Path(name).suffix]
            assert policy_of(answer) == {"default-src": ["'none'"]} and answer.headers["content-encoding"] == "gzip"
        for name in ("vendor.json", "highlight", "highlight/", "highlight/none.js", "highlight/../vendor.json", "/x"):
            assert (await raw(served, f"/page/vendor/{name}"))[0] == 404, name


async def test_little_travels_and_hardly_anything_twice(tmp_path: Path) -> None:
    async with server(tmp_path) as served:
        index = await got(served, "/", **BROWSER)
        total, named = 0, first_load(index.text)
        assert 4 < len(named) < 20 and sum(path.endswith(".css") for path in named) == 1
        for path in ["/", *named]:
            async with served.client.stream("GET", path, headers=BROWSER) as answer:
                packed = b"".join([piece async for piece in answer.aiter_raw()])
            assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip"), path
            total += len(packed)
            name = "index.html" if path == "/" else path.split("/", 3)[3]
            file = files().get(name) or vendored(name)
            assert file and gzip.decompress(packed) == file.body
            kept = "no-cache" if path == "/" else "public, max-age=31536000, immutable"
            assert answer.headers["cache-control"] == kept
            vary = "Accept, Accept-Encoding" if path == "/" else "Accept-Encoding"
            assert answer.headers["vary"] == vary
        print(f"first load: {total:,} bytes in {1 + len(named)} files")
        assert total < FIRST_LOAD
        version = named[0].split("/")[2]
        older = await got(served, named[0].replace(version, "0" * 16))  # a page that was loaded before an upgrade
        assert older.headers["cache-control"] == "no-cache"


async def test_what_a_browser_has_is_not_sent_again(tmp_path: Path) -> None:
    async with server(tmp_path) as served:
        for path in ("/", "/page/js/main.js"):
            small, plain = (
                await got(served, path, **BROWSER),
                await got(served, path, accept="text/html", accept_encoding="gzip;q=0, identity"),
            )
            tag = small.headers["etag"]
            assert "content-encoding" not in plain.headers and plain.headers["etag"] != tag and small.text == plain.text
            for known in (tag, f"W/{tag}", f'"other", {tag}'):
                answer = await served.client.get(path, headers=BROWSER | {"if-none-match": known})
                assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
                assert answer.headers["content-security-policy"] == small.headers["content-security-policy"]
            await got(served, path, **BROWSER, if_none_match='"other"')
            head = await served.client.head(path, headers=BROWSER)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == small.headers["content-length"]


ENCODED = ("/page/..%2f..%2fapp/runs.py", "/page/%2e%2e/services.py", "/page/js/%2e%2e/__init__.py", "/page/js%00")
STRANGE = (
    *("/page/", "/page/js", "/page/js/", "/page/__init__.py", "/page/../services.py", "/page/js/../__init__.py"),
    *(
        "/page//etc/passwd",
        "/page/js/..\\__init__.py",
        "/page/%5c..%5cservices.py",
        "/page/index.html.py",
        "/page/JS/main.js",
    ),
    *("/page/./index.html", "/page/js/main.js/", "/page/js/main.js%00.py", "/page/0123456789abcdef/", "/page/%ff"),
    *(f"/page/0123456789abcdef/{name}" for name in ("../../services.py", "0123456789abcdef/js/main.js", "/etc/passwd")),
    *ENCODED,
)


async def test_nothing_else_is_a_file_of_the_page(tmp_path: Path) -> None:
    async with server(tmp_path) as served:
        assert (await raw(served, "/page/js/main.js"))[0] == 200
        for path in STRANGE:
            status, body = await raw(served, path)
            assert status == 404 and '"error": {"code": "not_found"' in body, path
            assert "import" not in body, path
        assert (await served.client.post("/page/js/main.js")).status_code == 405


async def test_browsers_get_the_page_and_programs_a_greeting(tmp_path: Path) -> None:
    async with server(tmp_path) as served:
        for accept in ("*/*", "text/plain", "application/json"):
            greeting = await got(served, "/", accept=accept)
            assert greeting.text.startswith("dragoman: ") and greeting.headers["vary"] == "Accept"
        ann = await bearer(served, "ann")
        assert "<!doctype html>" in (await got(served, "/", **BROWSER)).text  # it asks for the token itself
        refused = await served.client.get("/", headers={"accept": "*/*"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
        assert (await got(served, "/", accept="*/*", **ann)).text.startswith("dragoman: ")
        assert (await served.client.get("/sessions", headers=BROWSER)).status_code == 401


def test_the_page_names_only_what_is_there_and_nobody_else() -> None:
    index = (FOLDER / "index.html").read_text()
    there = {f"/page/{path}" for path in (*NAMES, *vendored_names())}
    assert not set(SUBRESOURCE.findall(index)) - there, "index.html"
    assert not re.search(
        r"<style|\son\w+=|\sstyle=|javascript:|<script(?! type=\"module\" src=)|<script[^>]*>[^<]", index
    )
    texts = {name: file.body.decode() for name, file in files().items() if not name.endswith(".png")}
    texts[INDEX] = index
    found = [f"{name}: {seen[0]}" for name, text in texts.items() for seen in ELSEWHERE.finditer(text)]
    assert not found, found


@pytest.mark.parametrize(
    ("written", "served"),
    [
        ("/** What it is\n * for. */\n\nlet a = 1; // one\n", "\n\n\nlet a = 1;\n"),
        ("let a = 1; // \"one\"\nlet b = 'x // y';\n", "let a = 1; // \"one\"\nlet b = 'x // y';\n"),
        ("  // why\n  /* how */ run();\n", "\n/* how */ run();\n"),
        ("  /* a */\n  b();\n  /* c */\n", "\nb();\n\n"),
        ('let a = "// b";\nlet c = `/* d */`;\n', 'let a = "// b";\nlet c = `/* d */`;\n'),
        ("a /* b\n c */ d\n", "a /* b\nc */ d\n"),
    ],
)
def test_comments_and_indents_stay_at_home(tmp_path: Path, written: str, served: str) -> None:
    (tmp_path / "a.js").write_text(written)
    assert without_comments(tmp_path / "a.js").decode() == served
