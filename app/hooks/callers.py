"""Calling one hook: a command with the payload on its standard input, or a POST request with it as the body.

Nothing of the server's environment reaches a command but PATH, HOME, LANG and the variables that its row names. Its
whole process tree is ended with it, at its time limit, and when the server dies.
"""

from __future__ import annotations

import asyncio
import secrets
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress

import httpx2

from app.core.hook_rows import HookRow
from app.hooks.verdicts import HookFailed
from tools.process.orphan_reaper import MARK, watched
from tools.process.process_tree import run_shielded, sweep_now
from tools.process.signals import reset_signals
from tools.web.bodies import connect

MOST_ANSWER = 64 * 1024  # bytes
PASSED_ON = ("PATH", "HOME", "LANG")


async def call_hook(row: HookRow, payload: bytes, environ: Mapping[str, str]) -> bytes:
    """Return the hook's answer. Raises HookFailed."""
    call = post(row, payload, environ) if row.url else run_command(row, payload, environ)
    try:
        async with asyncio.timeout(row.time_limit_s):
            return await call
    except TimeoutError:
        raise HookFailed(f"took more than {row.time_limit_s:g} s") from None


async def run_command(row: HookRow, payload: bytes, environ: Mapping[str, str]) -> bytes:
    mark = f"{watched()}.{secrets.token_hex(8)}"
    names = [name for name in (*PASSED_ON, *row.env) if name in environ]
    environment = {name: environ[name] for name in names} | {MARK: mark}
    reset_signals()
    try:
        process = await asyncio.create_subprocess_exec(
            *row.command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment, cwd="/", start_new_session=True
        )
    except OSError as error:
        raise HookFailed(f"could not be started ({error.strerror})") from error
    try:
        answer, _ = await asyncio.gather(_read(process), _write(process, payload))
        code = await process.wait()
    finally:
        await run_shielded(_end(process, mark))
    if code:
        raise HookFailed(f"ended with exit code {code}")
    return answer


async def _read(process: Process) -> bytes:
    assert process.stdout is not None
    answer = bytearray()
    while block := await process.stdout.read(MOST_ANSWER):
        answer += block
        if len(answer) > MOST_ANSWER:
            raise HookFailed(f"answered more than {MOST_ANSWER:,} bytes")
    return bytes(answer)


async def _write(process: Process, payload: bytes) -> None:
    assert process.stdin is not None
    with suppress(ConnectionError):  # a command need not read it
        process.stdin.write(payload)
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()


async def _end(process: Process, mark: str) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await asyncio.to_thread(sweep_now, mark)
    await process.wait()


async def post(row: HookRow, payload: bytes, environ: Mapping[str, str]) -> bytes:
    """The operator has named the URL, so private hosts are reached, too. Redirects are not followed."""
    headers = {"Content-Type": "application/json"}
    if row.key_env:
        headers["Authorization"] = f"Bearer {environ[row.key_env]}"
    answer = bytearray()
    try:
        async with (
            httpx2.AsyncClient(transport=await connect(), timeout=row.time_limit_s, trust_env=False) as client,
            client.stream("POST", row.url or "", content=payload, headers=headers, follow_redirects=False) as response,
        ):
            if not 200 <= response.status_code < 300:
                raise HookFailed(f"answered {response.status_code}")
            async for block in response.aiter_bytes():
                answer += block
                if len(answer) > MOST_ANSWER:
                    raise HookFailed(f"answered more than {MOST_ANSWER:,} bytes")
    except httpx2.HTTPError as error:
        raise HookFailed(f"could not be reached ({type(error).__name__})") from error
    return bytes(answer)
