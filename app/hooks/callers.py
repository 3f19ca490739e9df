"""Calling one hook: a command with the payload on its standard input, or a POST request with it as the body.

Nothing of the server's environment reaches a command but PATH, HOME, LANG and the variables that its row names. Its
whole process tree is ended with it, at its time limit, and when the server dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx2

from app.core.hook_rows import HookRow
from app.hooks.verdicts import HookFailed
from tools.process.command_output import CommandFailed, output_of
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
    names = [name for name in (*PASSED_ON, *row.env) if name in environ]
    try:
        return await output_of(row.command, payload, {name: environ[name] for name in names}, MOST_ANSWER)
    except CommandFailed as failure:
        raise HookFailed(str(failure)) from failure


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
