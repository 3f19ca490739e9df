"""Signing in, as the manager sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.mcp.oauth import CALLBACK, Resource, callback_of, closed_server
from tools.base.outcome import Progress, Result
from tools.mcp.auth.oauth import SignIns
from tools.mcp.manager import Manager
from tools.mcp.model import Hooks, ServerConfig, ServerState
from tools.tool import Context

pytestmark = pytest.mark.anyio

WITHIN_S = 60
SETTLED_S = 30


@asynccontextmanager
async def managed(
    resource: Resource, folder: Path, *, from_api: bool = False, private_hosts: tuple[str, ...] = ()
) -> AsyncGenerator[tuple[Manager, SignIns], None]:
    sign_ins = SignIns(folder / "tokens", CALLBACK, private_hosts=private_hosts)
    config = ServerConfig("closed", "http", url=resource.url, from_api=from_api)
    manager = Manager([config], hooks=Hooks(auth=sign_ins.auth), private_hosts=private_hosts)
    await manager.open()
    try:
        yield manager, sign_ins
    finally:
        await manager.close()
        await sign_ins.close()


async def doubled(manager: Manager, folder: Path) -> Result:
    [tool] = manager.tools()
    async with aclosing(tool.run({"number": 21}, Context(folder))) as news:
        async for one in news:
            if not isinstance(one, Progress):
                return one
    raise AssertionError("a call ends with a result")


async def sign_in(manager: Manager, sign_ins: SignIns) -> None:
    status = await manager.settled("closed", SETTLED_S)
    assert status.state is ServerState.NEEDS_AUTH, status
    back = await callback_of(status.auth_url)
    assert sign_ins.finish(back["state"], back["code"]) == "closed"
    await manager.reconnect("closed")
    assert (await manager.settled("closed", SETTLED_S)).state is ServerState.READY


async def test_the_server_says_where_to_sign_in_and_answers_then(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(WITHIN_S),
        closed_server() as resource,
        managed(resource, tmp_path) as (manager, sign_ins),
    ):
        await sign_in(manager, sign_ins)
        assert (await doubled(manager, tmp_path)).text == "42"


async def test_after_a_restart_nobody_is_asked(tmp_path: Path) -> None:
    async with asyncio.timeout(WITHIN_S), closed_server() as resource:
        resource.issuer.lifetimes = [-1] * 100
        async with managed(resource, tmp_path) as (manager, sign_ins):
            await sign_in(manager, sign_ins)
        async with managed(resource, tmp_path) as (manager, _):
            assert (await manager.settled("closed", SETTLED_S)).state is ServerState.READY
            assert (await doubled(manager, tmp_path)).text == "42"
        assert resource.issuer.granted.count("authorization_code") == 1
        assert not resource.misled


async def test_a_permission_that_is_revoked_between_calls_is_asked_for_again(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(WITHIN_S),
        closed_server() as resource,
        managed(resource, tmp_path) as (manager, sign_ins),
    ):
        await sign_in(manager, sign_ins)
        resource.issuer.tokens.clear()
        resource.issuer.refreshers.clear()
        result = await doubled(manager, tmp_path)
        assert not result.ok and "sign-in" in result.text, result
        await sign_in(manager, sign_ins)
        assert (await doubled(manager, tmp_path)).text == "42"


@pytest.mark.parametrize("issuer_is_named", [False, True])
async def test_a_server_that_was_added_at_run_time_sends_nobody_to_private_issuers(
    issuer_is_named: bool, tmp_path: Path
) -> None:
    async with asyncio.timeout(WITHIN_S), closed_server() as resource:
        named = "127.0.0.1" if issuer_is_named else urlsplit(resource.url).netloc
        async with managed(resource, tmp_path, from_api=True, private_hosts=(named,)) as (manager, _):
            status = await manager.settled("closed", SETTLED_S)
    assert status.state is (ServerState.NEEDS_AUTH if issuer_is_named else ServerState.FAILED), status
    assert issuer_is_named or "added at run time" in status.error, status
    assert bool(resource.issuer.asked) == issuer_is_named
