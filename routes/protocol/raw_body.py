"""The bytes of a request's body, within bounds of length, time and parts; and work on long ones beside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import ParamSpec, TypeVar

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from routes.protocol.errors import Refused

BODY_TIME_S = 60.0  # in which a body must have arrived
NO_MORE = {"Connection": "close"}  # the rest of it is not wanted any more
BESIDE_LOOP_BYTES = 64 << 10
P = ParamSpec("P")
Result = TypeVar("Result")


class BodyLimits(Struct, frozen=True):
    """Limits in bytes. A body above `usual` waits until few others of its principal are held.

    `parts` limits the lists, objects and members of such a one: files are long and simple; what is long and has many
    parts would take far more room once it is read. `too_long` and `too_many` are the messages of 413.
    """

    usual: int
    most: int
    parts: int
    too_long: str
    too_many: str = "The body has too many parts for one message with files. Send fewer."


async def read_body(
    request: Request, limits: BodyLimits, held: AsyncExitStack | None = None, time_limit_s: float = BODY_TIME_S
) -> bytes:
    """The whole body. `held` keeps the slot of a large one.

    Raises Refused with 400 (cut), 408 (too slow) or 413 (too long), and NotAllowedAnyMore.
    """
    body, large, parts = bytearray(), False, 0
    try:
        async with asyncio.timeout(time_limit_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.most:
                    raise Refused(413, "too_long", limits.too_long)
                if large:
                    parts += _parts(chunk)
                elif len(body) > limits.usual and held:
                    large, parts = True, _parts(body)
                    slots = request.app.state.services.factory.files.upload_slots(request.state.principal.name)
                    await held.enter_async_context(slots)
    except TimeoutError:
        message = f"The body did not arrive completely within {time_limit_s:g} s. Send it faster."
        raise Refused(408, "body_slow", message, NO_MORE) from None
    except ClientDisconnect:
        raise Refused(400, "body_cut", "The connection closed before the whole body had arrived.") from None
    if request.state.principal:  # not of a route that is open
        request.app.state.services.presence.check(request.state.principal)  # a body may take a minute
    if large and parts > limits.parts:
        raise Refused(413, "too_long", limits.too_many)
    return bytes(body)


def _parts(data: bytes | bytearray) -> int:
    return sum(map(data.count, (b",", b"[", b"{")))


async def call_beside_loop(size: int, function: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs) -> Result:
    """Call a function about `size` bytes of a stranger's, in a thread if it may take long.

    The loop gets the interpreter back every few milliseconds, but for single calls that are written in C.
    """
    if size <= BESIDE_LOOP_BYTES:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
