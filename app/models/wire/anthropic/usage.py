"""Tokens, as the Messages API counts them: what was read from its cache and what was kept there stand apart."""

from __future__ import annotations

from typing import Any

from app.core.provider import TokenUsage
from app.models.wire.native_calls import index_of
from app.models.wire.openai.chunks import MOST_TOKENS

FRESH, CACHED, WRITTEN = "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"
SAID = "output_tokens"


class UsageCounts:
    """Those of one answer. They only grow: gateways say 0 at the end of what they do not know there."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def see(self, holder: dict[str, Any]) -> None:
        usage = holder.get("usage")
        for field in (FRESH, CACHED, WRITTEN, SAID):
            count = index_of(usage.get(field)) if isinstance(usage, dict) else None
            if count is not None and 0 <= count < MOST_TOKENS:
                self._most[field] = max(count, self._most.get(field, 0))

    def used(self) -> TokenUsage | None:
        most = self._most
        prompt = sum(most.get(field, 0) for field in (FRESH, CACHED, WRITTEN))
        said = most.get(SAID, 0)
        return TokenUsage(prompt, said, most.get(CACHED), most.get(WRITTEN)) if prompt or said else None
