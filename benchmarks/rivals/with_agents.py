"""openai-agents. python -m benchmarks.rivals.with_agents UPSTREAM_URL"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

import agents
import openai

from benchmarks.rivals.served import serve


async def answer(message: str) -> AsyncGenerator[str, None]:
    async with aclosing(agents.Runner.run_streamed(AGENT, message).stream_events()) as events:
        async for event in events:
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield event.data.delta


if __name__ == "__main__":
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=sys.argv[1], api_key="none")
    AGENT = agents.Agent("bench", model=agents.OpenAIChatCompletionsModel("bench", client))
    serve(answer)
