"""llm: its models for servers that speak as OpenAI does, with its own chain of tools, whole and streamed."""

from __future__ import annotations

import base64
from typing import Any

import llm
from llm.default_plugins.openai_models import AsyncChat, AsyncResponses

from tests.clients.jobs import TOOLS, Job, Seen, main, whole


async def conversation(job: Job, seen: Seen, kind: Any, *, stream: bool) -> None:
    model = kind(
        f"test-{job.model}",
        model_name=job.model,
        api_base=f"{job.url}/v1",
        vision=True,
        supports_tools=True,
        reasoning=True,
    )
    talk = model.conversation()
    for prompt in job.prompts:
        pictures = [llm.Attachment(type="image/png", content=base64.b64decode(job.picture.partition(",")[2]))]
        chain = talk.chain(
            prompt,
            tools=[llm.Tool.function(TOOLS[name], name=name) for name in job.tools],
            attachments=pictures if job.picture else None,
            stream=stream,
            key=job.key,
        )
        if job.leave and stream:
            async for text in chain:
                if text:
                    seen.leave()
        await whole(job, seen, chain.text())
        for response in chain._responses:
            await note(seen, response)


async def note(seen: Seen, response: Any) -> None:
    seen.add(await response.text())
    for call in await response.tool_calls():
        seen.calls.append((call.name, call.arguments))
    count = await response.usage()
    seen.usage = {"input": count.input, "all": (count.input or 0) + (count.output or 0)}


async def chat(job: Job, seen: Seen) -> None:
    await conversation(job, seen, AsyncChat, stream=False)


async def chat_stream(job: Job, seen: Seen) -> None:
    await conversation(job, seen, AsyncChat, stream=True)


async def responses(job: Job, seen: Seen) -> None:
    await conversation(job, seen, AsyncResponses, stream=False)


async def responses_stream(job: Job, seen: Seen) -> None:
    await conversation(job, seen, AsyncResponses, stream=True)


if __name__ == "__main__":
    main(
        {
            "chat": chat,
            "chat-stream": chat_stream,
            "responses": responses,
            "responses-stream": responses_stream,
        }
    )
