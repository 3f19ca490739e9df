"""Calls of our tools, documents, and what a conversation is exported as."""

from __future__ import annotations

import base64
import io
import json
import random
import re
import zipfile
from typing import Any

from tests.support.documents.hostile import DOCUMENTS
from tests.support.fuzz.answers import answer, text_of
from tests.support.fuzz.blocks import (
    TEXTS,
    dumped,
    markdown,
    mutated,
    repeated,
    size,
    text,
    value,
)
from tests.support.fuzz.judging import Case
from tests.support.fuzz.site import Site
from tests.support.fuzz.streams import LANES, fine, native, streamed

# But for those that wait for a person.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "bash": ("command",), "python": ("code",), "read_file": ("path",), "write_file": ("path", "content"),
    "edit_file": ("path", "old", "new"), "list_files": ("path", "pattern"), "job_status": ("id",),
    "job_output": ("id",), "job_cancel": ("id",), "recall_history": ("query",), "read_result": ("call",),
    "update_plan": ("steps",), "create_document": ("title", "content", "kind"),
    "update_document": ("document", "old", "new"), "suggest_edits": ("document", "old", "new", "reason"),
    "read_document": ("document",), "web_fetch": ("url",), "remember": ("text",),
}  # fmt: skip
PLAUSIBLE = {"path": "a.txt", "pattern": "*.py", "document": "Doc", "old": "word ", "title": "Doc", "kind": "markdown"}
WORDS = "a word and a line\n"


def tool_case(rng: random.Random, most: int) -> Case:
    """Calls of one answer: what is there to be changed first."""
    calls: list[Any] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(list(ARGUMENTS))
        arguments: dict[str, Any] = {
            one: PLAUSIBLE.get(one, WORDS) if rng.random() < 0.5 else _argument(rng, one, most)
            for one in ARGUMENTS[name]
        }
        if rng.random() < 0.1:
            arguments[rng.choice(("extra", "network", "background", "offset"))] = value(rng, most)
        calls.append({"name": name, "arguments": arguments if rng.random() < 0.95 else value(rng, most)})
    if any(call["name"] in ("update_document", "suggest_edits") for call in calls):
        content = rng.choice(
            (WORDS * 9_000, repeated(rng.choice(("word ", "a\n", "<b>*", "é")), size(rng, most)) + "word ")
        )
        calls.insert(0, {"name": "create_document", "arguments": {"title": "Doc", "content": content}})
    if any(call["name"] == "edit_file" for call in calls):
        calls.insert(
            0, {"name": "write_file", "arguments": {"path": "a.txt", "content": "word " + "a\n" * size(rng, most)}}
        )
    return Case("tools", dumped(calls))


def _argument(rng: random.Random, name: str, most: int) -> Any:
    if name in ("choices", "steps"):
        step: Any = rng.choice((text(rng, 999), {"step": text(rng, 999), "state": "active"}))
        return rng.choice(([step] * size(rng, 9_000), value(rng, most)))
    if name in ("command", "code") and rng.random() < 0.7:
        piece = rng.choice(
            (
                "echo $(",
                "a|",
                "a&&",
                "((",
                "x=",
                "<<A\n",
                "'",
                '"',
                "$(( ",
                "if true; then ",
                "{ ",
                "f() { ",
                "for i in a; do ",
                "case x in ",
                ">a ",
                "`",
                "sudo ",
                "env A=b ",
                "xargs ",
                "$'\\x41'",
                "a{b,c}",
            )
        )
        return repeated(piece, size(rng, 100_000))  # fmt: skip
    if name in ("pattern", "path") and rng.random() < 0.5:
        return repeated(
            rng.choice(("*", "**/", "a*", "[a-", "{a,", "../", "/", "?*", "\0", "a/", "[!", "%2e/")), size(rng, 9_000)
        )
    if name == "url":
        return rng.choice(("http://127.0.0.1:9/", "http://", "//", "data:")) + text(rng, 5_000)
    return text(rng, most)


