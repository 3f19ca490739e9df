"""Requests of an app that shows the result of a call (MCP Apps): each is decided on, bounded and audited.

Its words are untrusted. A call of a tool is a run of its own that no model reads, a message reaches the model once the
person has confirmed it, and what it gives the model is data of the person's next turn.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Literal

from msgspec import Struct

from app.core.data_delimiters import RULE, as_data
from app.core.events import ToolApp, ToolFinished, ToolRejected
from app.runs.agent import Agent
from app.runs.composition.unattended import stored_options
from app.runs.run_factory import RunFactory
from app.storage.audit import AuditRow
from app.storage.principals import Principal
from app.storage.runs import ALL, RunRow
from app.storage.sessions import APP as KEPT
from app.storage.sessions import AppState
from app.transcript.run_request import MAX_LINE, DirectCall, NotFound, RunRequest, is_of_app
from tools.mcp.offer_calls import RequestFailed
from tools.process.process_tree import run_shielded
from tools.tool import APP

Method = Literal["tools/call", "resources/read", "ui/message", "ui/update-model-context", "ui/open-link", "state"]
Params = dict[str, Any]
MOST_WORDS, MOST_STATE = 20_000, 64_000  # characters
MESSAGE = "The app of {tool} proposed this message, and I have confirmed that it is sent."
CONTEXT = "The app of {tool} gives this to the model."
TITLE = "Untrusted data of the app"
MOST_WAITING = MAX_LINE // 2  # calls of apps in one conversation, so that the person's messages have room
ENDED = "The conversation was deleted."


class AppRefused(Exception):
    """The app may not do this. The message says why."""


class AppRequests(Struct, frozen=True):
    """The requests of the app of one call, for the person whose run it is."""

    factory: RunFactory
    principal: Principal
    run: RunRow
    shown: ToolApp

    async def answer(self, method: Method, params: Params) -> Params:
        """Raises AppRefused, RequestFailed, and what beginning a run raises."""
        why, by = self.factory.redactor.redact(json.dumps(params))[:500], self.principal.name
        action, call = f"app {self.shown.server}", self.shown.call
        row = AuditRow(time.time(), by, action, method, why=why, by=by, run=self.run.id, call=call)
        await self.factory.store.write([row] if method != "state" else [])
        match method:
            case "tools/call":
                return await self._call_tool(_text(params, "name"), params.get("arguments", {}))
            case "resources/read":
                result = await self._call_tool(method, {"uri": _text(params, "uri")})
                if "contents" not in result:
                    raise RequestFailed(result["content"][0]["text"])
                return result
            case "ui/message":
                _, sent = await self._start(self._as_words(MESSAGE, _words(params, required=True)))
                return {"run": sent.id, "session": sent.session}
            case "ui/update-model-context":
                text = _words(params)
                await self._keep({"context": dict(params)}, self._as_words(CONTEXT, text) if text else "")
            case "state":
                await self._keep({name: value for name, value in params.items() if name != "context"})
        return {}

    async def _call_tool(self, name: str, arguments: Any) -> Params:
        """Return the whole result of a tool of the app's own server; it waits for an approval as any call."""
        if not isinstance(arguments, dict):
            raise AppRefused("arguments must be an object.")
        of_server = (one for one in self.factory.mcp.tools() if one.origin and one.origin.server == self.shown.server)
        named = [one for one in of_server if one.origin and one.origin.tool == name and APP in one.visibility]
        if not named:
            raise AppRefused(f"{self.shown.server} has no tool {name[:80]!a} for its apps.")
        runs, session = self.factory.runs, self.run.session
        async with runs.peers.lock("app calls", session):
            if sum(map(is_of_app, await runs.waiting(session))) >= MOST_WAITING:
                raise AppRefused(f"{MOST_WAITING} calls of apps wait in this conversation already.")
            agent, row = await self._start("", DirectCall(named[0].name, arguments, "app"))
        try:
            await runs.ended(row.id)
        except asyncio.CancelledError:  # the page has gone: nothing gets the result
            await run_shielded(runs.cancel(row.id))
            raise
        if agent.scope.app_results:
            return agent.scope.app_results[0]
        logged = [json.loads(one.data) for one in await self.factory.store.events(row.id, 0, ALL)]
        ends = [one for one in logged if one["type"] in (ToolFinished.type, ToolRejected.type)] or logged[-1:]
        texts = (one.get("text") or one.get("message") or one.get("reason") for one in ends)
        return {"content": [{"type": "text", "text": str(next(texts, ENDED))}], "isError": True}

    async def _start(self, message: str, call: DirectCall | None = None) -> tuple[Agent, RunRow]:
        """Begin a turn with untrusted words, or a call beside the conversation, with the options of the app's run."""
        changed = {"client_tools": None, "terminal": None} | ({"record": False} if call else {})
        options = stored_options(self.run.policy).model_copy(update=changed)
        agent = await self.factory.agent(self.principal, options, self.run.session)
        if call:
            agent.scope.documents = agent.scope.memory = None  # what is new there is for the next turn
            agent.scope.gate.serve_app()
        turn = RunRequest(
            message,
            self.run.session,
            when_busy="queue",
            time_limit_s=self.factory.limits(options).seconds,
            policy=options.policy(),
            untrusted=True,
            outside=call is None,
            tied=call is not None,
            call=call,
            app="" if call else self.shown.server,
        )
        return agent, await self.factory.runs.start(agent, self.principal, turn)

    def _as_words(self, head: str, text: str) -> str:
        return f"[{head.format(tool=self.shown.name)}]\n{as_data(TITLE, text)}\n{RULE}"

    async def _keep(self, changed: Params, context: str | None = None) -> None:
        store, session = self.factory.store, self.run.session
        async with self.factory.runs.peers.lock("app", self._key):
            state = json.dumps(await self._kept() | changed)
            if len(state) > MOST_STATE:
                raise AppRefused(f"The state of an app has at most {MOST_STATE:,} characters of JSON.")
            if context is None:
                before = await store.written(session, self._key, 0, 2 * MOST_WORDS)
                context = before.text if before else ""
            await store.write([AppState(session, self.run.id, self._key, KEPT, text=state, written=context)])

    @property
    def _key(self) -> str:
        return f"{KEPT} {self.shown.call}"

    async def _kept(self) -> dict[str, Any]:
        kept = await self.factory.store.result(self.run.session, self._key, 0, MOST_STATE)
        return dict(json.loads(kept.text)) if kept else {}

    async def state(self) -> dict[str, Any]:
        """Return what the app has kept, and the tool whose result it shows: None once its server lists it no more."""
        shown = {one.name: one for one in self.factory.mcp.tools()}.get(self.shown.name)
        named = {"name": shown.origin.tool, "description": shown.description} if shown and shown.origin else None
        tool = named | {"inputSchema": shown.parameters} if shown and named else None
        return {"state": await self._kept(), "tool": tool}


async def app_requests(factory: RunFactory, principal: Principal, run: str, call: str) -> AppRequests:
    """Return the app of a call. Raises NotFound."""
    row = await factory.runs.run(run, principal)
    for event in await factory.store.call_events(row.id, call):
        if event.type == ToolApp.type:
            fields = {name: value for name, value in json.loads(event.data).items() if name != "type"}
            return AppRequests(factory, principal, row, ToolApp(**fields))
    raise NotFound(f"Run {row.id} has no app for the call {call[:80]!a}.")


def _text(params: Params, name: str) -> str:
    if not isinstance(value := params.get(name), str) or not value:
        raise AppRefused(f"{name} must be a text.")
    return value


def _words(params: Params, *, required: bool = False) -> str:
    """Return the text blocks and the structured content of a message, or of what the model is given."""
    blocks = params["content"] if isinstance(params.get("content"), list) else []
    parts = [str(one.get("text")) for one in blocks if isinstance(one, dict) and one.get("type") == "text"]
    parts += [json.dumps(params["structuredContent"])] if params.get("structuredContent") else []
    if len(text := "\n".join(parts).strip()) > MOST_WORDS or (required and not text):
        raise AppRefused(f"An app says 1 to {MOST_WORDS:,} characters at once.")
    return text
