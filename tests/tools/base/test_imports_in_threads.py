"""Imports in other threads: one at a time."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from types import ModuleType

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


async def test_the_loop_goes_on_while_a_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a second one who needs it, too: it stands in `sys.modules` from the beginning of its import."""
    gate = ModuleType("importing_gate")
    begun, opened = threading.Event(), threading.Event()
    vars(gate).update(begun=begun, opened=opened)
    monkeypatch.setitem(sys.modules, "importing_gate", gate)
    source = "from importing_gate import begun, opened\nbegun.set()\nIN_TIME = opened.wait(timeout=2)\n"
    (tmp_path / "importing_slowly.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    first = asyncio.create_task(import_in_thread("importing_slowly"))
    assert await asyncio.to_thread(begun.wait, 30)
    second = asyncio.create_task(import_in_thread("importing_slowly"))
    asyncio.get_running_loop().call_soon(opened.set)  # behind what the second one does at once
    assert [module.IN_TIME for module in await asyncio.gather(first, second)] == [True, True]
