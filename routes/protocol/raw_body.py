"""The bytes of a request's body, within bounds of length, time and parts."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from routes.protocol.errors import Refused

BODY_TIME_S = 60.0  # in which a body must have arrived


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
    body, large = bytearray(), False
    try:
        async with asyncio.timeout(time_limit_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.most:
                    raise Refused(413, "too_long", limits.too_long)
                if len(body) > limits.usual and held and not large:
                    large = True
                    slots = request.app.state.services.files.upload_slots(request.state.principal.name)
                    await held.enter_async_context(slots)
    except TimeoutError:
        slow = Refused(
            408, "body_slow", f"The body did not arrive completely within {time_limit_s:g} s. Send it faster."
        )
        slow.headers = {"Connection": "close"}  # the rest of it is not wanted any more
        raise slow from None
    except ClientDisconnect:
        raise Refused(400, "body_cut", "The connection closed before the whole body had arrived.") from None
    if request.state.principal:  # not of a route that is open
        request.app.state.services.presence.check(request.state.principal)  # a body may take a minute
    if large and sum(map(body.count, (b",", b"[", b"{"))) > limits.parts:
        raise Refused(413, "too_long", limits.too_many)
    return bytes(body)
