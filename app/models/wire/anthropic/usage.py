"""Token usage of the Messages API, which counts cache reads and cache writes separately."""

from __future__ import annotations

from typing import Any

from app.core.provider import TokenUsage
from app.models.wire.native_calls import index_of
from app.models.wire.openai.chunks import MOST_TOKENS

FRESH, CACHED, WRITTEN = "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"
OUTPUT = "output_tokens"


class UsageCounts:
    """Counts of one answer. They never decrease: some gateways report 0 at the end."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def see(self, holder: dict[str, Any]) -> None:
        usage = holder.get("usage")
        for field in (FRESH, CACHED, WRITTEN, OUTPUT):
            count = index_of(usage.get(field)) if isinstance(usage, dict) else None
            if count is not None and 0 <= count < MOST_TOKENS:
                self._most[field] = max(count, self._most.get(field, 0))

    def used(self) -> TokenUsage | None:
        most = self._most
        prompt = sum(most.get(field, 0) for field in (FRESH, CACHED, WRITTEN))
        output = most.get(OUTPUT, 0)
        return TokenUsage(prompt, output, most.get(CACHED), most.get(WRITTEN)) if prompt or output else None
