"""pydantic-ai. python -m benchmarks.rivals.with_pydantic_ai UPSTREAM_URL"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from benchmarks.rivals.served import serve


async def answer(message: str) -> AsyncGenerator[str, None]:
    async with AGENT.run_stream(message) as result:
        async with aclosing(result.stream_text(delta=True, debounce_by=None)) as deltas:
            async for delta in deltas:
                yield delta


if __name__ == "__main__":
    AGENT = Agent(OpenAIChatModel("bench", provider=OpenAIProvider(base_url=sys.argv[1], api_key="none")))
    serve(answer)
