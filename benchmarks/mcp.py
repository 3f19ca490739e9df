"""MCP servers: what our manager costs over the SDK alone, and how long many servers take to add and to close."""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from tools.base.outcome import Progress
from tools.mcp.manager import Manager
from tools.mcp.model import ServerConfig, ServerState
from tools.tool import Context, Tool

SERVER = (str(Path(__file__).parent / "floors/mcp_echo.py"),)
CALLS, ROUNDS = 500, 7
MANY, AT_ONCE = 8, 1000
SETTLED_S = 60
ASKED = {"text": "hello"}
Once = Callable[[], Awaitable[object]]


def configs(count: int) -> list[ServerConfig]:
    return [ServerConfig(f"echo{number}", command=sys.executable, args=SERVER) for number in range(count)]


@asynccontextmanager
async def managed(count: int) -> AsyncGenerator[Manager, None]:
    manager = Manager(configs(count))
    await manager.open()
    try:
        for config in configs(count):
            await manager.reconnect(config.name)
        for config in configs(count):
            assert (await manager.settled(config.name, SETTLED_S)).state is ServerState.READY
        yield manager
    finally:
        await manager.close()


async def result_of(tool: Tool, context: Context) -> str:
    async with aclosing(tool.run(ASKED, context)) as news:
        async for one in news:
            if not isinstance(one, Progress):
                return one.text
    raise AssertionError("a call ends with a result")


async def cpu_ms(once: Once) -> float:
    """CPU of this process per call."""
    started = time.process_time()
    for _ in range(CALLS):
        await once()
    return (time.process_time() - started) * 1000 / CALLS


async def compared() -> tuple[list[float], list[float]]:
    """The SDK and our manager in turn, so that both see the same machine."""
    from mcp import Client, StdioServerParameters

    context = Context(Path(tempfile.gettempdir()))
    bare: list[float] = []
    ours: list[float] = []
    async with managed(1) as manager, Client(StdioServerParameters(command=sys.executable, args=[*SERVER])) as client:
        [tool] = manager.tools()

        async def sdk() -> None:
            await client.call_tool("echo", ASKED)

        async def own() -> None:
            assert await result_of(tool, context) == "hello"

        for _ in range(ROUNDS):
            bare.append(await cpu_ms(sdk))
            ours.append(await cpu_ms(own))
    return bare, ours


async def added_ms() -> list[float]:
    times = []
    for _ in range(ROUNDS):
        manager = Manager()
        await manager.open()
        started = time.perf_counter()
        for config in configs(MANY):
            await manager.add(config)
        times.append((time.perf_counter() - started) * 1000)
        await manager.close()
    return times


async def closed_s() -> float:
    async with managed(MANY):
        started = time.perf_counter()
    return time.perf_counter() - started


async def crowded_s() -> float:
    async with managed(1) as manager:
        [tool] = manager.tools()
        context = Context(Path(tempfile.gettempdir()))
        started = time.perf_counter()
        answers = await asyncio.gather(*(result_of(tool, context) for _ in range(AT_ONCE)))
        assert answers == ["hello"] * AT_ONCE
        return time.perf_counter() - started


async def measured() -> None:
    bare, ours = await compared()
    over = min(ours) - min(bare)
    added, closed, crowded = await added_ms(), await closed_s(), await crowded_s()
    print(f"{'':36}{'least':>10}{'median':>10}{'budget':>10}")
    print(f"{'SDK, CPU ms per call':36}{min(bare):10.3f}{statistics.median(bare):10.3f}")
    print(f"{'manager, CPU ms per call':36}{min(ours):10.3f}{statistics.median(ours):10.3f}")
    print(f"{'manager over SDK, CPU ms per call':36}{over:10.3f}{'':10}{0.15:10.2f}")
    print(f"{f'add of {MANY} servers, ms':36}{min(added):10.2f}{statistics.median(added):10.2f}{5:10}")
    print(f"{f'close of {MANY} servers, s':36}{closed:10.2f}{'':10}{1:10}")
    print(f"{f'{AT_ONCE:,} calls at once, s':36}{crowded:10.2f}")


def main() -> None:
    asyncio.run(measured())


if __name__ == "__main__":
    main()
