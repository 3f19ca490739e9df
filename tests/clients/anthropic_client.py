"""anthropic (Python): Messages; whole, as raw events, and with the package's stream helper."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from anthropic import AsyncAnthropic

from tests.clients.jobs import Job, Seen, main, whole

MOST_TOKENS = 1024


def tools(job: Job) -> list[Any]:
    return [
        {"name": name, "description": tool["description"], "input_schema": tool["parameters"]}
        for name, tool in job.declared.items()
    ]


def picture(url: str) -> dict[str, Any]:
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


@cache
def client_of(url: str, key: str) -> AsyncAnthropic:
    """One for all jobs: each reads the system's certificates, which takes longer than a job."""
    return AsyncAnthropic(base_url=url, api_key=key, max_retries=0)


async def conversation(
    job: Job, seen: Seen, one_round: Callable[[AsyncAnthropic, dict[str, Any]], Awaitable[Any]]
) -> None:
    """Each prompt, answered by as many rounds as the calls of the answers take."""
    messages: list[Any] = []
    client = client_of(job.url, job.key)
    for prompt in job.prompts:
        messages.append({"role": "user", "content": job.content(prompt, "text", picture)})
        more = {"tools": tools(job)} if job.tools else {}
        while True:
            request = {"model": job.model, "max_tokens": MOST_TOKENS, "messages": messages, **more}
            message = await one_round(client, request | dict(job.parameters))
            messages.append({"role": "assistant", "content": [noted(seen, block) for block in message.content]})
            seen.finish = message.stop_reason
            count = message.usage
            seen.usage = {"input": count.input_tokens, "all": count.input_tokens + count.output_tokens}
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                break
            given = [{"type": "tool_result", "tool_use_id": one.id, "content": run(seen, one)} for one in calls]
            messages.append({"role": "user", "content": given})


def run(seen: Seen, call: Any) -> str:
    return seen.run(call.name, call.input)


def noted(seen: Seen, block: Any) -> dict[str, Any]:
    """Note a block; what goes back."""
    if block.type == "thinking":
        assert block.signature, "a thought without a signature"
        seen.add(None, block.thinking)
    if block.type == "text":
        seen.add(block.text)
    fields: dict[str, Any] = block.to_dict(mode="json")
    return fields


async def messages(job: Job, seen: Seen) -> None:
    async def one_round(client: AsyncAnthropic, request: dict[str, Any]) -> Any:
        return await whole(job, seen, client.messages.create(**request))

    await conversation(job, seen, one_round)


async def messages_stream(job: Job, seen: Seen) -> None:
    """Raw events, joined by the package's own accumulator in `messages_helper`; here their order is checked."""

    async def one_round(client: AsyncAnthropic, request: dict[str, Any]) -> Any:
        order: list[str] = []
        async with await client.messages.create(**request, stream=True) as events:
            async for event in events:
                order.append(event.type)
                if event.type == "content_block_delta" and event.delta.type == "text_delta" and job.leave:
                    seen.leave()
        assert order[0] == "message_start" and order[-2:] == ["message_delta", "message_stop"], order
        assert order.count("content_block_start") == order.count("content_block_stop"), order
        return await client.messages.create(**request)

    await conversation(job, seen, one_round)


async def messages_helper(job: Job, seen: Seen) -> None:
    async def one_round(client: AsyncAnthropic, request: dict[str, Any]) -> Any:
        text = ""
        async with client.messages.stream(**request) as stream:
            async for event in stream:
                if event.type == "text":
                    text += event.text
                    if job.leave:
                        seen.leave()
            message = await stream.get_final_message()
        assert text == "".join(block.text for block in message.content if block.type == "text")
        return message

    await conversation(job, seen, one_round)


if __name__ == "__main__":
    main({"messages": messages, "messages-stream": messages_stream, "messages-helper": messages_helper})
