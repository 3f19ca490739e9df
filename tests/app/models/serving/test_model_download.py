"""Downloads from a hub on this machine: resumed, checked, bounded, and refused with a reason."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from app.models.serving.download import NOTES, PART, Download, DownloadLimits, discard, fetch, interrupted
from app.models.serving.hub import HubClient
from app.models.serving.refusals import UnfitFile
from tests.support.models.gguf_files import gguf
from tests.support.models.model_hub import TOKEN, Hub, model_hub

pytestmark = pytest.mark.anyio
REPO, FILE = "ann/tiny-GGUF", "tiny-Q4_K_M.gguf"
CONTENT = gguf() + random.Random(1).randbytes(700_000)
LIMITS = DownloadLimits(most_bytes=50_000_000, seconds=30, attempts=3, pause_s=0)


def hub(content: bytes = CONTENT, **faults: Any) -> Any:
    return model_hub({REPO: {FILE: content}}, **faults)


async def got(
    there: Hub, folder: Path, source: str = f"hf:{REPO}", *, limits: DownloadLimits = LIMITS, token: str = ""
) -> tuple[Path, Download]:
    client = HubClient(there.url, token)
    plan = await client.plan(source)
    download = Download(name=plan.name, source=plan.source, folder=plan.folder)
    return await fetch(client, plan, folder, limits, download), download


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


async def test_a_model_is_fetched_checked_and_not_fetched_again(tmp_path: Path) -> None:
    async with hub() as there:
        path, download = await got(there, tmp_path)
        assert (path.read_bytes(), left(tmp_path)) == (CONTENT, [FILE])
        assert (download.checked, download.bytes, download.total) == ("sha256", len(CONTENT), len(CONTENT))
        await got(there, tmp_path)
        assert len(there.sent_from) == 1
        path.write_bytes(bytes(len(CONTENT)))
        assert (await got(there, tmp_path))[0].read_bytes() == CONTENT


async def test_a_last_piece_that_is_smaller_than_a_buffer_is_checked_too(tmp_path: Path) -> None:
    small = gguf(weights=2_048)
    async with hub(small) as there:
        path, download = await got(there, tmp_path)
        assert (path.read_bytes(), download.checked) == (small, "sha256")


async def test_a_file_with_the_right_checksum_and_a_damaged_header_does_not_stay(tmp_path: Path) -> None:
    async with hub(CONTENT[:8] + bytes(3_000)) as there:
        for _ in range(2):
            with pytest.raises(UnfitFile, match=r"names no architecture.*What was downloaded is deleted"):
                await got(there, tmp_path)
            assert left(tmp_path) == []


async def test_messages_do_not_name_the_query_of_a_url(tmp_path: Path) -> None:
    async with hub(status=[403], move_to="/cdn") as there:
        for source in (f"{there.url}/{REPO}/resolve/main/{FILE}?key=SECRET", f"{there.url}/none.gguf?key=SECRET"):
            with pytest.raises(UnfitFile) as failed:
                await got(there, tmp_path, source)
            assert "answers 40" in str(failed.value) and "SECRET" not in str(failed.value)


@pytest.mark.parametrize("source", [f"hf:{REPO}", f"{{}}/{REPO}/resolve/main/{FILE}", f"{{}}/{REPO}/blob/main/{FILE}"])
async def test_an_answer_that_breaks_off_is_resumed(tmp_path: Path, source: str) -> None:
    async with hub(cuts=[*([len(CONTENT)] * ("{}" in source)), 300_000, 500_000]) as there:
        path, download = await got(there, tmp_path, source.format(there.url))
        assert path.read_bytes() == CONTENT
        assert there.sent_from[-2:] == ["bytes=300000-", "bytes=500000-"]
        assert (download.received, download.checked) == (len(CONTENT), "sha256")


async def test_the_last_bytes_are_on_the_disk_when_the_file_is_checked(tmp_path: Path) -> None:
    """A small last piece waits in the buffer of the file."""
    async with hub(cuts=[len(CONTENT) - 100]) as there:
        assert (await got(there, tmp_path))[0].read_bytes() == CONTENT


def open_to_others(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.stat().st_mode & 0o077]


CHANGED: dict[str, dict[str, Any]] = {
    "another ETag": {"etag": '"other"'},
    "no ranges": {"ranges": False},
    "no checksum": {"checksum": ""},
    "errors that pass": {"status": [503, 429]},
}
RESTARTED = ("another ETag", "no ranges")


@pytest.mark.parametrize("name", CHANGED)
async def test_what_another_process_has_left_is_continued_or_begun_again(tmp_path: Path, name: str) -> None:
    async with hub(held_at=300_000) as there:
        client = HubClient(there.url)
        plan = await client.plan(f"hf:{REPO}")
        download = Download(name=plan.name, source=plan.source, folder=plan.folder)
        going = asyncio.create_task(fetch(client, plan, tmp_path / "models", LIMITS, download))
        async with asyncio.timeout(10):
            while download.bytes < 100_000:
                await there.client_reads()
        with pytest.raises(UnfitFile, match="being downloaded already"):
            await got(there, tmp_path / "models")
        going.cancel()
        await asyncio.wait([going])
    [gone] = interrupted(tmp_path / "models")
    assert open_to_others(tmp_path) == []
    assert (gone.source, gone.name, gone.state) == (f"hf:{REPO}", "tiny-q4_k_m", "interrupted")
    content = CONTENT[:-1] + b"x" if name in RESTARTED else CONTENT
    async with hub(content, **CHANGED[name]) as there:
        path, download = await got(there, tmp_path / "models")
    assert (path.read_bytes() == content, left(tmp_path)) == (True, [FILE])
    assert (download.received < len(CONTENT)) == (name not in RESTARTED)
    assert download.checked == ("size and format" if name == "no checksum" else "sha256")


LEFT = [1, *[9 << 30] * 3]


def shrinking(_: Path) -> int:
    """Return the free space of a disk that others fill meanwhile."""
    return LEFT.pop()


REFUSED: dict[str, tuple[dict[str, Any], DownloadLimits, str, bool]] = {
    "a wrong checksum": ({"checksum": "0" * 64}, LIMITS, "has not the checksum", False),
    "too large": ({}, DownloadLimits(most_bytes=1000), "model_download_mb allows", False),
    "no end": ({"endless": True}, LIMITS, "has no end: more came than", False),
    "no room": ({}, DownloadLimits(most_bytes=1 << 30, free=lambda _: 512 << 20), "has room for 0.0 GB", False),
    "room that others take": (
        {},
        DownloadLimits(most_bytes=1 << 30, look_bytes=100_000, free=shrinking),
        "has room for 0.0 GB",
        True,
    ),
    "cut for ever": ({"cuts": [9] * 9}, LIMITS, "broke off 3 times", True),
    "errors for ever": ({"status": [500] * 9}, LIMITS, "broke off 3 times", False),
    "no answer": ({"held_at": 9}, DownloadLimits(most_bytes=1 << 30, seconds=0.3), "was not there after 0.3 s", True),
    "gated": ({"gated": True}, LIMITS, "set model_hub_token", False),
    "moved to a private host": (
        {"move_to": "https://10.0.0.7"},
        LIMITS,
        "10.0.0.7 is not on the public internet",
        False,
    ),
    "moved to this machine": ({"move_to": "https://127.0.0.1"}, LIMITS, "is not on the public internet", False),
    "moved to http": ({"move_to": "http://127.0.0.1:9"}, LIMITS, "is not encrypted", False),
    "moved to a file": ({"move_to": "file:///etc"}, LIMITS, "is not a web address", False),
    "moved for ever": ({"move_to": ""}, LIMITS, "redirects more than 5 times", False),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_fetched_says_why(tmp_path: Path, name: str) -> None:
    faults, limits, words, keeps = REFUSED[name]
    async with asyncio.timeout(20), hub(**faults) as there:
        with pytest.raises(UnfitFile) as failed:
            await got(there, tmp_path, limits=limits)
    assert words in str(failed.value)
    assert left(tmp_path) == ([FILE + PART, FILE + NOTES] if keeps else [])
    for download in interrupted(tmp_path):
        discard(tmp_path, download)
    assert left(tmp_path) == []


async def test_the_token_is_for_the_hub_and_all_parts_are_fetched(tmp_path: Path) -> None:
    parts = {f"Q8_0/big-Q8_0-0000{n}-of-00002.gguf": CONTENT[: 9_000 * n] for n in (1, 2)}
    files = {**parts, "big-Q4_K_M.gguf": CONTENT}
    async with model_hub({REPO: files}, gated=True) as there:
        path, download = await got(there, tmp_path, f"hf:{REPO}:q8_0", token=TOKEN)
        assert left(tmp_path) == [name.partition("/")[2] for name in parts]
        assert (path.name, download.bytes, download.total) == ("big-Q8_0-00001-of-00002.gguf", 27_000, 27_000)
        with pytest.raises(
            UnfitFile, match=r"has no Q2_K. There are: Q4_K_M \(0.0 GB\), Q8_0 .*Write hf:ann/tiny-GGUF:"
        ):
            await got(there, tmp_path, f"hf:{REPO}:Q2_K", token=TOKEN)
