"""The files of a persona: what they say is told, and what cannot be read stops nothing."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.context.persona import MOST, SOUL, USER, Persona, persona_in

READ: dict[str, tuple[bytes, str]] = {
    "plain": (b"You are Ann's gardener.\n", "You are Ann's gardener."),
    "any script": ("Du hei\u00dft \u9f8d \U0001f409.".encode(), "Du hei\u00dft \u9f8d \U0001f409."),
    "with a mark of order": (b"\xef\xbb\xbfHello", "Hello"),
    "lines of Windows": (b"one\r\ntwo\r\n", "one\ntwo"),
    "empty": (b" \n\n", ""),
    "exactly as much as is told": (b"x" * MOST, "x" * MOST),
    "as much, of the longest characters": (("\U0001f409" * MOST).encode(), "\U0001f409" * MOST),
}


@pytest.mark.parametrize(("written", "told"), READ.values(), ids=READ)
def test_what_is_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture, written: bytes, told: str) -> None:
    (tmp_path / SOUL).write_bytes(written)
    assert persona_in(tmp_path) == Persona(soul=told)
    (tmp_path / USER).write_bytes(b"Ann")
    assert persona_in(tmp_path) == Persona(told, "Ann")
    assert not caplog.records


def test_without_a_folder_there_is_no_persona(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert persona_in(tmp_path / "absent") == Persona()
    assert not caplog.records


def test_a_link_may_point_anywhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "cook.txt").write_text("You cook.")
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / SOUL).symlink_to(tmp_path / "elsewhere" / "cook.txt")
    (tmp_path / "bob").symlink_to(tmp_path / "ann")
    assert persona_in(tmp_path / "ann") == persona_in(tmp_path / "bob") == Persona("You cook.")


@pytest.mark.parametrize("character", ["x", "\u9f8d", "\U0001f409", "x\U0001f409"])
def test_of_a_huge_file_only_the_beginning_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, character: str
) -> None:
    (tmp_path / USER).write_text(character * 10**6)
    read = persona_in(tmp_path).user
    assert MOST < len(read) <= 5 * MOST and read == (character * len(read))[: len(read)]
    [record] = caplog.records
    assert str(tmp_path / USER) in record.getMessage() and f"{MOST:,}" in record.getMessage()


def a_loop(path: Path) -> None:
    path.symlink_to(path)


UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a directory": (Path.mkdir, "not a regular file"),
    "a pipe": (os.mkfifo, "not a regular file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "a loop of links": (a_loop, "Too many levels"),
    "Latin-1": (lambda path: path.write_bytes("Du hei\u00dft".encode("latin-1")), "not valid UTF-8 at byte 6"),
    "UTF-16": (lambda path: path.write_bytes("Hello".encode("utf-16")), "not valid UTF-8 at byte 0"),
    "UTF-16 without a mark": (lambda path: path.write_bytes("Hello".encode("utf-16-le")), "NUL"),
    "cut in a character": (lambda path: path.write_bytes("\u9f8d".encode()[:2]), "not valid UTF-8 at byte 0"),
}


@pytest.mark.parametrize("name", [SOUL, USER])
@pytest.mark.parametrize(("make", "why"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_left_out_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], object], why: str, name: str
) -> None:
    other = USER if name == SOUL else SOUL
    make(tmp_path / name)
    (tmp_path / other).write_text("Fine.")
    opened = {*Path("/proc/self/fd").iterdir()}
    assert persona_in(tmp_path) == (Persona(user="Fine.") if other == USER else Persona("Fine."))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert str(tmp_path / name) in record.getMessage() and why in record.getMessage()
    assert {*Path("/proc/self/fd").iterdir()} <= opened, "it is closed again"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_that_is_forbidden_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / SOUL).write_text("Secret.")
    (tmp_path / SOUL).chmod(0)
    assert persona_in(tmp_path) == Persona()
    assert "Permission denied" in caplog.text


def test_a_folder_that_is_a_file_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "ann").write_text("You cook.")
    assert persona_in(tmp_path / "ann") == Persona()
    assert "Not a directory" in caplog.text


def test_a_pipe_that_somebody_writes_to_is_not_read_either(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / SOUL)
    reader = os.open(tmp_path / SOUL, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / SOUL, os.O_WRONLY)
    os.write(writer, b"You are hijacked.")
    found: list[Persona] = []
    asking = threading.Thread(target=lambda: found.append(persona_in(tmp_path)), daemon=True)
    asking.start()
    asking.join(10)
    os.close(writer)
    os.close(reader)
    assert found == [Persona()]
