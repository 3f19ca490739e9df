"""The methods of the protocol, as requests to a server."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
from acp import PROTOCOL_VERSION, RequestError
from acp.agent.router import build_agent_router
from acp.connection import MethodHandler
from acp.schema import ClientCapabilities
from pydantic import BaseModel

from routes.acp.editor import Editor
from routes.acp.session import KEY, Session, session_of
from routes.acp.updates import Json
from routes.terminal.api import Api
from routes.terminal.event_client import ChatFailed, no_answer, step
from routes.texts import text

LISTED = 200  # sessions of a full page
CAPABILITIES: Json = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
    "sessionCapabilities": {"list": {}, "delete": {}, "resume": {}, "close": {}},
}
Reach = Callable[[str], Awaitable[httpx2.AsyncClient]]
"""A client of the server for a session in that folder; it may be started first. Raises ChatFailed."""


class Agent:
    """The methods, under the names and with the parameters of the library. Each raises RequestError, ChatFailed."""

    def __init__(self, editor: Editor, reach: Reach) -> None:
        self._editor = editor
        self._reach = reach
        self._sessions: dict[str, Session] = {}
        self._prompts = Counter[str]()  # under way, by session

    async def initialize(self, client_capabilities: ClientCapabilities | None = None, **_: Any) -> Json:
        self._editor.capabilities = client_capabilities or ClientCapabilities()
        token = {"id": "token", "name": text("sign_in.form.token"), "description": text("terminal.acp.token")}
        about = {"name": "dragoman", "title": "dragoman", "version": version("dragoman")}
        offered = {"agentCapabilities": CAPABILITIES, "authMethods": [token], "agentInfo": about}
        return {"protocolVersion": PROTOCOL_VERSION} | offered

    async def authenticate(self, **_: Any) -> Json:
        """The token is in the environment: all there is to learn is that the server takes it."""
        await self._api()
        return {}

    async def new_session(self, cwd: str, **_: Any) -> Json:
        session = await self._open(f"{KEY}{secrets.token_hex(12)}", cwd)
        return {"sessionId": session.key} | session.options()

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> Json:
        session = await self._open(session_id, cwd)
        await session.replay()
        return session.options()

    async def resume_session(self, cwd: str, session_id: str, **_: Any) -> Json:
        return (await self._open(session_id, cwd)).options()

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> Json:
        api = await self._api(cwd)
        root = Path(str((await api.get("/options"))["workspace"] or "/"))
        rows = (await api.get(f"/sessions?before={step(cursor)}" if cursor else "/sessions"))["sessions"]
        here = [one for one in (_listed(row, root) for row in rows) if cwd is None or Path(one["cwd"]) == Path(cwd)]
        return {"sessions": here} | ({"nextCursor": rows[-1]["id"]} if len(rows) >= LISTED else {})

    async def delete_session(self, session_id: str) -> Json:
        """Delete it; one that does not exist is deleted."""
        api, session = await self._api(), None
        self._forget(session_id)
        with suppress(ChatFailed):
            session = await session_of(api, session_id)
        if session:
            await api.delete(f"/sessions/{step(session)}")
        return {}

    async def close_session(self, session_id: str, **_: Any) -> Json:
        await self.cancel(session_id)
        self._forget(session_id)
        return {}

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> Json:
        self._session(session_id).choose("mode", mode_id)
        return {}

    async def set_config_option(self, session_id: str, config_id: str, value: str | bool, **_: Any) -> Json:
        session = self._session(session_id)
        session.choose(config_id, value)
        return {"configOptions": session.options()["configOptions"]}

    async def prompt(self, session_id: str, prompt: Sequence[BaseModel], **_: Any) -> Json:
        self._prompts[session_id] += 1
        try:
            return {"stopReason": await self._session(session_id).prompt(prompt)}
        finally:
            self._prompts[session_id] -= 1

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session := self._sessions.get(session_id):
            await session.cancel()

    def _session(self, key: str) -> Session:
        if key not in self._sessions:
            raise RequestError.resource_not_found(key)
        return self._sessions[key]

    def _forget(self, key: str) -> None:
        if session := self._sessions.pop(key, None):
            session.close()

    async def _open(self, key: str, cwd: str) -> Session:
        if self._prompts[key]:
            raise RequestError(-32600, "The session answers a prompt. Cancel that, or load it again after its end.")
        if not Path(cwd).is_absolute():
            raise RequestError(-32602, f"cwd is {cwd[:80]!a}; send an absolute path")
        session = Session(key, self._editor, await self._api(cwd), Path(cwd), partial(self._reach, cwd))
        await session.open()
        self._forget(key)
        self._sessions[key] = session
        return session

    async def _api(self, cwd: str | None = None) -> Api:
        client = await self._reach(cwd or str(Path.cwd()))
        try:
            response = await client.get("/options")
        except httpx2.TransportError as error:
            raise no_answer(client, error) from error
        if response.status_code == 401:
            raise RequestError(-32000, text("terminal.acp.token"))
        return Api(client)


def _listed(row: Json, root: Path) -> Json:
    key = row.get("conversation") or ""
    about = {"title": row["title"], "updatedAt": datetime.fromtimestamp(row["updated"], UTC).isoformat()}
    return about | {"sessionId": key if key.startswith(KEY) else row["id"], "cwd": str(root / row.get("workspace", ""))}


def handler_of(agent: Agent) -> MethodHandler:
    """Answer frames by the library's table of methods, in which `session/delete` has no row."""
    router = build_agent_router(agent, use_unstable_protocol=True)  # type: ignore[arg-type] # answers are dicts

    async def handle(method: str, params: Any, is_notification: bool) -> Any:
        try:
            match method, params:
                case "session/delete", {"sessionId": str(session)}:
                    return await agent.delete_session(session)
                case _ if is_notification and method.startswith("$/"):
                    return None  # a peer may ignore these
            return await router(method, params, is_notification)
        except ChatFailed as error:
            raise RequestError(-32603, str(error)) from error

    return handle
