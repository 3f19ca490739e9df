"""The openai SDK. python -m benchmarks.rivals.with_openai UPSTREAM_URL"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator

import openai

from benchmarks.rivals.served import serve


async def answer(message: str) -> AsyncGenerator[str, None]:
    stream = await CLIENT.chat.completions.create(
        model="bench", messages=[{"role": "user", "content": message}], stream=True
    )
    async with stream:
        async for chunk in stream:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                yield text


if __name__ == "__main__":
    CLIENT = openai.AsyncOpenAI(base_url=sys.argv[1], api_key="none")
    serve(answer)
