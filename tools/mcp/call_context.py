"""The context of the MCP call in progress, for transports and callbacks."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextvars import ContextVar

from msgspec import Struct, field

from tools.base.output_buffer import TAIL_LINES
from tools.tool import Context


class CallContext(Struct, eq=False):
    """State of one call. `sent`: the server has some of it; `unsent`: the server provably never received it."""

    tool: str
    context: Context
    sent: bool = False
    unsent: bool = False
    lost: str = ""  # why the connection was lost during the call
    task: str = ""  # the id of the task that it has become, which outlives the connection
    status: int = 0  # of HTTP, when it was refused
    notes: list[str] = field(default_factory=list)
    messages: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    count: int = 0  # signs of progress
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    alive_at: float = field(default_factory=time.monotonic)
    open_questions: int = 0  # questions to a person that are open
    question_count: int = 0  # to a person, so far
    question_s: float = 0.0  # time that answered questions took, not counted against the call

    def touch(self) -> None:
        self.alive_at = time.monotonic()
        self.woken.set()


current_call: ContextVar[CallContext | None] = ContextVar("the MCP call in progress", default=None)
