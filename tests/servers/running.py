"""Start and end servers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx2

from tests import ROOT
from tests.servers.catalogue import CACHE, LITELLM_KEY, MODEL, SERVERS, Server
from tests.support.replicas.nginx import free_port

START_S = 400
STOP_S = 20
# One thread and a low priority: on a busy machine more threads wait for each other. Nothing is fetched.
ENVIRON = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "HF_HUB_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


class NotStarted(Exception):
    """A server ended, or did not answer in time; the message has the end of its log."""


@asynccontextmanager
async def run_server(server: Server) -> AsyncGenerator[str, None]:
    """The base URL of a server that answers; the one that it stands in front of runs as long."""
    async with AsyncExitStack() as stack:
        if server.behind:
            [other] = [one for one in SERVERS if one.name == server.behind]
            write_litellm_config(await stack.enter_async_context(run_server(other)))
        port, log = free_port(), CACHE / f"{server.package}.log"
        programs = CACHE / server.environment / "bin"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *("nice", "-n", "10", *server.command(programs, port)),
                stdout=output,
                stderr=output,
                env={**os.environ, **ENVIRON, **server.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
                start_new_session=True,
            )
        try:
            base_url = f"http://127.0.0.1:{port}/v1"
            await wait_until_ready(base_url, server.key, process)
            yield base_url
        except NotStarted:
            raise NotStarted(log.read_text(errors="replace")[-3000:]) from None
        finally:
            await stop(process)


async def wait_until_ready(base_url: str, key: str | None, process: asyncio.subprocess.Process) -> None:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(timeout=10, trust_env=False, headers=headers) as client:
        for _ in range(START_S):
            if process.returncode is not None:
                break
            with suppress(httpx2.HTTPError):
                if (await client.get(f"{base_url}/models")).is_success:
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 1)
    raise NotStarted


async def stop(process: asyncio.subprocess.Process) -> None:
    """End the server with all its processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            os.killpg(process.pid, number)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_S)


def write_litellm_config(base_url: str) -> None:
    (CACHE / "litellm.yaml").write_text(
        f"model_list:\n- model_name: {MODEL}\n  litellm_params:\n"
        f"    model: hosted_vllm/{MODEL}\n    api_base: {base_url}\n    api_key: none\n"
        f"general_settings:\n  master_key: {LITELLM_KEY}\n"
    )
