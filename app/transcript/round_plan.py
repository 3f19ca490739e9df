"""The plan of a round: with or without tools, and the notes for its one request."""

from __future__ import annotations

from msgspec import Struct

from app.core.events import Notice


class RoundPlan(Struct, frozen=True):
    """`notes` are for this request only and never stored. `ends`: the reason of the run's end, if this is its last.

    `go_on`: another model is to go on with the last reply, as this one of the notes says.
    """

    tools: bool = True
    notes: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    ends: str | None = None
    go_on: str | None = None
