"""The workspace over HTTP: looked at, changed by its owner alone, never outside of itself, and undone."""

from __future__ import annotations

import asyncio
import io
import os
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from app.storage.labels import FileLabel
from app.workspace import tree, uploads
from tests.support.access.people import LIMIT_S, bearer
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
FILES = "/workspace/files"
LABEL = {"labels": '[{"label": "customer", "paths": ["customers/**"]}]'}


@asynccontextmanager
async def served_in(folder: Path, **flags: object) -> AsyncGenerator[tuple[Served, Path], None]:
    async with asyncio.timeout(LIMIT_S), serving(folder, Scripted([]), None, **flags) as served:
        yield served, folder / "work"


async def tried(served: Served, method: str, path: str, **more: Any) -> tuple[int, Any]:
    answer = await served.client.request(method, path, **more)
    body = answer.json()
    return answer.status_code, body.get("error", {}).get("code", body)


def names(listing: dict[str, Any]) -> list[str]:
    return [entry["name"] + ("/" if entry["kind"] == "folder" else "") for entry in listing["entries"]]


async def test_the_tree_is_bounded_and_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MOST_SHOWN", 3)
    async with served_in(tmp_path) as (served, work):
        for name in ("b.txt", "A.txt", "sub/deep/Found.md", "node_modules/found.js", ".hidden", ".env", "c.txt"):
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text("x")
        (work / "up").symlink_to(tmp_path)
        first = (await served.client.get("/workspace")).json()
        assert (names(first), first["more"], first["whole"]) == (["node_modules/", "sub/", "A.txt"], 3, True)
        assert first["can"] == {"write": True, "undo": True}
        rest = (await served.client.get("/workspace?start=3&hidden=true")).json()
        assert names(rest) == [".env", ".hidden", "A.txt"] or names(rest)[0].startswith(".")
        shown = (await served.client.get("/workspace?start=3")).json()
        assert names(shown) == ["b.txt", "c.txt", "up"] and shown["entries"][2]["kind"] == "link"
        found = (await served.client.get("/workspace?q=FOUND")).json()
        assert [entry["path"] for entry in found["entries"]] == ["sub/deep/Found.md"]
        hidden = (await served.client.get("/workspace?q=.env&hidden=1")).json()
        assert [entry.get("private") for entry in hidden["entries"]] == [True]
        assert names((await served.client.get("/workspace?path=sub/deep")).json()) == ["Found.md"]
        for path, status in (("up", 404), ("none", 404), ("../..", 404), ("A.txt", 404), ("a%00b", 404)):
            assert (await served.client.get(f"/workspace?path={path}")).status_code == status, path
        assert await tried(served, "GET", "/workspace?start=-1") == (400, "invalid_request")


@pytest.mark.parametrize("unnamed", [True, False], ids=["without a name", "file systems that need one"])
async def test_a_file_is_put_there_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, unnamed: bool) -> None:
    if not unnamed:
        monkeypatch.setattr(uploads, "_UNNAMED", uploads._UNNAMED | os.O_CREAT)  # which means EINVAL
    async with served_in(tmp_path, max_upload_bytes="2000") as (served, work):
        answer = await served.client.put(f"{FILES}/new/a.txt", content=b"one")
        assert (answer.status_code, answer.json()) == (
            201,
            {"path": "new/a.txt", "size": 3, "replaced": False, "change": None},
        )
        assert await tried(served, "PUT", f"{FILES}/new/a.txt", content=b"two") == (409, "file_exists")
        _, both = await tried(served, "PUT", f"{FILES}/new/a.txt?conflict=keep_both", content=b"two")
        assert both["path"] == "new/a (2).txt" and (work / "new/a (2).txt").read_text() == "two"
        (work / "new/a.txt").chmod(0o600)
        status, replaced = await tried(served, "PUT", f"{FILES}/new/a.txt?conflict=replace", content=b"three")
        assert (status, replaced["replaced"]) == (200, True) and (work / "new/a.txt").read_text() == "three"
        assert (work / "new/a.txt").stat().st_mode & 0o777 == 0o600
        status, undone = await tried(served, "POST", f"/workspace/changes/{replaced['change']}/undo")
        assert (status, undone["state"]) == (200, "undone") and (work / "new/a.txt").read_text() == "one"
        assert await tried(served, "PUT", f"{FILES}/new/a.txt?conflict=what") == (400, "invalid_request")
        assert await tried(served, "PUT", f"{FILES}/big", content=b"x" * 2001) == (413, "too_long")

        async def unmeasured() -> AsyncGenerator[bytes, None]:
            yield b"x" * 2001

        assert await tried(served, "PUT", f"{FILES}/big", content=unmeasured()) == (413, "too_long")
        assert sorted(path.name for path in work.rglob("*")) == ["a (2).txt", "a.txt", "new"], "nothing is left behind"


