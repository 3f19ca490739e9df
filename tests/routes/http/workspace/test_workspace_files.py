"""Files that runs made, over HTTP: reported, listed, and read by their owner alone, whole or in part."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from app.models.scripted import Scripted
from routes.protocol.errors import Refused
from routes.protocol.file_answer import range_of
from tests.support.access.people import LIMIT_S, bearer
from tests.support.models.pictures import CAT, hashed
from tests.support.page.stories import held
from tests.support.server.serving import Served, serving, until

pytestmark = pytest.mark.anyio
MAKES = (
    "mkdir out; printf '<script>1</script>' > out/x.html; printf 0123456789 > digits; printf key > .env; ln -s /etc up"
    "; printf '' > empty; printf '\\0\\1' > 'b\u00e4r \"x\".bin'"
)


def bash(command: str) -> str:
    return f"```bash\n{command}\n```\n"


async def fetched(served: Served, path: str, **headers: str) -> httpx2.Response:
    return await served.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})


async def made(served: Served) -> str:
    """The session of a run that has made some files."""
    events = await served.chat()
    assert events[-1]["type"] == "run.finished"
    return str(events[0]["session"])


async def test_files_are_listed_with_their_last_change(tmp_path: Path) -> None:
    model = Scripted([bash(MAKES), "Done.", bash("printf more >> digits; rm out/x.html"), "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        session = await made(served)
        again = await served.chat(session=session)
        run = again[0]["run"]
        (tmp_path / "work/digits").write_text("0123456789 and a person")
        answer = (await fetched(served, f"/sessions/{session}/files")).json()
        files = {file["path"]: file for file in answer["files"]}
        assert [*files][:2] == ["out/x.html", "digits"] and answer["more"] == 0  # the latest first
        digits = files["digits"]
        assert (digits["change"], digits["size"], digits["available"], digits["run"]) == ("modified", 23, True, run)
        assert digits["sha256"] == hashed(b"0123456789more")  # as the run has left it
        assert (files["out/x.html"]["change"], files["out/x.html"]["available"]) == ("deleted", False)
        assert (files[".env"]["change"], files[".env"]["available"]) == ("created", False)
        assert "up" not in files
        before = {event["path"] for event in await served.events(run) if event["type"] == "file.changed"}
        assert before == {"digits", "out/x.html"}


async def test_a_file_is_read_whole_or_in_part_and_never_run(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([bash(MAKES), "Done."])) as served:
        at = f"/sessions/{await made(served)}/workspace"
        page = await fetched(served, f"{at}/out/x.html")
        assert (page.status_code, page.text) == (200, "<script>1</script>")
        assert page.headers["content-type"] == "text/plain; charset=utf-8"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["content-security-policy"].endswith("; sandbox")
        for name in ("two\nlines", "two\nlines\n"):
            (tmp_path / "work" / name).write_text(f"{name!r}")
            assert (await fetched(served, f"{at}/{quote(name)}")).text == f"{name!r}"
        whole = await fetched(served, f"{at}/digits")
        etag = whole.headers["etag"]
        assert (whole.text, whole.headers["accept-ranges"]) == ("0123456789", "bytes")
        for wanted, text in (("bytes=2-4", "234"), ("bytes=7-", "789"), ("bytes=-2", "89"), ("bytes=8-99", "89")):
            part = await fetched(served, f"{at}/digits", range=wanted, if_range=etag)
            assert (part.status_code, part.text, part.headers["content-length"]) == (206, text, str(len(text)))
            assert part.headers["content-range"].endswith("/10")
        for headers in ({"range": "bytes=0-1,4-5"}, {"range": "bytes=2-4", "if_range": '"other"'}):
            assert (await fetched(served, f"{at}/digits", **headers)).status_code == 200
        beyond = await fetched(served, f"{at}/digits", range="bytes=10-")
        assert (beyond.status_code, beyond.json()["error"]["code"]) == (416, "invalid_range")
        assert beyond.headers["content-range"] == "bytes */10"
        head = await served.client.head(f"{at}/digits")
        assert (head.status_code, head.headers["content-length"], head.content) == (200, "10", b"")
        assert (await fetched(served, f"{at}/empty")).content == b""
        odd = await fetched(served, f"{at}/b%C3%A4r%20%22x%22.bin")
        assert odd.content == b"\0\1" and odd.headers["content-type"] == "application/octet-stream"
        assert odd.headers["content-disposition"] == (
            "attachment; filename=\"b_r _x_.bin\"; filename*=UTF-8''b%C3%A4r%20%22x%22.bin"
        )
        (tmp_path / "work/cat.svg").write_bytes(CAT)  # what it is says its content
        assert (await fetched(served, f"{at}/cat.svg")).headers["content-type"] == "image/png"


async def test_what_is_private_or_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("x")
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([bash(MAKES), "Done."])) as served:
        at = f"/sessions/{await made(served)}/workspace"
        refused = await fetched(served, f"{at}/.env")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "private_file")
        for path in ("up/passwd", "%2e%2e/outside", "%2Fetc/passwd", "out", "none", "a%00b", "out%2F..%2F..%2Foutside"):
            assert (await fetched(served, f"{at}/{path}")).status_code == 404, path


async def test_files_are_their_owner_s_alone(tmp_path: Path) -> None:
    model = Scripted([bash("printf mine > note"), "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        ann, bob = await bearer(served, "ann"), await bearer(served, "bob", "admin")
        shut = await bearer(served, "cid", tools='["bash"]')
        async with served.client.stream("POST", "/chat", json={"message": "x"}, headers=ann) as response:
            await response.aread()
        session = response.headers["x-session-id"]
        for path in ("files", "workspace/note"):
            assert (await served.client.get(f"/sessions/{session}/{path}", headers=bob)).status_code == 404
            assert (await served.client.get(f"/sessions/{session}/{path}", headers=ann)).status_code == 200
        assert (tmp_path / "work/people/ann/note").read_text() == "mine"
        async with served.client.stream("POST", "/chat", json={"message": "x"}, headers=shut) as response:
            await response.aread()
        answer = await served.client.get(f"/sessions/{response.headers['x-session-id']}/workspace/x", headers=shut)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


async def test_a_call_that_is_stopped_reports_what_it_had_written(tmp_path: Path) -> None:
    model = Scripted([bash(f"printf half > out; echo now; {held()}"), "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        async with aclosing(served.turn(message="Go.")) as turn:
            run = (await until(turn, "run.started"))["run"]
            while not (await until(turn, "tool.progress"))["lines"]:
                pass
            await served.client.post(f"/runs/{run}/cancel")
            rest = [event async for event in turn]
        assert "out" in [event.get("path") for event in rest if event["type"] == "file.changed"]
        assert rest[-1]["reason"] == "cancelled"


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("bytes=0-0", range(0, 1)),
        ("bytes=-99", range(0, 10)),
        ("bytes=-", None),
        ("bytes=5-2", None),
        ("lines=1-2", None),
        ("bytes=0-" + "9" * 18, range(0, 10)),
        ("bytes=0-" + "9" * 19, None),
    ],
)
def test_ranges(header: str, part: range | None) -> None:
    assert range_of(header, 10) == part


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=-0", "bytes=11-12"])
def test_ranges_of_nothing(header: str) -> None:
    with pytest.raises(Refused) as refused:
        range_of(header, 10)
    assert refused.value.status == 416