async def send_to_tools(site: Site, case: Case) -> str:
    try:
        calls = json.loads(case.body)
        made = [{"name": one["name"], "arguments": json.dumps(one["arguments"])} for one in calls]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""  # it was cut
    others = site.upstreams
    others.answers = {"/v1/chat/completions": [native(*made)]}
    body = LANES["/chat"][0]("native/m", "Hello") | {"approval": "deny", "time_limit_s": 5}
    if not any(one["name"] in ("bash", "python") for one in made):
        body["approval"] = "auto"
    try:
        return (await streamed(site, "/chat", body))[1]
    finally:
        others.answers = {}


EXPORTS = ("markdown", "html", "responses", "json")


def page_case(rng: random.Random, most: int) -> Case:
    made = rng.choice((markdown, *TEXTS))(rng, size(rng, most))
    return Case("exports", made.encode("utf-8", "surrogatepass"), {"thought": rng.random() < 0.2})


async def send_to_exports(site: Site, case: Case) -> str:
    """An answer with it, and each form in which a conversation leaves."""
    how = {"format": "openai", "field": "reasoning_content" if case.how["thought"] else "content", "cut": 4_000}
    site.upstreams.answers = {"/v1/chat/completions": [answer(case.body, how)]}
    frames, wrong = await streamed(site, "/chat", LANES["/chat"][0]("native/m", text_of(case.body[:2_000])))
    found = re.search(r'"session": ?"(\w+)"', frames)
    if wrong or not found:
        return wrong
    session, wrongs = found[1], list[str]()
    for path in (*(f"export?format={one}" for one in EXPORTS), "log", "documents"):
        wrongs.append((await fine(site, "GET", f"/sessions/{session}/{path}"))[1])
    link, wrong = await fine(site, "POST", f"/sessions/{session}/shares", json={})
    wrongs.append(wrong)
    if link.status_code == 201:
        for kind in ("text/html", "application/json"):
            wrongs.append((await fine(site, "GET", link.json()["path"], headers={"accept": kind}))[1])
        await site.client.delete(f"/shares/{link.json()['id']}")
    wrongs.append((await fine(site, "DELETE", f"/sessions/{session}"))[1])
    return next(filter(None, wrongs), "")


def document_case(rng: random.Random, most: int) -> Case:
    names = sorted(one.name for one in DOCUMENTS.iterdir() if one.suffix not in (".md", ".txt"))
    name = rng.choice(names)
    data = (DOCUMENTS / name).read_bytes()
    if rng.random() < 0.6 and zipfile.is_zipfile(io.BytesIO(data)):
        data = _repacked(rng, data, most)
    elif rng.random() < 0.3:
        data, name = (
            text(rng, most).encode("utf-8", "surrogatepass"),
            rng.choice(("a.html", "a.csv", "a.eml", "a.md", "a.py")),
        )
    else:
        data = mutated(rng, data)
    return Case("documents", data, {"name": name, "way": rng.choice(("attached", "put"))})


def _repacked(rng: random.Random, data: bytes, most: int) -> bytes:
    """The archive with parts that are spoilt."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new,
    ):
        for one in old.infolist():
            part = old.read(one)
            if rng.random() < 0.2:
                piece = rng.choice((b"<w:p>", b"<a>", b"<si/>", b"&lt;", b"<!--", b"<row><c r='A1'><v>1</v></c></row>"))
                at = rng.randrange(len(part) + 1)
                part = rng.choice((mutated(rng, part), part[:at] + piece * size(rng, most) + part[at:]))
            name = rng.choice((one.filename,) * 9 + ("../x", "/x", "a/" * 2_000, "\x01"))
            new.writestr(one.filename if name in new.namelist() else name, part)
    return out.getvalue()


async def send_to_documents(site: Site, case: Case) -> str:
    if case.how["way"] == "attached":
        part = {"type": "file", "data": base64.b64encode(case.body).decode(), "name": case.how["name"]}
        return (await streamed(site, "/chat", LANES["/chat"][0]("native/m", "") | {"message": [part]}))[1]
    place = f"/workspace/files/fuzzed-{case.how['name']}"
    site.upstreams.answers = {
        "/v1/chat/completions": [native({"name": "read_file", "arguments": json.dumps({"path": place[17:]})})]
    }
    try:
        _, wrong = await fine(site, "PUT", place, content=case.body)
        return wrong or (await streamed(site, "/chat", LANES["/chat"][0]("native/m", "Read.")))[1]
    finally:
        site.upstreams.answers = {}
        await site.client.delete(place)
