"""What the engines' windows share: waits inside the page, and programs that end with all their children."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.support.nightly import at_night

LIMIT_S = at_night(90.0, 30.0)  # fifty tabs at once take long on a busy machine
# Inside the page, where a value is seen as soon as it is there. An expression that breaks has no value yet.
WAIT = """
new Promise((resolve) => {
  const until = Date.now() + %d;
  const look = async () => {
    let value = null;
    try { value = await (%s); } catch (error) { value = null; }
    if (value || Date.now() > until) resolve({ value: value ?? null });
    else setTimeout(look, 40);
  };
  look();
})
"""


class Waiting:
    """Gives a window that evaluates expressions the waits for them."""

    async def evaluate(self, expression: str) -> Any:
        raise NotImplementedError

    async def wait_for(self, expression: str, limit_s: float = LIMIT_S) -> Any:
        async with asyncio.timeout(limit_s + LIMIT_S):  # of a page that hangs
            value = (await self.evaluate(WAIT % (limit_s * 1000, expression)))["value"]
        if not value:
            text = await self.evaluate("document.body?.innerText.slice(0, 600)")
            raise TimeoutError(f"{expression} is {json.dumps(value)} after {limit_s} s. The page shows: {text!r}")
        return value


@asynccontextmanager
async def program(*command: str, **options: Any) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """A program in a session of its own, which is killed with all of its children in the end."""
    process = await asyncio.create_subprocess_exec(*command, start_new_session=True, **options)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
