"""Requests of an app that shows the result of a call (MCP Apps): each is decided on, bounded and audited.

An app speaks for nobody: its words are untrusted. A call of a tool is a run of its own that no model reads; a message
reaches the model once the person has confirmed it, and what it gives the model is data of the person's next turn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from app.core.data_delimiters import RULE, as_data
from app.core.events import ToolApp, ToolRejected
from app.policy.label_limits import limits_of
from app.runs.composition.unattended import stored_options
from app.runs.run_factory import RunFactory
from app.runs.run_options import RunOptions
from app.storage.apps import AppState
from app.storage.audit import AuditRow
from app.storage.principals import Principal
from app.storage.runs import RunRow
from app.transcript.run_request import DirectCall, NotFound, RunRequest
from tools.mcp.apps import MAX_PAGE
from tools.tool import APP, Context, Tool
from tools.toolbox import Refuse

MOST_WORDS = 20_000  # characters of a message, or of what the model is given
MOST_STATE = 64_000  # characters of JSON
MOST_URL = 2_048
WORDS = "The app of {tool} proposed this message, and I have confirmed that it is sent."
CONTEXT = "The app of {tool} gives this to the model."
SHOWN = ("name", "title", "description", "inputSchema")  # of a tool
TITLE = "Untrusted data of the app"


class AppRefused(Exception):
    """The app may not do this. The message says why."""


class AppRequests(Struct, frozen=True):
    """What the app of one call may do, for the person whose run it is."""

    factory: RunFactory
    principal: Principal
    run: RunRow
    shown: ToolApp

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool of the app's own server; it waits for an approval as any call. Return the whole result.

        Raises AppRefused and what beginning a run raises.
        """
        tool = self._tool(name)
        await self._audit("tools/call", tool.name)
        options = self._options()
        agent = await self.factory.agent(self.principal, options, self.run.session)
        agent.scope.documents = agent.scope.memory = None  # what is new there is for the next turn
        agent.scope.gate.serve_app()
        turn = RunRequest(
            "",
            self.run.session,
            when_busy="queue",
            time_limit_s=self.factory.limits(options).seconds,
            policy=options.policy(),
            untrusted=True,
            tied=True,
            call=DirectCall(tool.name, arguments, "app"),
        )
        runs = self.factory.runs
        row = await runs.start(agent, self.principal, turn)
        await runs.ended(row.id)
        if found := next(iter(agent.scope.app_results.values()), None):
            return found
        why = await self._why_not(row.id)
        return {"content": [{"type": "text", "text": why}], "isError": True}

    async def read_resource(self, uri: str) -> dict[str, Any]:
        """Read a resource of the app's own server. Raises AppRefused, NoSuchServer, RequestFailed."""
        manager = self.factory.mcp.manager
        tool = self.factory.mcp.trust.classification.of(manager.offer_tool(self.shown.server, "resources"))
        gate = await self.factory.current_gate(self.principal, self._options().approval)
        state = await self.factory.store.session_state(self.run.session)
        gate.enter(state.disabled, (), tainted=True)
        gate.serve_app()
        if labels := self.factory.labels:
            gate.limit_by_labels(limits_of(labels.policy, await labels.of_session(self.run.session), 0.0))
        if isinstance(refusal := gate.decide(tool, {"uri": uri}), Refuse):
            raise AppRefused(refusal.reason)
        await self._audit("resources/read", uri)
        context = Context(gate.policy.workspace, session=self.run.session, principal=self.principal.name, of_app=True)
        result = await manager.read_resource(self.shown.server, uri, context)
        whole = result.model_dump(by_alias=True, exclude_none=True, exclude={"result_type"}, mode="json")
        if len(json.dumps(whole)) > MAX_PAGE:
            raise AppRefused(f"The resource has more than {MAX_PAGE:,} characters.")
        return whole

    async def send_message(self, text: str) -> RunRow:
        """Begin a turn with words of the app that the person has confirmed."""
        options = self._options()
        await self._audit("ui/message", text)
        agent = await self.factory.agent(self.principal, options, self.run.session)
        turn = RunRequest(
            self._as_words(WORDS, text),
            self.run.session,
            when_busy="queue",
            time_limit_s=self.factory.limits(options).seconds,
            policy=options.policy(),
            untrusted=True,
            outside=True,
        )
        return await self.factory.runs.start(agent, self.principal, turn)

    async def give_context(self, given: Mapping[str, Any]) -> None:
        """Give the next turn of the person a text, in place of the one before; nothing, if it is empty.

        Raises AppRefused.
        """
        text = words_of(given)
        await self._audit("ui/update-model-context", text)
        kept = {key: given[key] for key in ("content", "structuredContent") if text and given.get(key)}
        await self._keep({"context": kept}, context=self._as_words(CONTEXT, text) if text else "")

    async def open_link(self, url: str) -> None:
        """Note a link that the person is shown. Raises AppRefused."""
        try:
            parts = urlsplit(url)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        except ValueError:
            fits = False
        if not fits or len(url) > MOST_URL or not url.isprintable():
            raise AppRefused("Only http and https addresses are opened, without user and password.")
        await self._audit("ui/open-link", url)

    async def keep_state(self, state: Mapping[str, Any]) -> None:
        """Keep what the app has last said of itself, beside what it has given the model. Raises AppRefused."""
        await self._keep({name: value for name, value in state.items() if name != "context"})

    async def state(self) -> dict[str, Any]:
        row = await self.factory.store.app_state(self.run.id, self.shown.call)
        return dict(json.loads(row.state)) if row else {}

    def definition(self) -> dict[str, Any] | None:
        """Return the tool whose result is shown, as its server defines it; None once it is not listed."""
        for tool in self.factory.mcp.tools():
            if tool.name == self.shown.name and tool.origin:
                pinned = self.factory.mcp.manager.definition(tool.origin.server, tool.origin.tool)
                return {key: pinned[key] for key in SHOWN if key in pinned}
        return None

    def _tool(self, name: str) -> Tool:
        """Return a tool of the app's own server that is for it. Raises AppRefused."""
        for tool in self.factory.mcp.tools():
            origin = tool.origin
            if origin and (origin.server, origin.tool) == (self.shown.server, name) and APP in tool.visibility:
                return tool
        raise AppRefused(f"{self.shown.server} has no tool {name[:80]!a} for its apps.")

    def _options(self) -> RunOptions:
        """Return the options of the run that the app belongs to. Raises NotFound."""
        update = {"client_tools": None, "terminal": None, "record": False}
        return stored_options(self.run.policy).model_copy(update=update)

    def _as_words(self, head: str, text: str) -> str:
        return f"[{head.format(tool=self.shown.name)}]\n{as_data(TITLE, text)}\n{RULE}"

    async def _keep(self, changed: Mapping[str, Any], context: str | None = None) -> None:
        store, run, call = self.factory.store, self.run, self.shown.call
        async with self.factory.runs.peers.lock("app", f"{run.id}\n{call}"):
            row = await store.app_state(run.id, call) or AppState(run.session, run.id, call, "{}")
            state = json.dumps(json.loads(row.state) | changed)
            if len(state) > MOST_STATE:
                raise AppRefused(f"The state of an app has at most {MOST_STATE:,} characters of JSON.")
            await store.write([replace(row, state=state, context=row.context if context is None else context)])

    async def _why_not(self, run: str) -> str:
        """Return why a call has no result: who refused it, or how its run ended."""
        why = "The call has no result."
        for row in await self.factory.store.events(run, 0, 1_000):
            fields = json.loads(row.data)
            if row.type == ToolRejected.type:
                return str(fields["reason"])
            why = str(fields.get("message") or fields.get("text") or why)
        return why

    async def _audit(self, method: str, why: str) -> None:
        action, by = f"app {self.shown.server}", self.principal.name
        row = AuditRow(
            time.time(),
            by,
            action,
            method,
            why=self.factory.redactor.redact(why[:500]),
            by=by,
            run=self.run.id,
            call=self.shown.call,
        )
        await self.factory.store.write([row])


async def app_requests(factory: RunFactory, principal: Principal, run: str, call: str) -> AppRequests:
    """Return what the app of a call may do. Raises NotFound."""
    row = await factory.runs.run(run, principal)
    for event in await factory.store.call_events(row.id, call):
        if event.type == ToolApp.type:
            fields = json.loads(event.data)
            return AppRequests(
                factory, principal, row, ToolApp(**{key: fields[key] for key in fields if key != "type"})
            )
    raise NotFound(f"Run {row.id} has no app for the call {call[:80]!a}.")


def words_of(params: Mapping[str, Any]) -> str:
    """Return the text of a message, or of what the model is given: its text blocks and its structured content.

    Raises AppRefused.
    """
    given = params.get("content")
    blocks: Sequence[Any] = given if isinstance(given, list) else ()
    texts = [one.get("text") for one in blocks if isinstance(one, dict) and one.get("type") == "text"]
    structured = params.get("structuredContent")
    parts = [*filter(lambda one: isinstance(one, str), texts), *([json.dumps(structured)] if structured else [])]
    text = "\n".join(map(str, parts)).strip()
    if len(text) > MOST_WORDS:
        raise AppRefused(f"An app may say at most {MOST_WORDS:,} characters at once.")
    return text
