"""Imports in other threads: one at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tools.base.tasks import import_in_thread

pytestmark = pytest.mark.anyio
MEETS = """
import threading
barrier = threading.Barrier(2)

def met():
    try:
        barrier.wait(timeout=0.2)
        return True
    except threading.BrokenBarrierError:
        barrier.reset()
        return False
"""


async def test_two_modules_are_imported_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Side by side, two that import each other end in a deadlock, which Python answers with an error."""
    (tmp_path / "importing_at_once.py").write_text(MEETS)
    for name in ("importing_first", "importing_second"):
        (tmp_path / f"{name}.py").write_text("from importing_at_once import met\nMET = met()\n")
    monkeypatch.syspath_prepend(tmp_path)
    modules = await asyncio.gather(*map(import_in_thread, ("importing_first", "importing_second")))
    assert [module.MET for module in modules] == [False, False]
