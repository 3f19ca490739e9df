"""Work on long bodies beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

BESIDE_LOOP_BYTES = 256 << 10
P = ParamSpec("P")
Result = TypeVar("Result")


async def call_beside_loop(size: int, function: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs) -> Result:
    """Call a function about `size` bytes of a stranger's, in a thread if it may take long.

    The loop gets the interpreter back every few milliseconds, but for single calls that are written in C.
    """
    if size <= BESIDE_LOOP_BYTES:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
