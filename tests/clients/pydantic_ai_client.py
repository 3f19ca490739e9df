"""pydantic-ai: its agent over chat completions, Responses and Messages, run and streamed."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, BinaryContent, Tool
from pydantic_ai.messages import ModelResponse, PartDeltaEvent, TextPartDelta
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.jobs import TOOLS, Job, Seen, main, whole


@cache
def openai_provider(url: str, key: str) -> Any:
    """One for all jobs: each reads the system's certificates, which takes longer than a job."""
    return OpenAIProvider(openai_client=AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0))


@cache
def anthropic_provider(url: str, key: str) -> Any:
    return AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=url, api_key=key, max_retries=0))


def chat_model(job: Job) -> Any:
    return OpenAIChatModel(job.model, provider=openai_provider(job.url, job.key))


def responses_model(job: Job) -> Any:
    return OpenAIResponsesModel(job.model, provider=openai_provider(job.url, job.key))


def messages_model(job: Job) -> Any:
    return AnthropicModel(job.model, provider=anthropic_provider(job.url, job.key))


async def conversation(job: Job, seen: Seen, model: Any, *, stream: bool) -> None:
    agent = Agent(model, tools=[Tool(TOOLS[name], takes_ctx=False) for name in job.tools])
    history: list[Any] = []
    for prompt in job.prompts:
        parts = [prompt, picture(job.picture)] if job.picture else prompt
        if stream:
            result = await streamed(job, seen, agent, parts, history)
        else:
            result = await whole(job, seen, agent.run(parts, message_history=history))
        for message in result.new_messages():
            if isinstance(message, ModelResponse):
                note(seen, message)
        history = result.all_messages()


async def streamed(job: Job, seen: Seen, agent: Any, prompt: Any, history: list[Any]) -> Any:
    result = None
    async with agent.run_stream_events(prompt, message_history=history) as events:
        async for event in events:
            if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta) and job.leave:
                seen.leave()
            result = getattr(event, "result", None) or result
    return result


def picture(url: str) -> BinaryContent:
    return BinaryContent(base64.b64decode(url.partition(",")[2]), media_type="image/png")


def note(seen: Seen, message: ModelResponse) -> None:
    thoughts = [part.content for part in message.parts if part.part_kind == "thinking"]
    seen.add("".join(part.content for part in message.parts if part.part_kind == "text"), "".join(thoughts))
    for part in message.parts:
        if part.part_kind == "tool-call":
            seen.calls.append((part.tool_name, part.args_as_dict()))
    seen.finish = message.finish_reason
    seen.usage = {"input": message.usage.input_tokens, "all": message.usage.total_tokens}


def way(model: Callable[[Job], Any], *, stream: bool) -> Any:
    async def ask(job: Job, seen: Seen) -> None:
        await conversation(job, seen, model(job), stream=stream)

    return ask


MODELS = {"chat": chat_model, "responses": responses_model, "messages": messages_model}

if __name__ == "__main__":
    whole_ways = {name: way(model, stream=False) for name, model in MODELS.items()}
    main(whole_ways | {f"{name}-stream": way(model, stream=True) for name, model in MODELS.items()})
