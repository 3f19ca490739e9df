"""A server's connection comes and goes: when it is made, lost, made again, and given up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests import ROOT
from tests.support.mcp.faulty_servers import HIDES, PATIENT, START_S, faulty, is_there, managing, ready, result_of, tool
from tests.support.sandbox.processes import all_gone, endless
from tools.base.pause_check import Paused
from tools.mcp.model import Hooks, McpEvent, MemoryPinStore, NoSuchServer, ServerChanged, ServerConfig, ServerState
from tools.mcp.trust_pins import identity_of

pytestmark = pytest.mark.anyio


async def test_the_sdk_is_not_loaded_before_a_server_is_connected() -> None:
    code = "import sys, tools.mcp.manager; sys.exit(bool({'mcp', 'jsonschema'} & set(sys.modules)))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT)
    assert await process.wait() == 0


async def test_twenty_servers_are_taken_in_at_once() -> None:
    began = time.monotonic()
    async with managing(*(faulty("never", name=f"s{number}", timeouts=PATIENT) for number in range(20))) as manager:
        assert time.monotonic() - began < START_S, "nobody waited for one of them"
        assert len(manager.status()) == 20


async def test_what_was_seen_once_is_offered_without_starting_the_server() -> None:
    pins = MemoryPinStore()
    async with managing(faulty(), pins=pins) as manager:
        await ready(manager)
    async with managing(faulty(), pins=pins) as manager:
        assert [one.name for one in manager.tools()] == ["mcp__s__echo"]
        assert manager.status()[0].state is ServerState.STOPPED
        assert (await result_of(tool(manager, "mcp__s__echo"), text="hello")).text == "hello"
        assert manager.status()[0].state is ServerState.READY


async def test_an_idle_server_is_stopped_and_starts_again() -> None:
    async with managing(faulty(idle_stop_s=0.2)) as manager:
        await ready(manager)
        async with asyncio.timeout(START_S):
            while manager.status()[0].state is not ServerState.STOPPED:
                await manager.changed()
        assert (await result_of(tool(manager, "mcp__s__echo"), text="hello")).text == "hello"


async def test_a_server_that_was_killed_while_idle_answers_the_next_call() -> None:
    async with managing(faulty("lists_all")) as manager:
        first = await ready(manager)
        assert first.pid
        os.kill(first.pid, signal.SIGKILL)
        async with asyncio.timeout(START_S):
            while manager.status()[0].state is ServerState.READY:
                await manager.changed()
        assert "exit code 137" in manager.status()[0].error
        assert (await result_of(tool(manager, "mcp__s__pid"))).text != str(first.pid)
        assert manager.status()[0].restarts == 1


async def test_a_server_that_was_killed_unnoticed_answers_or_says_that_the_call_may_have_run() -> None:
    async with managing(faulty("lists_all")) as manager:
        first = await ready(manager)
        assert first.pid
        os.kill(first.pid, signal.SIGKILL)
        result = await result_of(tool(manager, "mcp__s__pid"))
        assert result.text.isdigit() or "may have run" in result.text
        assert (await result_of(tool(manager, "mcp__s__pid"))).ok


async def test_an_eager_server_is_there_again_at_once() -> None:
    async with managing(faulty(eager=True)) as manager:
        first = await ready(manager)
        assert first.pid
        os.kill(first.pid, signal.SIGKILL)
        async with asyncio.timeout(START_S):
            while (status := manager.status()[0]).state is not ServerState.READY or status.pid == first.pid:
                await manager.changed()


async def test_a_lazy_server_that_cannot_start_is_given_up_and_says_when_to_try() -> None:
    pins = MemoryPinStore()
    async with managing(faulty(name="s"), pins=pins) as manager:
        await ready(manager)
    good = faulty()
    broken = ServerConfig("s", command=good.command, args=(good.args[0], "crash"), timeouts=PATIENT)
    await pins.keep([replace(one, identity=identity_of(broken)) for one in await pins.pins()])
    async with managing(broken, pins=pins) as manager:
        first = await result_of(tool(manager, "mcp__s__echo"))
        assert not first.ok
        assert "exit code 1" in first.text
        assert "cannot read the settings" in first.text
        assert "Next try in" in first.text
        [failed] = manager.status()
        assert "Next try in" in (await result_of(tool(manager, "mcp__s__echo"))).text
        assert manager.status()[0].next_try == failed.next_try, "it was not tried now"


async def test_disabled_servers_offer_nothing_and_come_back() -> None:
    async with managing(faulty()) as manager:
        status = await ready(manager)
        echo = tool(manager, "mcp__s__echo")
        await manager.add(faulty(enabled=False))
        assert not manager.tools()
        assert manager.status()[0].state is ServerState.DISABLED
        assert "is disabled" in (await result_of(echo)).text
        assert not is_there(status.pid)
        await manager.add(faulty())
        assert (await result_of(tool(manager, "mcp__s__echo"), text="back")).text == "back"
        await manager.remove("s")
        assert "There is no MCP server s" in (await result_of(echo)).text
        with pytest.raises(NoSuchServer):
            await manager.reconnect("s")


async def test_a_removal_that_is_cancelled_ends_the_server_all_the_same() -> None:
    async with managing(faulty()) as manager:
        status = await ready(manager)
        removing = asyncio.create_task(manager.remove("s"))
        await manager.changed()
        removing.cancel()
        await asyncio.wait({removing})
        assert removing.cancelled() and not is_there(status.pid)


async def test_a_server_that_is_replaced_while_it_starts_is_not_started_again() -> None:
    async with managing(faulty("never")) as manager:
        first = manager._servers["s"]
        await manager.changed()
        await manager.add(faulty(enabled=False))
        await asyncio.gather(*manager._discoveries)  # who waited for it has heard
        assert first._supervisor is None


async def test_every_change_is_an_event() -> None:
    events: list[McpEvent] = []
    async with managing(faulty(), hooks=Hooks(on_event=events.append)) as manager:
        await ready(manager)
    states = [event.status.state for event in events if isinstance(event, ServerChanged)]
    assert [state for state in ServerState if state in states] == [
        ServerState.STOPPED,
        ServerState.CONNECTING,
        ServerState.READY,
    ]
    assert states[-1] is ServerState.STOPPED


async def test_eight_servers_are_closed_side_by_side() -> None:
    closing, at_each_end = False, list[set[ServerState]]()

    def note_end(_: McpEvent) -> None:
        if closing:
            at_each_end.append({one.state for one in manager.status()})

    hooks = Hooks(on_event=note_end)
    async with managing(*(faulty(name=f"s{number}") for number in range(8)), hooks=hooks) as manager:
        for number in range(8):
            await ready(manager, f"s{number}")
        pids = [one.pid for one in manager.status()]
        closing = True
    assert at_each_end == [{ServerState.STOPPED}] * 8, "all were asked to end before the first had ended"
    assert not is_there(*pids)


async def test_nothing_is_started_after_the_end() -> None:
    async with managing(faulty()) as manager:
        await ready(manager)
        echo = tool(manager, "mcp__s__echo")
    assert "is closing" in (await result_of(echo, text="late")).text


@pytest.mark.parametrize("fault", ["daemon", HIDES])
async def test_no_process_survives_the_kill_of_the_host(fault: str) -> None:
    sleeper = endless()
    code = f"""
