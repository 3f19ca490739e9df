"""A scripted editor: the library's own client, with `dragoman acp` as a real process at the other end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from acp.exceptions import RequestError
from acp.helpers import text_block
from acp.schema import ClientCapabilities, InitializeResponse
from acp.stdio import spawn_agent_process

from tests import ROOT
from tests.support.acp.schema import problems
from tests.support.models.replies import native_call
from tests.support.server.serving import Served

LIMIT_S = 60
WRITE = native_call("write_file", path="note.txt", content="first")
Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


async def allow_once(_: dict[str, Any]) -> dict[str, Any]:
    return chosen("once")


def chosen(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


@dataclass
class Editor:
    """Its requests are answered by `answers`, by their methods. `updates` are those of all sessions, in order."""

    answers: dict[str, Answer] = field(default_factory=dict)
    updates: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    taken_back: list[Any] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    agent: ClientSideConnection = field(init=False)
    process: asyncio.subprocess.Process = field(init=False)
    _sent: dict[Any, str] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def observe(self, event: StreamEvent) -> None:
        frame = event.message
        if event.direction is StreamDirection.OUTGOING:
            if "method" in frame and "id" in frame:
                self._sent[frame["id"]] = frame["method"]
            return
        self.wrong += problems(frame, self._sent)
        if frame.get("method") == "session/update":
            self.updates.append(frame["params"]["update"])
        elif frame.get("method") == "$/cancel_request":
            self.taken_back.append(frame["params"]["requestId"])
        elif "method" in frame:
            self.asked.append((frame["method"], frame["params"]))
        self._changed.set()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.updates if one["sessionUpdate"] == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one["content"].get("text", "") for one in self.of(kind))

    async def until(self, holds: Callable[[Editor], object]) -> None:
        """Wait for what the frames make true."""
        async with asyncio.timeout(LIMIT_S):
            while not holds(self):
                self._changed.clear()
                await self._changed.wait()

    async def handle(self, method: str, params: Any, is_notification: bool) -> Any:
        if is_notification:
            return None
        if method not in self.answers:
            raise RequestError.method_not_found(method)
        return await self.answers[method](params)


@asynccontextmanager
async def editing(
    folder: Path,
    *words: str,
    answers: dict[str, Answer] | None = None,
    capabilities: dict[str, Any] | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
) -> AsyncGenerator[tuple[Editor, InitializeResponse], None]:
    """An editor whose agent is started with these words. In the end each frame has fitted the protocol's schema."""
    editor = Editor({"session/request_permission": allow_once} | (answers or {}))
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "DRAGOMAN_DATA_DIR": str(folder / "data")}
    environment |= {"PYTHONPATH": str(ROOT), **environ}
    command = ("-P", "-m", "routes.cli.main", "acp", *words)
    async with (
        asyncio.timeout(LIMIT_S),
        spawn_agent_process(
            lambda agent: editor,  # type: ignore[arg-type, return-value]
            sys.executable,
            *command,
            env=environment,
            cwd=cwd or folder,
            transport_kwargs={"limit": 1 << 26, "stderr": None, "shutdown_timeout": 20.0},
            use_unstable_protocol=True,
            observers=[editor.observe],
        ) as (agent, process),
    ):
        editor.agent, editor.process = agent, process
        agent._conn._handler = editor.handle
        about = await agent.initialize(1, ClientCapabilities.model_validate(capabilities or {}))
        yield editor, about
    assert not editor.wrong, editor.wrong[:5]


def url_of(served: Served) -> str:
    return str(served.client.base_url).rstrip("/")


async def session(editor: Editor, folder: Path) -> str:
    """A new session in the workspace of a server of the tests."""
    return (await editor.agent.new_session(str(folder / "work"))).session_id


async def ask(editor: Editor, session: str, words: str) -> str:
    """One turn; its stop reason."""
    return (await editor.agent.prompt(session, [text_block(words)])).stop_reason
