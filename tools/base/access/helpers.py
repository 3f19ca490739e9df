"""Helpers and other models, as the tools of a run reach them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from tools.base.outcome import Progress, Result


class HelperAccess(Protocol):
    """Every method raises ToolFailed."""

    def delegate(
        self, task: str, tools: Sequence[str] | None, model: str | None
    ) -> AsyncGenerator[Progress | Result, None]:
        """Run a helper to its end. Closing the generator stops it."""
        ...

    async def ask_model(self, question: str, model: str | None) -> str:
        """Return the answer of a model, as data."""
        ...
