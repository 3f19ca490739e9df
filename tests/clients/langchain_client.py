"""langchain-openai: ChatOpenAI with chat completions and Responses, invoked and streamed."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from tests.clients.jobs import Job, Seen, main, whole


async def conversation(job: Job, seen: Seen, *, responses: bool, stream: bool) -> None:
    model = ChatOpenAI(
        model=job.model,
        base_url=f"{job.url}/v1",
        api_key=job.key,
        max_retries=0,
        use_responses_api=responses,
        stream_usage=True,
        **job.parameters,
    )
    declared = [{"type": "function", "function": {"name": name, **tool}} for name, tool in job.declared.items()]
    bound: Any = model.bind_tools(declared) if declared else model
    messages: list[Any] = []
    for prompt in job.prompts:
        content = job.content(prompt, "text", lambda url: {"type": "image_url", "image_url": {"url": url}})
        messages.append(HumanMessage(content=content))
        while True:
            message = await (streamed(job, seen, bound, messages) if stream else invoked(job, seen, bound, messages))
            note(seen, message)
            messages.append(message)
            messages += [
                ToolMessage(content=seen.run(call["name"], call["args"]), tool_call_id=call["id"])
                for call in message.tool_calls
            ]
            if not message.tool_calls:
                break


async def invoked(job: Job, seen: Seen, model: Any, messages: list[Any]) -> Any:
    return await whole(job, seen, model.ainvoke(messages))


async def streamed(job: Job, seen: Seen, model: Any, messages: list[Any]) -> Any:
    joined = None
    stream = model.astream(messages)
    try:
        async for chunk in stream:
            joined = chunk if joined is None else joined + chunk
            if job.leave and joined.text:
                seen.leave()
    finally:
        await stream.aclose()
    return joined


def note(seen: Seen, message: AIMessage) -> None:
    assert not message.invalid_tool_calls, message.invalid_tool_calls
    thoughts = [block["reasoning"] for block in message.content_blocks if block["type"] == "reasoning"]
    seen.add(message.text, "".join(thoughts))
    told = message.response_metadata
    seen.finish = told.get("finish_reason") or told.get("status")
    if message.usage_metadata:
        seen.usage = {name: message.usage_metadata[name] for name in ("input_tokens", "total_tokens")}


async def chat(job: Job, seen: Seen) -> None:
    await conversation(job, seen, responses=False, stream=False)


async def chat_stream(job: Job, seen: Seen) -> None:
    await conversation(job, seen, responses=False, stream=True)


async def responses(job: Job, seen: Seen) -> None:
    await conversation(job, seen, responses=True, stream=False)


async def responses_stream(job: Job, seen: Seen) -> None:
    await conversation(job, seen, responses=True, stream=True)


if __name__ == "__main__":
    main(
        {
            "chat": chat,
            "chat-stream": chat_stream,
            "responses": responses,
            "responses-stream": responses_stream,
        }
    )
