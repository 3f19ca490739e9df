"""Headers of model files: what is read of good ones, and that hostile ones are refused with a reason, at once."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.serving.catalogue import ServingOptions, check_folder, check_unchanged, checked_row, files_in, name_of
from app.models.serving.gguf import LONGEST_TEXT, read_header
from app.models.serving.refusals import UnfitFile
from tests.support.models.gguf_files import FIELDS, field, gguf, head, tensor, text, written

MUCH = (1 << 64) - 1
ARCHITECTURE = field("general.architecture", "llama")


def test_a_header_is_read(tmp_path: Path) -> None:
    header = read_header(written(tmp_path / "tiny.gguf"))
    assert (header.name, header.architecture, header.quantisation, header.context) == ("Tiny", "llama", "Q4_K_M", 2048)
    assert (header.template, header.layers, header.vocabulary, header.parts) == (True, 4, 3, 1)
    assert header.bytes == (tmp_path / "tiny.gguf").stat().st_size
    assert header.cells == 4 * 2 * (8 + 8)  # layers, heads of the cache, keys and values of 64 / 8 each


def test_layers_with_a_window_or_without_a_cache_count_so(tmp_path: Path) -> None:
    gemma = {name.replace("llama.", "gemma3."): value for name, value in FIELDS.items()} | {
        "general.architecture": "gemma3",
        "gemma3.block_count": 6,
        "gemma3.attention.sliding_window": 512,
        "gemma3.attention.key_length": 16,
        "gemma3.attention.value_length": 16,
    }
    header = read_header(written(tmp_path / "g.gguf", gguf(gemma)))
    assert (header.cells, header.window_cells, header.window) == (2 * 32, 5 * 2 * 32, 512)
    mixed = read_header(written(tmp_path / "m.gguf", gguf({**FIELDS, "llama.attention.head_count_kv": [0, 2, 0, 2]})))
    assert mixed.cells == 2 * 2 * 16


HOSTILE = {
    "empty": (b"", "is damaged"),
    "another file": (b"PK\x03\x04" + bytes(60), "is no GGUF file"),
    "cut in the counts": (head(1, 1)[:14], "is damaged"),
    "version 1": (head(0, 0, 1), "GGUF version 1"),
    "a version to come": (head(0, 0, 99), "GGUF version 99"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 1, 1), "big-endian"),
    "as many values as there are": (head(0, MUCH), "and at most"),
    "as many tensors as there are": (head(MUCH, 0), "and at most"),
    "a name without an end": (head(0, 1) + struct.pack("<Q", MUCH), "a text of"),
    "a long name": (head(0, 1) + text("n" * 300), "a text of"),
    "a text longer than the file": (head(0, 1) + text("a") + struct.pack("<IQ", 8, 1 << 20), "cut off"),
    "a text longer than texts are": (head(0, 1) + text("a") + struct.pack("<IQ", 8, LONGEST_TEXT + 1), "a text of"),
    "an unknown type": (head(0, 1) + text("a") + struct.pack("<I", 77), "type 77"),
    "a list of lists": (head(0, 1) + text("a") + struct.pack("<IIQ", 9, 9, 1), "of type 9"),
    "a list that overflows": (head(0, 1) + text("a") + struct.pack("<IIQ", 9, 10, MUCH), "cut off"),
    "a short list that overflows": (head(0, 1) + text("a") + struct.pack("<IIQ", 9, 10, 4000), "cut off"),
    "as many texts as there are": (head(0, 1) + text("a") + struct.pack("<IIQ", 9, 8, MUCH), "texts"),
    "a text in a list without an end": (head(0, 1) + text("a") + struct.pack("<IIQQ", 9, 8, 1, MUCH), "cut off"),
    "cut in a number": (head(0, 1) + text("a") + struct.pack("<I", 10) + b"\0", "cut off"),
    "no architecture": (head(0, 0), "names no architecture"),
    "an architecture that is no word": (
        head(0, 1) + field("general.architecture", "../etc\n"),
        "names no architecture",
    ),
    "no layers": (head(0, 1) + ARCHITECTURE, "has no layers"),
    "a tensor with many dimensions": (head(1, 1) + ARCHITECTURE + tensor("w", 0, 9), "9 dimensions"),
    "a tensor outside": (head(1, 1) + ARCHITECTURE + tensor("w", 1 << 60), "is cut off"),
    "an alignment of nothing": (head(1, 1) + field("general.alignment", 1 << 31) + tensor("w", 0), "an alignment"),
    "cut in the weights": (gguf()[:-100], "is cut off"),
    "cut in the header": (gguf()[:200], "is damaged"),
}


@pytest.mark.parametrize(("content", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_with_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(UnfitFile, match=reason):
        read_header(written(tmp_path / "x.gguf", content))


@given(st.binary(max_size=400), st.integers(0, 500))
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, damage: bytes, place: int) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    whole = gguf()
    path.write_bytes(whole[:place] + damage + whole[place + len(damage) :])
    try:
        read_header(path)
    except UnfitFile as refusal:
        assert str(path) in str(refusal) or "context" in str(refusal)


def test_a_huge_header_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = written(tmp_path / "x.gguf", head(0, 1) + text("a") + struct.pack("<IIQ", 9, 0, 1 << 40))
    os.truncate(path, 1 << 41)  # a sparse file
    with pytest.raises(UnfitFile, match="longer than a header"):
        read_header(path)


def test_what_is_no_file_is_refused_and_nothing_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    for name, reason in {
        "pipe.gguf": "no regular file",
        "folder.gguf": "no regular file",
        "loop.gguf": "cannot be read",
        "missing.gguf": "No such file",
        "nul\0.gguf": "not valid",
        "a" * 300: "File name too long",
    }.items():
        with pytest.raises(UnfitFile, match=reason):
            read_header(tmp_path / name)
    with pytest.raises(UnfitFile, match="no regular file"):
        read_header(Path(os.devnull))


def test_all_parts_of_a_split_model_are_needed(tmp_path: Path) -> None:
    def part(number: int, parts: int = 3) -> bytes:
        return gguf({**FIELDS, "split.no": number, "split.count": parts})

    first = written(tmp_path / "big-00001-of-00003.gguf", part(0))
    written(tmp_path / "big-00002-of-00003.gguf", part(1))
    with pytest.raises(UnfitFile, match=r"big-00003-of-00003\.gguf is missing"):
        read_header(first)
    third = written(tmp_path / "big-00003-of-00003.gguf", part(2)[:-100])
    with pytest.raises(UnfitFile, match="is cut off"):
        read_header(first)
    written(third, part(2))
    assert read_header(first).bytes == 3 * len(part(0))
    assert read_header(first).parts == 3
    with pytest.raises(UnfitFile, match=r"name big-00001-of-00003\.gguf"):
        read_header(third)
    with pytest.raises(UnfitFile, match="must be named as in"):
        read_header(written(tmp_path / "renamed.gguf", part(0)))
    with pytest.raises(UnfitFile, match="must be named as in"):
        read_header(written(tmp_path / "huge-00001-of-00003.gguf", part(0, 1 << 31)))
    assert name_of(first) == "big"


def test_a_row_has_what_was_wanted_or_the_header_says(tmp_path: Path) -> None:
    path, work = written(tmp_path / "Tiny Q4.gguf"), tmp_path / "work"
    row = checked_row(path, ServingOptions(), "root", work)
    assert (row.name, row.context, row.slots, row.cache_type) == ("tiny-q4", 2048, 1, "f16")
    check_unchanged(row)
    for wanted, reason in (
        (ServingOptions(context=4096), "trained for 2,048"),
        (ServingOptions(context=10), "choose 512 to"),
        (ServingOptions(slots=0), "choose 1 to 64"),
        (ServingOptions(name="a/b"), "cannot be its name"),
    ):
        with pytest.raises(UnfitFile, match=reason):
            checked_row(path, wanted, "root", work)
    os.utime(path, ns=(1, 1))
    with pytest.raises(UnfitFile, match="has changed"):
        check_unchanged(row)
    path.unlink()
    with pytest.raises(UnfitFile, match="Bring it back"):
        check_unchanged(row)


def test_a_model_that_tools_could_replace_is_refused(tmp_path: Path) -> None:
    work = tmp_path / "work"
    written(work / "x.gguf")
    (tmp_path / "link.gguf").symlink_to(work / "x.gguf")
    for path in (work / "x.gguf", tmp_path / "link.gguf"):
        with pytest.raises(UnfitFile, match="inside the workspace"):
            checked_row(path, ServingOptions(), "root", work)


def test_over_http_only_files_in_the_folders_exist(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    inside = written(folder / "more" / "x.gguf")
    secret = written(tmp_path / "secret.gguf")
    (folder / "link.gguf").symlink_to(secret)
    folders = [str(folder)]
    assert check_folder("more/x.gguf", folders) == check_folder(str(inside), folders) == inside
    answers = set()
    for path in (secret, tmp_path / "missing.gguf", folder / "link.gguf", "../secret.gguf", "/etc/passwd", "a\0b"):
        with pytest.raises(UnfitFile) as refused:
            check_folder(str(path), folders)
        answers.add(str(refused.value))
    assert len(answers) == 1
    with pytest.raises(UnfitFile, match="Set it to the folders"):
        check_folder(str(inside), [])
    written(folder / "s-00001-of-00002.gguf")
    written(folder / "s-00002-of-00002.gguf")
    assert files_in(folders) == [str(folder / one) for one in ("link.gguf", "more/x.gguf", "s-00001-of-00002.gguf")]