import asyncio
from tests.support.mcp.faulty_servers import faulty, managing, ready
async def main():
    async with managing(faulty({fault!r}, *{sleeper.split()!r}), faulty("stubborn", name="t")) as manager:
        print((await ready(manager)).pid, (await ready(manager, "t")).pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert host.stdout
    pids = (await asyncio.wait_for(host.stdout.readline(), START_S)).split()
    host.kill()
    await host.wait()
    assert await asyncio.to_thread(all_gone, sleeper)
    async with asyncio.timeout(START_S):
        while is_there(*map(int, pids)):
            await asyncio.to_thread(all_gone, sleeper)


async def test_a_thousand_calls_at_a_time_are_all_answered() -> None:
    async with managing(faulty()) as manager:
        await ready(manager)
        echo = tool(manager, "mcp__s__echo")
        async with asyncio.timeout(START_S):
            results = await asyncio.gather(*(result_of(echo, text=str(number)) for number in range(1000)))
        assert [result.text for result in results] == [str(number) for number in range(1000)]


async def test_the_log_has_what_the_server_wrote() -> None:
    async with managing(faulty("crash")) as manager:
        await manager.settled("s", START_S)
        assert any("cannot read the settings" in line for line in manager.logs("s"))
        assert json.dumps(manager.logs("s"))


async def test_a_server_that_dies_while_all_is_paused_is_not_asked_in_the_older_way(tmp_path: Path) -> None:
    """The second attempt starts a process as the first one does."""
    starts = tmp_path / "starts"
    words = ("-c", 'echo started >> "$0"; exit 3', str(starts))

    def check_paused() -> None:
        if starts.exists():
            raise Paused

    config = ServerConfig("s", command="sh", args=words, eager=True, timeouts=PATIENT)
    async with managing(config, check_paused=check_paused) as manager, asyncio.timeout(START_S):
        while "paused" not in manager.status()[0].error:
            await manager.changed()
        assert manager.status()[0].state is ServerState.STOPPED
    assert starts.read_text() == "started\n"
