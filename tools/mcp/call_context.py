"""The call that is under way, for what happens in the middle of it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass, field

from tools.base.output_buffer import TAIL_LINES
from tools.tool import Context


@dataclass(slots=True, eq=False)
class CallContext:
    """One call, seen from inside. `sent`: the server has some of it; `unsent`: it surely has nothing."""

    tool: str
    context: Context
    sent: bool = False
    unsent: bool = False
    lost: str = ""  # why the connection went away under it
    status: int = 0  # of HTTP, when it was refused
    notes: list[str] = field(default_factory=list)
    messages: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    count: int = 0  # signs of progress
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    alive_at: float = field(default_factory=time.monotonic)
    open_questions: int = 0  # questions to a person that are open
    question_count: int = 0  # that people were asked, or are to be
    question_s: float = 0.0  # how long people have been asked so far

    def touch(self) -> None:
        self.alive_at = time.monotonic()
        self.woken.set()


current_call: ContextVar[CallContext | None] = ContextVar("the call of an MCP tool that this happens in", default=None)