REFUSED: list[tuple[str, Any, int, str]] = [
    ("PUT", f"{FILES}/.git/hooks/pre-commit", 403, "private_file"),
    ("PUT", f"{FILES}/sub/.VSCODE/tasks.json", 403, "private_file"),
    ("PUT", f"{FILES}/bad%0Aname", 422, "unsafe_name"),
    ("PUT", f"{FILES}/{'x' * 201}", 422, "unsafe_name"),
    ("PUT", f"{FILES}/{'d/' * 128}x", 409, "unfit_path"),
    ("PUT", f"{FILES}/up/x", 409, "unfit_path"),
    ("PUT", f"{FILES}/%2e%2e/x", 409, "unfit_path"),
    ("PUT", f"{FILES}/sub?conflict=replace", 409, "unfit_path"),
    ("PUT", f"{FILES}/link?conflict=replace", 409, "unfit_path"),
    ("PUT", f"{FILES}/people/ann/x", 403, "private_file"),
    ("DELETE", f"{FILES}/people", 403, "private_file"),
    ("DELETE", f"{FILES}/none", 404, "not_found"),
    ("DELETE", f"{FILES}/repo", 403, "private_file"),
    ("DELETE", f"{FILES}/up/outside", 409, "unfit_path"),
    ("POST /workspace/moves", {"old": ".env", "new": "shown.txt"}, 403, "private_file"),
    ("POST /workspace/moves", {"old": "a", "new": "sub"}, 409, "file_exists"),
    ("POST /workspace/moves", {"old": "a", "new": ".envrc"}, 403, "private_file"),
    ("POST /workspace/moves", {"old": "sub", "new": "sub/in"}, 409, "unfit_path"),
    ("POST /workspace/moves", {"old": "link", "new": "other"}, 409, "unfit_path"),
    ("POST /workspace/moves", {"old": "a", "new": "../a"}, 409, "unfit_path"),
    ("POST /workspace/folders", {"path": "a"}, 409, "file_exists"),
    ("POST /workspace/folders", {"path": "up/x"}, 409, "unfit_path"),
    ("POST /workspace/folders", {"path": ""}, 422, "invalid_request"),
    ("POST", "/workspace/changes/chg_none/undo", 404, "not_found"),
]


async def test_what_leads_out_or_is_run_by_others_is_refused(tmp_path: Path) -> None:
    async with served_in(tmp_path) as (served, work):
        (tmp_path / "outside").write_text("x")
        (work / "up").symlink_to(tmp_path)
        (work / "link").symlink_to(tmp_path / "outside")
        (work / "a").write_text("a")
        (work / ".env").write_text("KEY=1")
        for folder in ("sub", "repo/deep/.git", "people/ann"):
            (work / folder).mkdir(parents=True)
        for method, what, status, code in REFUSED:
            if isinstance(what, dict):
                assert await tried(served, *method.split(), json=what) == (status, code), what
            else:
                assert await tried(served, method, what) == (status, code), what
        assert (tmp_path / "outside").read_text() == "x" and (work / "repo/deep/.git").is_dir()
        assert (await tried(served, "DELETE", f"{FILES}/link"))[0] == 200 and (tmp_path / "outside").exists()
        await served.client.post("/pause")
        for method, path in (("PUT", f"{FILES}/b"), ("DELETE", f"{FILES}/a")):
            assert await tried(served, method, path) == (503, "paused")
        assert (await served.client.get("/workspace")).status_code == 200


async def test_what_is_removed_comes_back(tmp_path: Path) -> None:
    async with served_in(tmp_path, **LABEL) as (served, work):
        (work / "notes/in").mkdir(parents=True)
        (work / "notes/in/a.txt").write_text("kept")
        await served.services.store.write([FileLabel(str(work), "notes/in/a.txt", "customer")])
        labels = served.services.factory.labels
        assert labels
        await labels.book.load(served.services.store)
        status, removed = await tried(served, "DELETE", f"{FILES}/notes")
        assert (status, removed["removed"]) == (200, 3) and not (work / "notes").exists()
        assert (await tried(served, "POST", f"/workspace/changes/{removed['change']}/undo"))[0] == 200
        assert (work / "notes/in/a.txt").read_text() == "kept"
        _, again = await tried(served, "DELETE", f"{FILES}/notes")
        (work / "notes").write_text("something else")
        status, _ = await tried(served, "POST", f"/workspace/changes/{again['change']}/undo")
        assert status == 409 and (work / "notes").read_text() == "something else"
        (work / "notes").unlink()
        assert (await tried(served, "POST", f"/workspace/changes/{again['change']}/undo"))[0] == 200
        assert await tried(served, "POST", "/workspace/moves", json={"old": "notes", "new": "old/notes"}) == (
            200,
            {"old": "notes", "path": "old/notes"},
        )
        assert (work / "old/notes/in/a.txt").read_text() == "kept"
        assert labels.book.of_path(work, "old/notes/in/a.txt") == {"customer"}, "a new name takes no label away"
        audit = (await served.client.get("/audit")).json()["audit"]
        assert next(row["why"] for row in audit if row["action"] == "workspace") == "moved notes to old/notes"


