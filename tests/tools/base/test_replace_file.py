"""Files that are replaced: the old one or the new one is there, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.base.texts import replace_file


def test_a_file_is_replaced_whole_and_keeps_its_mode_and_links(tmp_path: Path) -> None:
    path, link = tmp_path / "a.json", tmp_path / "link"
    replace_file(path, "Grüße\n")
    assert path.stat().st_mode & 0o777 == 0o600 and path.read_bytes() == "Grüße\n".encode()
    path.chmod(0o644)
    link.symlink_to("a.json")
    replace_file(link, "more\n")
    assert path.stat().st_mode & 0o777 == 0o644 and link.is_symlink() and path.read_text() == "more\n"
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "half \ud800")
    assert path.read_text() == "more\n" and sorted(one.name for one in tmp_path.iterdir()) == ["a.json", "link"]
