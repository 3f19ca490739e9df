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


async def test_the_loop_does_not_wait_for_a_module_that_another_thread_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = ModuleType("importing_gate")
    gate.begun, gate.may_end = threading.Event(), threading.Event()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "importing_gate", gate)
    slow = "import importing_gate as gate\ngate.begun.set()\nassert gate.may_end.wait(10)\n"
    (tmp_path / "importing_slowly.py").write_text(slow)
    monkeypatch.syspath_prepend(tmp_path)
    first = asyncio.create_task(import_in_thread("importing_slowly"))
    await asyncio.to_thread(gate.begun.wait)
    second = asyncio.create_task(import_in_thread("importing_slowly"))
    asyncio.get_running_loop().call_soon(gate.may_end.set)  # by the loop, which must not wait
    assert await first is await second