async def test_each_has_their_own_and_guests_only_look(tmp_path: Path) -> None:
    async with served_in(tmp_path) as (served, work):
        ann, bob, gus = await bearer(served, "ann"), await bearer(served, "bob"), await bearer(served, "gus", "guest")
        await served.client.put(f"{FILES}/mine", content=b"ann's", headers=ann)
        _, gone = await tried(served, "DELETE", f"{FILES}/mine", headers=ann)
        await served.client.put(f"{FILES}/mine", content=b"ann's", headers=ann)
        assert (work / "people/ann/mine").read_text() == "ann's"
        assert names((await served.client.get("/workspace", headers=bob)).json()) == []
        assert (await served.client.get(f"{FILES}/mine", headers=bob)).status_code == 404
        assert await tried(served, "POST", f"/workspace/changes/{gone['change']}/undo", headers=bob) == (
            404,
            "not_found",
        )
        listing = (await served.client.get("/workspace", headers=gus)).json()
        assert listing["can"]["write"] is False
        for method, path in (("PUT", f"{FILES}/x"), ("DELETE", f"{FILES}/x"), ("POST", "/workspace/folders")):
            assert await tried(served, method, path, headers=gus) == (403, "forbidden")


HOSTILE = {
    "x.html": b"<script>fetch('/sessions')</script>",
    "x.svg": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
    "x.xhtml": b"<html xmlns='http://www.w3.org/1999/xhtml'><script>1</script></html>",
    "utf16.html": "<script>1</script>".encode("utf-16"),
    "x.js": b"alert(1)",
    "x.pdf": b"%PDF-1.4 /JS (app.alert(1))",
}


async def test_nothing_that_is_served_runs(tmp_path: Path) -> None:
    async with served_in(tmp_path) as (served, work):
        for name, content in HOSTILE.items():
            (work / name).write_bytes(content)
            answer = await served.client.get(f"{FILES}/{name}")
            assert answer.content == content
            kind, headers = answer.headers["content-type"], answer.headers
            assert kind in ("text/plain; charset=utf-8", "application/octet-stream", "application/pdf"), name
            assert headers["x-content-type-options"] == "nosniff"
            assert {"sandbox", "default-src 'none'"} <= {one.strip() for one in headers[CSP].split(";")}, name
            assert kind.startswith("text/plain") or headers["content-disposition"].startswith("attachment")
        for name in (".env", ".git/config"):
            (work / name).parent.mkdir(exist_ok=True)
            (work / name).write_text("secret")
        (work / "up").symlink_to("/etc")
        packed = await served.client.get("/workspace/archive")
        assert packed.headers["content-type"] == "application/zip" and "sandbox" in packed.headers[CSP]
        with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
            assert sorted(archive.namelist()) == sorted(HOSTILE) and archive.testzip() is None
            assert archive.read("x.js") == b"alert(1)"
        assert (await served.client.get("/workspace/archive?path=none")).status_code == 404


CSP = "content-security-policy"


def nested(folder: Path, depth: int) -> int:
    """Make folders in each other below this one; return the descriptor of the last one."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    return here


async def test_thousands_of_nested_folders_are_removed_and_nothing_outside(tmp_path: Path) -> None:
    """A command can make them; paths of that length cannot even be named."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").touch()
    async with served_in(tmp_path) as (served, work):
        last = nested(work, 3_000)
        try:
            os.symlink(tmp_path / "outside", "link", dir_fd=last)
            os.mkdir(".git", dir_fd=last)
            assert await tried(served, "DELETE", f"{FILES}/d") == (403, "private_file")
            os.rmdir(".git", dir_fd=last)
        finally:
            os.close(last)
        status, removed = await tried(served, "DELETE", f"{FILES}/d")
        assert (status, removed["removed"]) == (200, 3_001) and not (work / "d").exists()
    assert (tmp_path / "outside/kept").exists()
