"""An application that is opened by its first request."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import ModuleType

import pytest

from routes.protocol.application import LazyApplication

pytestmark = pytest.mark.anyio


async def test_a_failure_to_open_is_raised_and_the_next_request_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    faults, closed = [OSError("no room")], list[str]()

    @asynccontextmanager
    async def opened(services: str) -> AsyncGenerator[str, None]:
        if faults:
            raise faults.pop()
        yield f"application of {services}"
        closed.append(services)

    module = ModuleType("module")
    module.__dict__["opened"] = opened
    monkeypatch.setitem(sys.modules, "module_to_open", module)
    lazy = LazyApplication("module_to_open")
    async with asyncio.timeout(10):
        first = await asyncio.gather(lazy.get("these"), lazy.get("these"), return_exceptions=True)
        assert [str(one) for one in first] == ["no room"] * 2
        again = await asyncio.gather(lazy.get("these"), lazy.get("these"))
        assert [str(one) for one in again] == ["application of these"] * 2
        await lazy.aclose()
    assert closed == ["these"]
