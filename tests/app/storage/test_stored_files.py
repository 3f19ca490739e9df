"""What a file is, by its bytes; how many tokens it takes; how its bytes come back."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.attachments import PDF, Attachment, described, dumped, loaded
from app.models.tokens.picture_tokens import RULES, USUAL, USUAL_PAGE, tokens_of
from app.storage.changes import StoreFailed
from app.storage.files.kinds import KINDS, UnknownKind, file_of
from app.storage.files.reading import Files
from app.storage.files.store import FileRow
from app.storage.sqlite.store import SQLiteStore
from tests.support.models.pictures import gif, jpeg, pdf, png, webp

pytestmark = pytest.mark.anyio

FOUND = {
    "PNG": (png(800, 600), "image/png", (800, 600, 0)),
    "PNG without its head": (b"\x89PNG\r\n\x1a\n", "image/png", (0, 0, 0)),
    "PNG that says too much": (png(1 << 31, 6), "image/png", (0, 0, 0)),
    "JPEG": (jpeg(800, 600, 0xC0), "image/jpeg", (800, 600, 0)),
    "JPEG, progressive": (jpeg(800, 600, 0xC2), "image/jpeg", (800, 600, 0)),
    "JPEG that is cut": (jpeg(800, 600)[:20], "image/jpeg", (0, 0, 0)),
    "JPEG of nothing": (b"\xff\xd8\xff", "image/jpeg", (0, 0, 0)),
    "GIF": (gif(800, 600), "image/gif", (800, 600, 0)),
    "WebP": (webp(b"VP8X", 800, 600), "image/webp", (800, 600, 0)),
    "WebP, lossless": (webp(b"VP8L", 800, 600), "image/webp", (800, 600, 0)),
    "WebP, lossy": (webp(b"VP8 ", 800, 600), "image/webp", (800, 600, 0)),
    "PDF": (pdf(3), PDF, (0, 0, 3)),
    "PDF behind something": (pdf(2, junk=b"\xef\xbb\xbf\n" * 50), PDF, (0, 0, 2)),
    "PDF, packed": (b"%PDF-1.5\nobj << /Type /ObjStm >> stream", PDF, (0, 0, 0)),
    "PDF, linearized": (b"%PDF-1.5\n1 0 obj << /Linearized 1 /L 9 /O 3 /N 12 /T 5 >>", PDF, (0, 0, 12)),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_file_is_what_its_bytes_say(name: str) -> None:
    data, media_type, size = FOUND[name]
    found = file_of(data, "x").attachment
    assert (found.media_type, (found.width, found.height, found.pages)) == (media_type, size)
    assert (found.size, found.name, len(found.sha256)) == (len(data), "x", 64)


@pytest.mark.parametrize("data", [b"", b"<svg/>", b"BM", b"II*\0", b"MZ", b"PK\3\4", b"<html>%PD", b"RIFF1234WAVE"])
def test_other_files_are_refused_with_those_that_are_taken(data: bytes) -> None:
    with pytest.raises(UnknownKind) as refused:
        file_of(data)
    assert all(kind.name in str(refused.value) for kind in KINDS)


@given(st.sampled_from([one[0] for one in FOUND.values()]), st.binary(max_size=60), st.integers(0, 40))
def test_any_bytes_are_read_or_refused(head: bytes, noise: bytes, cut: int) -> None:
    """Whatever it says of itself, nothing breaks and no size is out of the world."""
    try:
        found = file_of(head[:cut] + noise).attachment
    except UnknownKind:
        return
    assert all(0 <= one <= 10_000_000 for one in (found.width, found.height, found.pages))
    assert loaded(dumped([found])) == (found,)
    assert tokens_of(found, "any") >= 0


def test_a_large_hostile_file_takes_no_time() -> None:
    """Segments without end, and what is nearly a page, a million times."""
    segments = b"\xff\xd8" + b"\xff\xe0\0\2" * 1_000_000
    pages = b"%PDF-1.7 " + b"/Type        /Pag" * 500_000
    assert file_of(segments).attachment.width == 0
    assert file_of(pages).attachment.pages == 0


@pytest.mark.parametrize(("fillers", "width"), [(0, 800), (100, 800), (10_000, 0)])
def test_the_fillers_of_a_jpeg_are_passed_over_but_not_for_ever(fillers: int, width: int) -> None:
    whole = jpeg(800, 600)
    assert file_of(whole[:2] + b"\xff" * fillers + whole[2:]).attachment.width == width


A_PICTURE = Attachment("0" * 64, "image/png", 1, "cat.png", 800, 600)
SHOWN = {
    "[picture cat.png, 800 x 600, image/png]": A_PICTURE,
    "[picture, image/gif]": Attachment("0" * 64, "image/gif", 1),
    "[PDF, 1 page, application/pdf]": Attachment("0" * 64, PDF, 1, pages=1),
    "[PDF law.pdf, 12 pages, application/pdf]": Attachment("0" * 64, PDF, 1, "law.pdf", pages=12),
}


@pytest.mark.parametrize("words", SHOWN)
def test_an_attachment_in_words(words: str) -> None:
    assert described(SHOWN[words]) == words
    assert described(SHOWN[words], "why") == f"{words[:-1]}: why]"


TOKENS: dict[tuple[str, int, int], float] = {
    ("claude-sonnet-4-5", 750, 1000): 1000,
    ("claude-sonnet-4-5", 8000, 8000): 1600,
    ("gpt-4o", 512, 512): 85 + 170,
    ("gpt-4o", 1024, 1024): 85 + 4 * 170,
    ("gpt-4.1", 2048, 4096): 85 + 6 * 170,
    ("gpt-4o-mini", 512, 512): 2833 + 5667,
    ("openai/gpt-5-mini", 64, 64): 4 * 1.62,
    ("gemini-2.5-flash", 384, 300): 258,
    ("gemini-2.5-flash", 1000, 700): 516,
    ("Qwen2.5-VL-7B-Instruct", 280, 280): 100,
    ("gemma-3-4b-it", 5000, 5000): 260,
    ("nobody-knows", 10, 10): USUAL,
}


@pytest.mark.parametrize("row", TOKENS, ids=str)
def test_tokens_of_a_picture(row: tuple[str, int, int]) -> None:
    model, width, height = row
    assert tokens_of(Attachment("0" * 64, "image/png", 1, "", width, height), model) == TOKENS[row]


@given(st.sampled_from([row.picture for row in RULES]), st.integers(1, 10**7), st.integers(1, 10**7))
def test_no_picture_takes_more_than_the_window_of_a_model(picture: object, width: int, height: int) -> None:
    """But for what is billed by large squares, whose sides are then absurd."""
    assert callable(picture)
    tokens = picture(width, height)
    assert tokens > 0
    assert tokens <= 60_000 or max(width, height) > 10_000


def test_tokens_of_what_cannot_be_measured() -> None:
    assert tokens_of(Attachment("0" * 64, "image/png", 1), "gpt-4o") == USUAL
    assert tokens_of(Attachment("0" * 64, PDF, 600_000), "unknown") == 10 * USUAL_PAGE
    assert tokens_of(Attachment("0" * 64, PDF, 1, pages=2), "gemini-3-pro") == 1200


async def test_bytes_are_read_once_and_kept_within_bounds(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "d.db")
    chance, sizes = random.Random(1), [100, 200, 300, 400, 5000]
    await store.write([FileRow(str(size), bytes(size)) for size in sizes])
    files, asked = Files(store, most_bytes=700), list[str]()
    read = store.file

    async def counted(sha256: str, session: str | None = None) -> bytes | None:
        asked.append(sha256)
        return await read(sha256, session)

    store.file = counted  # type: ignore[method-assign]
    await asyncio.gather(*(files.read("100") for _ in range(20)))
    assert asked == ["100"]
    for _ in range(100):
        size = chance.choice(sizes)
        assert len(await files.read(str(size))) == size
        assert sum(map(len, files._cache.values())) == files._size <= 700
    asked.clear()
    await files.read("400")
    await files.read("400")
    assert len(asked) <= 1
    with pytest.raises(StoreFailed, match="Send it again"):
        await files.read("none")
    await store.close()
