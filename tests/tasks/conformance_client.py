"""What the conformance suite drives: our manager, with a person who opens every page and accepts every form.

The suite starts it once for each scenario with the URL of a server, and says in the environment which scenario it is,
which protocol is spoken there, and what the scenario needs. The server's tools are listed, and each is called once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from parsing import Arguments
from tools.base.outcome import Progress, Result
from tools.mcp.auth.oauth import SignIns
from tools.mcp.manager import Manager
from tools.mcp.model import ElicitationAnswer, ElicitationQuestion, Hooks, ServerConfig, ServerState
from tools.tool import Context, Tool

NAME = "conformance"
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
CALLBACK = "http://localhost:3000/callback"
SIGN_INS = 3
SETTLED_S = 60
SAMPLES: dict[str, Any] = {"string": "text", "integer": 5, "number": 5, "boolean": True, "array": [], "object": {}}


async def accept(question: ElicitationQuestion) -> ElicitationAnswer:
    """A person who leaves every field as it is."""
    return ElicitationAnswer("accept", {})


async def sign_in(page: str, sign_ins: SignIns) -> None:
    async with httpx2.AsyncClient(trust_env=False) as browser:
        answer = await browser.get(page)
    back = {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}
    if "code" in back:
        sign_ins.finish(back["state"], back["code"], back.get("iss"))
    else:
        sign_ins.refuse(back["state"], back.get("error", "no code"))


class Client:
    def __init__(self, manager: Manager, sign_ins: SignIns, workspace: Path) -> None:
        self.manager = manager
        self.sign_ins = sign_ins
        self.context = Context(workspace)
        self.sign_ins_left = SIGN_INS

    async def connect(self) -> bool:
        """Whether the server is ready, after as many sign-ins as a person has patience for."""
        while True:
            status = await self.manager.settled(NAME, SETTLED_S)
            if status.state is not ServerState.NEEDS_AUTH:
                print(f"{status.state}, protocol {status.protocol or '-'}. {status.error}", flush=True)
                return status.state is ServerState.READY
            if not self.sign_ins_left:
                return False
            self.sign_ins_left -= 1
            await sign_in(status.auth_url, self.sign_ins)
            await self.manager.reconnect(NAME)

    async def call(self, tool: Tool, arguments: Arguments) -> None:
        """What comes of it is for the suite to judge, which sees what was sent."""
        while True:
            result = await self.once(tool, arguments)
            print(f"{tool.name}: {'ok' if result.ok else 'failed'}: {result.text[:300]}", flush=True)
            [status] = self.manager.status()
            if result.ok or status.state is not ServerState.NEEDS_AUTH or not await self.connect():
                return

    async def once(self, tool: Tool, arguments: Arguments) -> Result:
        async with aclosing(tool.run(arguments, self.context)) as news:
            async for one in news:
                if not isinstance(one, Progress):
                    return one
        raise AssertionError("a call ends with a result")


def sample(schema: dict[str, Any]) -> Arguments:
    """Arguments that a schema allows."""
    fields = schema.get("properties", {})
    return {name: SAMPLES.get(field.get("type"), "text") for name, field in fields.items() if "type" in field}


def calls(tools: dict[str, Tool], scenario: dict[str, Any]) -> Iterator[tuple[Tool, Arguments]]:
    """Those that the scenario wants, or each tool once."""
    wanted = scenario.get("toolCalls")
    for call in wanted or ():
        yield tools[f"mcp__{NAME}__{call['name']}"], call["arguments"]
    for tool in tools.values() if not wanted else ():
        yield tool, sample(tool.parameters)


async def drive(url: str, scenario: dict[str, Any]) -> bool:
    """Whether the server was ready."""
    with tempfile.TemporaryDirectory() as folder:
        sign_ins = SignIns(Path(folder, "tokens"), CALLBACK, client_metadata_url=CLIENT_METADATA)
        client_id, client_secret = scenario.get("client_id", ""), scenario.get("client_secret", "")
        config = ServerConfig(NAME, "http", url=url, client_id=client_id, client_secret=client_secret)
        manager = Manager([config], hooks=Hooks(elicit=accept, auth=sign_ins.auth))
        client = Client(manager, sign_ins, Path(folder))
        await manager.open()
        try:
            await manager.reconnect(NAME)
            ready = await client.connect()
            for tool, arguments in calls({tool.name: tool for tool in manager.tools()}, scenario):
                await client.call(tool, arguments)
        finally:
            await manager.close()
            await sign_ins.close()
        return ready


if __name__ == "__main__":
    about = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    sys.exit(0 if asyncio.run(drive(sys.argv[-1], about)) else 1)
