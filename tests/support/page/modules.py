"""The page's modules, and what each of them imports."""

from __future__ import annotations

import re
from pathlib import Path

from tests import ROOT

PAGE = ROOT / "routes/page"
ENTRIES = ("dom/errors.js", "main.js")
IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["'](\.{1,2}/[^"']+)["']""")


def imported(path: Path) -> list[Path]:
    found = [(path.parent / name).resolve() for name in IMPORT.findall(path.read_text()) if not name.endswith(".json")]
    missing = [name for name in found if not name.is_file()]
    assert not missing, f"{path.name} imports what is not there: {missing}"
    return found


def reached(entries: list[Path]) -> set[Path]:
    """All that these modules import in the end."""
    seen: set[Path] = set()
    left = list(entries)
    while left:
        path = left.pop()
        if path not in seen:
            seen.add(path)
            left += imported(path)
    return seen
