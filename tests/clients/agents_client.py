"""openai-agents: its runner over chat completions and Responses, run and streamed."""

from __future__ import annotations

import json
from contextlib import aclosing
from functools import cache
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from tests.clients.jobs import TOOLS, Job, Seen, main, whole

set_tracing_disabled(True)


@cache
def client_of(url: str, key: str) -> AsyncOpenAI:
    """One for all jobs: each reads the system's certificates, which takes longer than a job."""
    return AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


async def conversation(job: Job, seen: Seen, kind: Any, *, stream: bool) -> None:
    client = client_of(job.url, job.key)
    model = kind(model=job.model, openai_client=client)
    tools = [function_tool(TOOLS[name], use_docstring_info=True) for name in job.tools]
    agent = Agent(name="pilot", model=model, tools=tools, model_settings=ModelSettings(include_usage=True))
    items: list[Any] = []
    for prompt in job.prompts:
        picture = {"type": "input_image", "detail": "auto", "image_url": job.picture}
        content = [{"type": "input_text", "text": prompt}, picture] if job.picture else prompt
        items.append({"role": "user", "content": content})
        result = await (streamed(job, seen, agent, items) if stream else ran(job, seen, agent, items))
        for item in result.new_items:
            note(seen, item)
        count = result.raw_responses[-1].usage
        seen.usage = {"input": count.input_tokens, "all": count.total_tokens}
        items = result.to_input_list()


async def ran(job: Job, seen: Seen, agent: Any, items: list[Any]) -> Any:
    return await whole(job, seen, Runner.run(agent, items))


async def streamed(job: Job, seen: Seen, agent: Any, items: list[Any]) -> Any:
    result = Runner.run_streamed(agent, items)
    async with aclosing(result.stream_events()) as events:
        async for event in events:
            is_text = event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
            if is_text and job.leave:
                result.cancel()
                seen.leave()
    return result


def note(seen: Seen, item: Any) -> None:
    raw = item.raw_item
    if item.type == "message_output_item":
        seen.add("".join(part.text for part in raw.content))
    elif item.type == "reasoning_item":
        seen.add(None, "".join(part.text for part in raw.summary))
    elif item.type == "tool_call_item" and raw.type == "function_call":  # else the server has run it
        seen.calls.append((raw.name, loaded(raw.arguments)))


def loaded(arguments: str) -> dict[str, Any]:
    given: dict[str, Any] = json.loads(arguments)
    return given


async def chat(job: Job, seen: Seen) -> None:
    await conversation(job, seen, OpenAIChatCompletionsModel, stream=False)


async def chat_stream(job: Job, seen: Seen) -> None:
    await conversation(job, seen, OpenAIChatCompletionsModel, stream=True)


async def responses(job: Job, seen: Seen) -> None:
    await conversation(job, seen, OpenAIResponsesModel, stream=False)


async def responses_stream(job: Job, seen: Seen) -> None:
    await conversation(job, seen, OpenAIResponsesModel, stream=True)


if __name__ == "__main__":
    main(
        {
            "chat": chat,
            "chat-stream": chat_stream,
            "responses": responses,
            "responses-stream": responses_stream,
        }
    )
