"""Pictures that a message names by their whole path, as terminals write it for a file that is dropped on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from routes.terminal.attachments import attached, with_files


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("{0}/x.png", ["x.png"]),
        ("Look at {0}/x.png, and at {0}/x.png.", ["x.png"]),
        ("'{0}/with space.jpg' is it", ["with space.jpg"]),
        ('see "{0}/with space.jpg"', ["with space.jpg"]),
        (r"{0}/with\ space.jpg {0}/x.png", ["with space.jpg", "x.png"]),
        ("file://{0}/with%20space.jpg", ["with space.jpg"]),
        ("file://localhost{0}/x.png", ["x.png"]),
        ("@{0}/x.png", ["x.png"]),
        ("@{0}/x.png {0}/x.png", ["x.png"]),
        ("{0}/none.png", []),
        ("{0}/folder.png", []),
        ("{0}/notes.txt", []),
        ("x.png", []),
        ("http://host{0}/x.png", []),
        ("'{0}/x.png", []),
        ("file://%00.png ~nobody-here/x.png /\\", []),
    ],
)
def test_a_path_of_a_picture_attaches_it(tmp_path: Path, message: str, names: list[str]) -> None:
    for name in ("x.png", "with space.jpg", "notes.txt"):
        (tmp_path / name).write_bytes(b"\x89PNG" * 300)
    (tmp_path / "folder.png").mkdir()
    parts, problems = with_files(message.format(tmp_path))
    files = [part["name"] for part in parts if part["type"] == "file"] if isinstance(parts, list) else []
    assert (files, problems) == (names, [])
    assert attached(parts) == [f"[picture {name}, 1.2 KB]" for name in names]
    assert parts == message.format(tmp_path) or parts[0] == {"type": "text", "text": message.format(tmp_path)}
