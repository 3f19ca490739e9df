"""Any file of a message lies in the workspace under its name, is described to the model, and comes back."""

from __future__ import annotations

import asyncio
import io
import tarfile
import zipfile
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.core.data_delimiters import without_codes
from app.models.scripted import Pause, Scripted
from app.workspace.content_types import media_type_of
from app.workspace.descriptions import description_of
from app.workspace.placing import UnsafeName, check_name
from tests.support.access.people import LIMIT_S, bearer
from tests.support.models.pictures import CAT, LAW, encoded, hashed, image_part, text_part
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio
TABLE = b"city,people\nRome,3\nOslo,1\n"


def part(data: bytes, name: str = "") -> dict[str, object]:
    return {"type": "file", "data": encoded(data), "name": name}


def archive(method: int = zipfile.ZIP_DEFLATED, **entries: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        for name, data in entries.items():
            made.writestr(name.replace("__", "/").replace("_xml", ".xml"), data)
    return out.getvalue()


def garbled(archive: bytes) -> bytes:
    """The same, but for the first bytes of its first entry's data."""
    return archive[:55] + b"\xff" * 8 + archive[63:]


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name in ("a", "b"):
            made.addfile(tarfile.TarInfo(name))
    return out.getvalue()


def words(model: Scripted, at: int = -1) -> str:
    return next(message.text for message in reversed(model.requests[at].messages) if message.role == "user")


async def test_files_lie_in_the_workspace_and_are_described(tmp_path: Path) -> None:
    model = Scripted(["```bash\ncat 'table.csv' 'table (2).csv'\n```", "Read.", "Again."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        work = tmp_path / "work"
        (work / "table.csv").write_text("mine\n")
        (work / "cat.png").mkdir()
        files = [part(TABLE, "table.csv"), image_part(CAT, name="cat.png"), part(b"\0\1"), part(LAW, "law.pdf")]
        events = await served.chat([text_part("Look."), *files])
        assert (work / "table.csv").read_text() == "mine\n"
        assert (work / "table (2).csv").read_bytes() == TABLE
        assert (work / "cat (2).png").read_bytes() == CAT
        assert (work / "file.bin").read_bytes() == b"\0\1"
        assert without_codes(words(model, 0)).splitlines()[:11] == [
            "[file table (2).csv, text/csv, 26 bytes, 3 lines, 2 columns, in the workspace]",
            "[picture cat (2).png, 80 x 60, image/png, in the workspace]",
            "[file file.bin, application/octet-stream, 2 bytes, in the workspace]",
            "[PDF law.pdf, 2 pages, application/pdf, in the workspace]",
            *("Text of table (2).csv: CSV, 1 part []:", "[part 1]", *TABLE.decode().splitlines(), "[end ]"),
            "Look.",
        ]
        seen = [one for message in model.requests[0].messages for one in message.attachments]
        assert [one.media_type for one in seen] == ["image/png", "application/pdf"]
        [result] = [event for event in events if event["type"] == "tool.finished"]
        assert "mine" in result["text"] and "Oslo,1" in result["text"]
        session = (await served.client.get(f"/sessions/{events[0]['session']}")).json()
        told = session["messages"][0]["attachments"][0]
        assert (told["path"], told["about"], told["name"]) == ("table (2).csv", "3 lines, 2 columns", "table.csv")
        kept = await served.client.get(f"/sessions/{session['id']}/files/{hashed(TABLE)}")
        assert (kept.content, kept.headers["content-type"]) == (TABLE, "application/octet-stream")
        assert kept.headers["content-disposition"].startswith("attachment")
        await served.chat([part(TABLE, "table.csv")], session=session["id"])
        assert not (work / "table (3).csv").exists(), "the same file is there already"
        assert words(model, 0) in [message.text for message in model.requests[-1].messages], "the prefix stays"


async def test_a_file_for_a_run_under_way_lies_there_too(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    model = Scripted([["So ", Pause(go_on)], "Both."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        async with aclosing(served.turn(message="x")) as turn:
            run = (await until(turn, "run.started"))["run"]
            steered = {"message": [part(TABLE, "late.csv")]}
            assert (await served.client.post(f"/runs/{run}/messages", json=steered)).status_code == 202
            assert (tmp_path / "work/late.csv").read_bytes() == TABLE
            go_on.set()
            added = await until(turn, "message.added")
            assert added["attachments"][0]["path"] == "late.csv"
        ann = await bearer(served, "ann")
        hers = {"message": [part(b"hers", "a.txt")]}
        async with served.client.stream("POST", "/chat", json=hers, headers=ann) as answer:
            await answer.aread()
        assert (tmp_path / "work/people/ann/a.txt").read_text() == "hers"


UNSAFE = [
    *(".envrc", ".git", ".GIT.", ".vscode", ".mcp.json", "../up", "a/b", "C:\\x", "/etc/passwd", "..", "."),
    *(" a", "a ", "a.", "x" * 201, "é" * 101, "a\u202eb"),
]


@pytest.mark.parametrize("name", UNSAFE, ids=ascii)
def test_unsafe_names_are_refused(name: str) -> None:
    with pytest.raises(UnsafeName):
        check_name(name)


async def test_a_refused_name_leaves_nothing_behind(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        body: dict[str, Any] = {"message": [part(b"x", "fine.txt"), part(b"touch gone", ".envrc")]}
        refused = await served.client.post("/chat", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "unsafe_name")
        assert "direnv" in refused.json()["error"]["message"]
        assert [*(tmp_path / "work").iterdir()] == []
        assert (await served.client.get("/sessions")).json()["sessions"] == []


OFFICE = [
    (archive(xl__workbook_xml=b"<workbook><sheets><sheet a='1'/><sheet /></sheets>"), "2 sheets"),
    (archive(ppt__slides__slide1_xml=b"", ppt__slides__slide2_xml=b"", ppt__presentation_xml=b""), "2 slides"),
    (archive(word__document_xml=b"", docProps__app_xml=b"<Pages>12</Pages>"), "12 pages"),
    (archive(word__document_xml=b""), ""),
    (archive(a=b"", b=b""), "2 entries"),
    (archive(xl__workbook_xml=b"<" * 100)[:-30], "damaged, or not readable"),
    (b"PK\x03\x04" + bytes(100), "damaged, or not readable"),
    (garbled(archive(zipfile.ZIP_LZMA, xl__workbook_xml=bytes(100))), "damaged, or not readable"),
    (archive(zipfile.ZIP_STORED, xl__workbook_xml=b"PK\x01\x02" * 5_001), "damaged, or not readable"),
    (tar(), "2 entries"),
    (b"a;b;c\r\n1;2;3", "2 lines, 3 columns"),
    (b'"a,b",c\n', "1 line, 2 columns"),
]


@pytest.mark.parametrize(("data", "about"), OFFICE, ids=[about or "no pages" for _, about in OFFICE])
def test_descriptions(data: bytes, about: str) -> None:
    assert description_of(data, media_type_of(data, "x.csv", whole=True)) == about


async def test_files_of_other_clients_lie_there_too_but_not_those_of_relays(tmp_path: Path) -> None:
    data = "data:application/zip;base64," + encoded(archive(a=b"x"))
    sent = {"type": "file", "file": {"file_data": data, "filename": "a.zip"}}
    body: dict[str, Any] = {"model": "dragoman/agent", "messages": [{"role": "user", "content": [sent]}]}
    model = Scripted(["Seen."], repeat=True)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        answer = await served.client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert [path.name for path in (tmp_path / "work").iterdir()] == ["a.zip"]
        assert words(model).startswith("[file a.zip, application/zip, ")
        relayed = await served.client.post("/v1/chat/completions", json=body | {"model": "scripted"})
        assert (relayed.status_code, relayed.json()["error"]["code"]) == (400, "unsupported_file")
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + encoded(CAT)}}
        body |= {"model": "scripted", "messages": [{"role": "user", "content": [picture]}]}
        assert (await served.client.post("/v1/chat/completions", json=body)).status_code == 200
        assert [path.name for path in (tmp_path / "work").iterdir()] == ["a.zip"]
