"""openai (Python): chat completions and Responses; whole, as raw streams, and with the package's stream helpers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from openai import AsyncOpenAI

from tests.clients.jobs import Job, Seen, main, whole


@cache
def client_of(url: str, key: str) -> AsyncOpenAI:
    """One for all jobs: each reads the system's certificates, which takes longer than a job."""
    return AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def chat_tools(job: Job) -> list[Any]:
    return [{"type": "function", "function": {"name": name, **tool}} for name, tool in job.declared.items()]


def response_tools(job: Job) -> list[Any]:
    return [{"type": "function", "name": name, "strict": False, **tool} for name, tool in job.declared.items()]


async def conversation(job: Job, seen: Seen, one_round: Callable[[AsyncOpenAI, list[Any]], Awaitable[Any]]) -> None:
    """Each prompt, answered by as many rounds as the calls of the answers take."""
    messages: list[Any] = []
    client = client_of(job.url, job.key)
    for prompt in job.prompts:
        content = job.content(prompt, "text", lambda url: {"type": "image_url", "image_url": {"url": url}})
        messages.append({"role": "user", "content": content})
        while message := await one_round(client, messages):
            messages.append(message)
            for call in message.get("tool_calls") or []:
                result = seen.run(call["function"]["name"], call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            if not message.get("tool_calls"):
                break


def asked(job: Job, messages: list[Any]) -> dict[str, Any]:
    tools = {"tools": chat_tools(job)} if job.tools else {}
    return {"model": job.model, "messages": messages, **tools, **job.parameters}


def noted(seen: Seen, completion: Any) -> dict[str, Any]:
    """Note a whole completion; the message that goes back."""
    choice = completion.choices[0]
    seen.finish = choice.finish_reason
    seen.add(choice.message.content, getattr(choice.message, "reasoning_content", None))
    if completion.usage:
        seen.usage = completion.usage.model_dump(include={"prompt_tokens", "completion_tokens", "total_tokens"})
    calls = [call.model_dump() for call in choice.message.tool_calls or []]
    more = {"tool_calls": [{**call, "function": _sent(call["function"])} for call in calls]} if calls else {}
    return {"role": "assistant", "content": choice.message.content, **more}


def _sent(function: dict[str, Any]) -> dict[str, Any]:
    return {"name": function["name"], "arguments": function["arguments"]}


async def chat(job: Job, seen: Seen) -> None:
    async def one_round(client: AsyncOpenAI, messages: list[Any]) -> dict[str, Any]:
        return noted(seen, await whole(job, seen, client.chat.completions.create(**asked(job, messages))))

    await conversation(job, seen, one_round)


async def chat_stream(job: Job, seen: Seen) -> None:
    async def one_round(client: AsyncOpenAI, messages: list[Any]) -> dict[str, Any] | None:
        more = {"stream": True, "stream_options": {"include_usage": True}}
        stream = await client.chat.completions.create(**asked(job, messages), **more)
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        thought = ""
        async with stream:
            async for chunk in stream:
                if chunk.usage:
                    assert not chunk.choices
                    seen.usage = chunk.usage.model_dump(include={"prompt_tokens", "completion_tokens", "total_tokens"})
                for choice in chunk.choices:
                    seen.finish = choice.finish_reason or seen.finish
                    message["content"] += choice.delta.content or ""
                    thought += getattr(choice.delta, "reasoning_content", None) or ""
                    collect(message, choice.delta.tool_calls or [])
                if job.leave and message["content"]:
                    seen.add(message["content"])
                    seen.leave()
        seen.add(message["content"], thought)
        return message

    await conversation(job, seen, one_round)


def collect(message: dict[str, Any], fragments: list[Any]) -> None:
    """Join fragments of calls, each by its index."""
    for part in fragments:
        calls = message.setdefault("tool_calls", [])
        if part.id:
            assert part.index == len(calls), f"call {len(calls)} has the index {part.index}"
            function = {"name": part.function.name, "arguments": part.function.arguments or ""}
            calls.append({"id": part.id, "type": part.type, "function": function})
        else:
            calls[part.index]["function"]["arguments"] += part.function.arguments


async def chat_helper(job: Job, seen: Seen) -> None:
    async def one_round(client: AsyncOpenAI, messages: list[Any]) -> dict[str, Any] | None:
        more = {"stream_options": {"include_usage": True}}
        done: list[str] = []
        async with client.chat.completions.stream(**asked(job, messages), **more) as stream:
            async for event in stream:
                if event.type == "content.delta" and job.leave:
                    seen.add(event.delta)
                    seen.leave()
                if event.type == "tool_calls.function.arguments.done":
                    done.append(event.name)
            completion = await stream.get_final_completion()
        assert done == [call.function.name for call in completion.choices[0].message.tool_calls or []]
        return noted(seen, completion)

    await conversation(job, seen, one_round)


async def response_conversation(
    job: Job, seen: Seen, one_round: Callable[[AsyncOpenAI, dict[str, Any]], Awaitable[Any]]
) -> None:
    items: list[Any] = []
    client = client_of(job.url, job.key)
    for prompt in job.prompts:
        content = job.content(prompt, "input_text", lambda url: {"type": "input_image", "image_url": url})
        items.append({"role": "user", "content": content})
        request = {"model": job.model, "store": False, "tools": response_tools(job), **job.parameters}
        if job.verdict is not None:
            request |= {"store": True, "tools": [*response_tools(job), OURS]}
        while response := await one_round(client, {"input": items, **request}):
            noted_response(seen, response)
            if answers := decisions(job, response):
                request |= {"previous_response_id": response.id}
                items = answers
                continue
            items += [item.model_dump(exclude_none=True) for item in response.output]
            calls = [item for item in response.output if item.type == "function_call"]
            for call in calls:
                result = seen.run(call.name, call.arguments)
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
            if not calls:
                break


# With it a client can approve calls of the server's tools.
OURS = {"type": "mcp", "server_label": "dragoman", "server_url": "http://localhost/mcp"}


def decisions(job: Job, response: Any) -> list[Any]:
    asked = [item.id for item in response.output if item.type == "mcp_approval_request"]
    return [{"type": "mcp_approval_response", "approval_request_id": one, "approve": job.verdict} for one in asked]


def noted_response(seen: Seen, response: Any) -> None:
    if response.error:
        raise RuntimeError(f"{response.error.code}: {response.error.message}")
    thoughts = [part.text for item in response.output if item.type == "reasoning" for part in item.summary]
    seen.add(response.output_text, "".join(thoughts))
    seen.finish = response.status
    seen.usage = response.usage.model_dump(include={"input_tokens", "output_tokens", "total_tokens"})


async def responses(job: Job, seen: Seen) -> None:
    async def one_round(client: AsyncOpenAI, request: dict[str, Any]) -> Any:
        return await whole(job, seen, client.responses.create(**request))

    await response_conversation(job, seen, one_round)


async def responses_stream(job: Job, seen: Seen) -> None:
    async def one_round(client: AsyncOpenAI, request: dict[str, Any]) -> Any:
        stream = await client.responses.create(**request, stream=True)
        number, text = -1, ""
        async with stream:
            async for event in stream:
                assert event.sequence_number > number, f"{event.type} has the number {event.sequence_number}"
                number = event.sequence_number
                if event.type == "response.output_text.delta":
                    text += event.delta
                    if job.leave:
                        seen.add(text)
                        seen.leave()
                if event.type in ("response.completed", "response.incomplete", "response.failed"):
                    assert event.type == "response.failed" or event.response.output_text == text
                    return event.response
        raise AssertionError("The stream has no end.")

    await response_conversation(job, seen, one_round)


async def responses_helper(job: Job, seen: Seen) -> None:
    async def one_round(client: AsyncOpenAI, request: dict[str, Any]) -> Any:
        async with client.responses.stream(**request) as stream:
            ended = None
            async for event in stream:
                if event.type == "response.output_text.delta" and job.leave:
                    seen.add(event.delta)
                    seen.leave()
                if event.type in ("response.incomplete", "response.failed"):
                    ended = event.response  # the helper has a final response of completed ones only
            return ended or await stream.get_final_response()

    await response_conversation(job, seen, one_round)


if __name__ == "__main__":
    main(
        {
            "chat": chat,
            "chat-stream": chat_stream,
            "chat-helper": chat_helper,
            "responses": responses,
            "responses-stream": responses_stream,
            "responses-helper": responses_helper,
        }
    )
