"""What a run may use, in one place; 0 is no limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Rounds of model and tools, tool calls, tokens read and written, seconds."""

    rounds: int = 20
    calls: int = 0
    tokens: int = 0
    seconds: float = 0
